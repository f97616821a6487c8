"""`minikafka delegation-tokens`: the flags and the output of kafka-delegation-tokens.sh."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import bootstrap_option, command_config_option, emit, output_option, run, traceback_option

if TYPE_CHECKING:
    from minikafka.client.tokens import DelegationToken, TokenAdmin

#: Options that each action needs, and further ones that it accepts.
_NEEDED = {
    "create": {"max_life_time_period"},
    "renew": {"hmac", "renew_time_period"},
    "expire": {"hmac", "expiry_time_period"},
    "describe": set[str](),
}
_ALLOWED = {"create": {"owner_principal", "renewer_principal"}, "describe": {"owner_principal"}}
_COLUMNS = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
_WIDTHS = (15, 30, 15, 15, 25, 15, 15, 15)


@click.command("delegation-tokens")
@bootstrap_option
@command_config_option
@click.option("--create", "actions", flag_value="create", multiple=True, help="Create a token.")
@click.option("--renew", "actions", flag_value="renew", multiple=True, help="Renew a token.")
@click.option("--expire", "actions", flag_value="expire", multiple=True, help="Expire a token, now or after a period.")
@click.option("--describe", "actions", flag_value="describe", multiple=True, help="Show the tokens that you may see.")
@click.option("--owner-principal", metavar="TYPE:NAME", multiple=True, help="The owner of the new token; or whose tokens to show.")
@click.option("--renewer-principal", metavar="TYPE:NAME", multiple=True, help="Who else may renew the token.")
@click.option("--max-life-time-period", metavar="MS", type=int, help="Maximum lifetime of the token, in ms; -1 = as long as brokers allow.")
@click.option("--renew-time-period", metavar="MS", type=int, help="Time until the token expires, in ms; -1 = as long as brokers allow.")
@click.option("--expiry-time-period", metavar="MS", type=int, help="Time until the token expires, in ms; -1 = now.")
@click.option("--hmac", help="The token's HMAC, in base64.")
@output_option
@traceback_option
def delegation_tokens(bootstrap: str, actions: tuple[str, ...], output: str, traceback: bool, **options: Any) -> None:
    """Create, renew, expire and show delegation tokens. Clients use them to log in for a limited time without a password (KIP-48)."""
    action, hmac = _checked(actions, options)

    async def go() -> None:
        from minikafka.client.tokens import TokenAdmin

        async with TokenAdmin(bootstrap) as admin:
            if action == "create":
                await _create(admin, options, output)
            elif action == "describe":
                await _describe(admin, list(options["owner_principal"]), output)
            elif action == "renew":
                period_ms = options["renew_time_period"]
                click.echo(f"Calling renew token operation with hmac :{options['hmac']} , renew-time-period :{period_ms}")
                click.echo(f"Completed renew operation. New expiry date : {_date(await admin.renew_token(hmac, period_ms))}")
            else:
                period_ms = options["expiry_time_period"]
                click.echo(f"Calling expire token operation with hmac :{options['hmac']} , expire-time-period :{period_ms}")
                click.echo(f"Completed expire operation. New expiry date : {_date(await admin.expire_token(hmac, period_ms))}")

    run(go, traceback=traceback)


def _checked(actions: tuple[str, ...], options: dict[str, Any]) -> tuple[str, bytes]:
    """The one action, and the token's HMAC. Raises click.UsageError."""
    if len(actions) != 1:
        raise click.UsageError("Command must include exactly one action: --create, --renew, --expire or --describe")
    action = actions[0]
    given = {name for name, value in options.items() if value not in (None, ())}
    for name in sorted(_NEEDED[action] - given):
        raise click.UsageError(f'Missing required argument "[{name.replace("_", "-")}]"')
    for name in sorted(given - _NEEDED[action] - _ALLOWED.get(action, set())):
        raise click.UsageError(f'Option "[{action}]" can\'t be used with option "[{name.replace("_", "-")}]"')
    for principal in (*options["owner_principal"], *options["renewer_principal"]):
        if ":" not in principal:
            raise click.UsageError(f"{principal}: must be TYPE:NAME, as in User:alice")
    try:
        return action, base64.b64decode(options["hmac"] or "", validate=True)
    except (binascii.Error, ValueError):
        raise click.UsageError("--hmac: must be base64") from None


async def _create(admin: TokenAdmin, options: dict[str, Any], output: str) -> None:
    renewers, owners, lifetime_ms = list(options["renewer_principal"]), options["owner_principal"], options["max_life_time_period"]
    if output == "table":
        click.echo(f"Calling create token operation with renewers :[{', '.join(renewers)}] , max-life-time-period :{lifetime_ms}")
    token = await admin.create_token(renewers, owners[0] if owners else None, lifetime_ms)
    if output == "table":
        click.echo(f"Created delegation token with tokenId : {token.token_id}")
    _show([token], output)


async def _describe(admin: TokenAdmin, owners: list[str], output: str) -> None:
    if output == "table":
        whose = f"owners: [{', '.join(owners)}]" if owners else "current user."
        click.echo(f"Calling describe token operation for {whose}")
    tokens = await admin.describe_tokens(owners or None)
    if output == "table":
        click.echo(f"Total number of tokens : {len(tokens)}", nl=False)
    _show(tokens, output)


def _show(tokens: list[DelegationToken], output: str) -> None:
    if output != "table":
        rows = [
            {
                "token_id": token.token_id,
                "hmac": base64.b64encode(token.hmac).decode(),
                "owner": token.owner,
                "requester": token.requester,
                "renewers": list(token.renewers),
                "issued_ms": token.issued_ms,
                "expiry_ms": token.expiry_ms,
                "max_ms": token.max_ms,
            }
            for token in tokens
        ]
        emit(rows, output, ["token_id", "owner", "expiry_ms"])
        return
    _line(_COLUMNS)
    for token in tokens:
        hmac, renewers = base64.b64encode(token.hmac).decode(), f"[{', '.join(token.renewers)}]"
        dates = (_date(token.issued_ms), _date(token.expiry_ms), _date(token.max_ms))
        _line((token.token_id, hmac, token.owner, token.requester, renewers, *dates))


def _line(cells: tuple[str, ...]) -> None:
    click.echo("\n" + " ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)))


def _date(time_ms: int) -> str:
    """As Java's yyyy-MM-dd'T'HH:mm, in local time; far times as numbers."""
    try:
        return datetime.fromtimestamp(time_ms / 1000).strftime("%Y-%m-%dT%H:%M")
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
