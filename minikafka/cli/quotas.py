"""`minikafka configs --entity-type users|clients|ips`: client quotas, with the flags and the output of kafka-configs.sh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import emit, run
from minikafka.client.errors import ClientError

if TYPE_CHECKING:
    from minikafka.client.quotas import QuotaAdmin

#: kafka-configs.sh's plural -> the protocol's entity type, the tool's singular.
KINDS = {"users": ("user", "user-principal"), "clients": ("client-id", "client-id"), "ips": ("ip", "ip")}
#: A requested entity: plural type, name (None: the default entity), whether it stands for every name.
Asked = tuple[str, str | None, bool]


def quotas(
    bootstrap: str, action: str, asked: Sequence[Asked], added: Mapping[str, str], deleted: Sequence[str], output: str, traceback: bool
) -> None:
    """Describe the quotas of entities (and the SCRAM credentials of users), or change the quotas of one."""
    if action == "alter" and any(every for _, _, every in asked):
        raise click.UsageError("give --entity-name or --entity-default for each --entity-type")
    changes: dict[str, float | None] = {}
    for key, text in added.items():
        try:
            changes[key] = float(text)
        except ValueError as error:
            raise click.BadParameter(f"Cannot parse quota configuration value for {key}: {text}", param_hint="--add-config") from error
    changes |= dict.fromkeys(deleted)

    async def go() -> None:
        from minikafka.client.quotas import QuotaAdmin

        async with QuotaAdmin(bootstrap) as admin:
            if action == "alter":
                if deleted:
                    await _check_deleted(admin, asked, deleted)
                await admin.alter_quotas(tuple((KINDS[plural][0], name) for plural, name, _ in asked), changes)
                plural, name, _ = asked[0]
                click.echo(
                    f"Completed updating config for {plural[:-1]} {name}."
                    if name is not None
                    else f"Completed updating default config for {plural} in the cluster."
                )
                return
            found = await admin.describe_quotas([(KINDS[plural][0], name, every) for plural, name, every in asked])
            passwords = await admin.describe_scram_credentials() if [plural for plural, _, _ in asked] == ["users"] else {}
            mine = {user: keys for user, keys in passwords.items() if asked[0][2] or asked[0][1] == user}
            if len(asked) == 1 and asked[0][0] == "users" and asked[0][1] is not None and not found and not mine:
                # Kafka's tool prints nothing and succeeds.
                click.echo(f"user {asked[0][1]} has neither a password nor a quota", err=True)
            if output != "table":
                rows: list[dict[str, Any]] = [
                    {"user": user, "mechanism": key, "iterations": count} for user, keys in mine.items() for key, count in keys.items()
                ]
                rows += [{**{kind: name or "<default>" for kind, name in quota.entity}, **quota.values} for quota in found]
                emit(rows, output, [])
                return
            for user, keys in mine.items():
                texts = ", ".join(f"{key}=iterations={count}" for key, count in keys.items())
                click.echo(f"SCRAM credential configs for user-principal '{user}' are {texts}")
            for quota in found:
                values = ", ".join(f"{key}={value}" for key, value in sorted(quota.values.items()))
                click.echo(f"Quota configs for {_words(dict(quota.entity))} are {values}")

    run(go, traceback=traceback)


async def _check_deleted(admin: QuotaAdmin, asked: Sequence[Asked], deleted: Sequence[str]) -> None:
    """Check, as Kafka's tool does, that the quotas to delete exist. Raises ClientError."""
    found = await admin.describe_quotas([(KINDS[plural][0], name, every) for plural, name, every in asked])
    there = {key for quota in found for key in quota.values}
    missing = [key for key in deleted if key not in there]
    if missing:
        raise ClientError(f"Invalid config(s): {','.join(missing)}")


def _words(entity: Mapping[str, str | None]) -> str:
    parts = []
    for kind, words in KINDS.values():
        if kind in entity:
            name = entity[kind]
            parts.append(f"the default {words}" if name is None else f"{words} '{name}'")
    return ", ".join(parts)


def in_order(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """A callback that records the order of --entity-name and --entity-default: each belongs to the --entity-type before it."""
    if value:
        context.meta.setdefault("minikafka.configs.order", []).append(parameter.name)
    return value


def pair(context: click.Context, types: Sequence[str], names: Sequence[str], defaults: int, shorts: Mapping[str, Any]) -> list[Asked]:
    """The requested user, client and ip entities. Raises click.UsageError."""
    order = context.meta.get("minikafka.configs.order", [])
    given: list[str | None] = list(names)
    missing: list[str | None] = [None] * defaults
    ordered = missing + given if order[:1] == ["entity_default"] else given + missing
    if len(ordered) > len(types):
        raise click.UsageError("more names than types: each --entity-name or --entity-default belongs to an --entity-type")
    asked: list[Asked] = [(plural, ordered[i] if i < len(ordered) else None, i >= len(ordered)) for i, plural in enumerate(types)]
    for plural, (name, is_default) in shorts.items():
        if name is not None or is_default:
            asked.append((plural, name, False))
    kinds = [plural for plural, _, _ in asked]
    if len(set(kinds)) != len(kinds):
        raise click.UsageError("specify only one entity of each type")
    if len(kinds) > 1 and set(kinds) != {"users", "clients"}:
        raise click.UsageError("only users and clients can be combined")
    return asked


