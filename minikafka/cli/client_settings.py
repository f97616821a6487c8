"""Producer and consumer settings from `-X NAME=VALUE` and `--command-property`, under Kafka's or librdkafka's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from minikafka.cli.numbers import not_negative, whole

_META = "minikafka.client-settings"


@dataclass(frozen=True)
class Setting:
    """`argument` of the bundled client; `option` of the command that says the same, if there is one."""

    argument: str
    parse: Callable[[str], Any] = str
    option: str | None = None


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return text

    return parse


PRODUCER = {
    "acks": Setting("acks", _one_of("all", "-1", "0", "1"), "acks"),
    "batch.size": Setting("batch_size", whole(0)),
    "buffer.memory": Setting("buffer_memory", whole(0, 1 << 62)),
    "client.id": Setting("client_id"),
    "compression.type": Setting("compression", _one_of("none", "gzip", "snappy", "lz4", "zstd"), "compression"),
    "delivery.timeout.ms": Setting("delivery_timeout_ms", whole(0), "timeout_ms"),
    "enable.idempotence": Setting("enable_idempotence", _flag),
    "linger.ms": Setting("linger_ms", not_negative, "linger_ms"),
    "request.timeout.ms": Setting("request_timeout_ms", whole(0)),
}
CONSUMER = {
    "auto.commit.interval.ms": Setting("auto_commit_interval_ms", whole(0)),
    "auto.offset.reset": Setting("auto_offset_reset", _one_of("earliest", "latest", "none")),
    "client.id": Setting("client_id"),
    "client.rack": Setting("client_rack", str, "rack"),
    "enable.auto.commit": Setting("enable_auto_commit", _flag),
    "fetch.max.bytes": Setting("fetch_bytes_max", whole(0)),
    "fetch.max.wait.ms": Setting("fetch_wait_ms_max", whole(0)),
    "fetch.min.bytes": Setting("fetch_bytes_min", whole(0)),
    "group.id": Setting("group_id", str, "group"),
    "group.instance.id": Setting("group_instance_id"),
    "group.protocol": Setting("group_protocol", _one_of("classic", "consumer")),
    "group.remote.assignor": Setting("group_remote_assignor"),
    "heartbeat.interval.ms": Setting("heartbeat_interval_ms", whole(0)),
    "isolation.level": Setting("isolation_level", _one_of("read_committed", "read_uncommitted"), "isolation_level"),
    "max.partition.fetch.bytes": Setting("partition_fetch_bytes_max", whole(0)),
    "session.timeout.ms": Setting("session_timeout_ms", whole(0)),
}
#: librdkafka's names -> Kafka's.
RENAMED = {
    "compression.codec": "compression.type",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "message.timeout.ms": "delivery.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
}
SETTINGS: Mapping[str, Mapping[str, Setting]] = {"produce": PRODUCER, "consume": CONSUMER}
#: For the help of `-X`.
EXAMPLES = {"produce": "acks, batch.size or sasl.jaas.config", "consume": "group.id, fetch.min.bytes or sasl.jaas.config"}


def take(context: click.Context, given: Mapping[str, str]) -> dict[str, str]:
    """Store the settings of the command's own client for `arguments`, and return the rest, which are connection properties.

    Raises click.BadParameter for an invalid value, and for a setting that the command's client does not have."""
    import difflib

    from minikafka.security.client_properties import may_say_how_to_connect

    supported = SETTINGS.get(context.command.name or "", {})
    others = {name for settings in (PRODUCER, CONSUMER) for name in settings}
    kept: dict[str, Any] = context.meta.setdefault(_META, {})
    left = {}
    for name, text in given.items():
        kafka = RENAMED.get(name, name)
        setting = supported.get(kafka)
        if setting is not None:
            try:
                kept[kafka] = setting.parse(text)
            except ValueError as error:
                raise click.BadParameter(f"{name}={text}: {error}", param_hint="-X") from error
        elif kafka in others:
            raise click.BadParameter(f"{name} has no effect{_instead(context, supported)}", param_hint="-X")
        elif supported and not may_say_how_to_connect(name):
            close = difflib.get_close_matches(name, supported, n=1, cutoff=0.75)
            advice = (
                f"there is no property {name}; did you mean {close[0]}?" if close else f"{name} has no effect{_instead(context, supported)}"
            )
            raise click.BadParameter(advice, param_hint="-X")
        else:
            left[name] = text
    return left


def _instead(context: click.Context, supported: Mapping[str, Setting]) -> str:
    """What the command takes, after its name in an error."""
    if supported:
        return f" on `{context.command.name}`, which takes {', '.join(supported)}, security.protocol, sasl.* and ssl.*"
    if any("--command-property" in parameter.opts for parameter in context.command.params):
        return f" on `{context.command.name}` here: give it with --command-property"
    return f" on `{context.command.name}`, which takes only connection properties (security.protocol, sasl.*, ssl.*)"


class PropertyOption(click.Option):
    """`-X`, whose help says what its command takes."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        settings = SETTINGS.get(ctx.command.name or "")
        such = "security.protocol or sasl.jaas.config" if settings is None else EXAMPLES[ctx.command.name or ""]
        self.help = f"A {'connection' if settings is None else 'client'} property, such as {such}. May be repeated."
        return super().get_help_record(ctx)


def arguments() -> dict[str, Any]:
    """Arguments of the bundled client, from the settings that `take` stored. Options on the command line take precedence."""
    context = click.get_current_context()
    settings = SETTINGS.get(context.command.name or "", {})
    found = {}
    for name, value in context.meta.get(_META, {}).items():
        option = settings[name].option
        if option is None or context.get_parameter_source(option) is not click.core.ParameterSource.COMMANDLINE:
            found[settings[name].argument] = value
    return found
