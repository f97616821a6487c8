"""`minikafka configs --entity-type users`: SCRAM credentials, with the flags and the output of kafka-configs.sh."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from typing import Any

import click

from minikafka.cli.common import emit, run
from minikafka.client.errors import ClientError
from minikafka.core.scram import ITERATIONS_MAX, ITERATIONS_MIN

SALT_BYTES = 20


def users(bootstrap: str, action: str, name: str | None, set_: Mapping[str, str], deleted: list[str], output: str, traceback: bool) -> None:
    """Describe or change SCRAM credentials. A `name` of None means all users. `set_`: mechanism -> iterations=..,password=.."""
    from minikafka.core.scram import SCRAM_MECHANISMS

    unknown = [key for key in (*set_, *deleted) if key not in SCRAM_MECHANISMS]
    if unknown:
        raise click.UsageError(f"{unknown[0]}: users have only {' and '.join(SCRAM_MECHANISMS)}")
    if action == "alter" and not name:
        raise click.UsageError("specify a user with --entity-name")

    async def go() -> None:
        from minikafka.client.admin import Admin

        async with Admin(bootstrap) as admin:
            if action == "alter":
                assert name is not None
                for mechanism, text in set_.items():
                    await admin.set_scram_credential(name, mechanism, **_credential(mechanism, text))
                for mechanism in deleted:
                    await admin.delete_scram_credential(name, mechanism)
                click.echo(f"Completed updating config for user {name}.")
                return
            found = await admin.describe_scram_credentials([name] if name else [])
            if output != "table":
                rows = [
                    {"user": user, "mechanism": key, "iterations": count} for user, keys in found.items() for key, count in keys.items()
                ]
                emit(rows, output, ["user", "mechanism", "iterations"])
                return
            for user, keys in found.items():
                texts = ", ".join(f"{key}=iterations={count}" for key, count in keys.items())
                click.echo(f"SCRAM credential configs for user-principal '{user}' are {texts}")

    run(go, traceback=traceback)


def _credential(mechanism: str, text: str) -> dict[str, Any]:
    """Salt, iterations and password from [iterations=8192,password=secret]. Raises ClientError."""
    options = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or name.strip() not in ("iterations", "password", "salt"):
            raise ClientError(f"{mechanism}={name.strip()}: must be [iterations=8192,password=...]")
        options[name.strip()] = value.strip()
    if "password" not in options:
        raise ClientError(f"{mechanism}: the password is missing, as in {mechanism}=[password=...]")
    try:
        salt = base64.b64decode(options["salt"], validate=True) if "salt" in options else os.urandom(SALT_BYTES)
        iterations = int(options.get("iterations", ITERATIONS_MIN))
        if not 1 <= iterations <= ITERATIONS_MAX:
            # Check here: the tool would derive the keys with this many iterations before the controller could refuse them.
            raise ValueError(f"iterations must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}, not {iterations}")
        return {"password": options["password"], "salt": salt, "iterations": iterations}
    except ValueError as error:
        raise ClientError(f"{mechanism}: {error}") from error
