"""How the clients of a command connect: the properties of `--command-config` and `-X`."""

from __future__ import annotations

from collections.abc import Mapping

import click

from minikafka.cli.client_settings import take

_META = "minikafka.connection"


def use_properties(context: click.Context, value: str | tuple[str, ...] | Mapping[str, str]) -> None:
    """Use the properties from a file (its name), options (NAME=VALUE) or a mapping for every client that the command creates.

    The command line takes precedence over the file. librdkafka's names are translated to Kafka's. Settings of the command's own producer
    or consumer that are given on the command line are stored for it (`client_settings`).

    Raises click.BadParameter for an unknown name."""
    from minikafka.broker.config.broker_config import ConfigurationError, load_properties
    from minikafka.client.cluster import default_security
    from minikafka.security.client_properties import client_properties
    from minikafka.security.errors import SecurityError

    files, options = context.meta.setdefault(_META, ({}, {}))
    if isinstance(value, str):
        try:
            files.update(client_properties(load_properties(value)))
        except (ConfigurationError, SecurityError) as error:
            raise click.BadParameter(str(error), param_hint="--command-config") from error
    elif isinstance(value, tuple):
        given = {}
        for text in value:
            name, equals, setting = text.partition("=")
            if not equals or not name.strip():
                raise click.BadParameter(f"{text.partition('=')[0]!r} is not NAME=VALUE", param_hint="-X")
            given[name.strip()] = setting.strip()
        try:
            options.update(client_properties(take(context, given), only_connection=True))
        except SecurityError as error:
            raise click.BadParameter(str(error), param_hint="-X") from error
    else:
        try:
            options.update(client_properties(value))
        except SecurityError as error:
            raise click.BadParameter(str(error), param_hint="--command-property") from error
    token = default_security.set({**files, **options})
    context.call_on_close(lambda: default_security.reset(token))


def properties_in_use() -> Mapping[str, str]:
    """The properties that `use_properties` collected for the running command."""
    from minikafka.client.cluster import default_security

    return default_security.get() or {}
