"""Flags and tools of Apache Kafka 4.4 that have no effect here or are not offered, with an answer better than "no such option".

`tests/golden/tool_flags-4.4.tsv` lists every flag of Kafka's tools. A test checks that each is an option here or in this module.
"""

from __future__ import annotations

from typing import Any

import click

from minikafka.cli.version import show_version

_CLIENT = "the bundled client has no such setting"

#: command -> flag with a value -> why it has no effect.
WITHOUT_EFFECT: dict[str, dict[str, str]] = {
    "console-producer": {
        "--max-block-ms": _CLIENT,
        "--metadata-expiry-ms": _CLIENT,
        "--retry-backoff-ms": _CLIENT,
        "--socket-buffer-size": _CLIENT,
    },
    "consumer-perf-test": {"--socket-buffer-size": _CLIENT},
    "share-consumer-perf-test": {"--socket-buffer-size": _CLIENT},
    "dump-log": {"--max-message-size": "it reads batches of any size"},
    "topics": {"--partition-size-limit-per-response": "it always reads all pages of the response"},
}
#: command -> flag -> what to do instead. Flags may come with or without a value.
NOT_OFFERED: dict[str, dict[str, str]] = {
    "dump-log": {"--remote-log-metadata-decoder": "there is no tiered storage"},
    "topics": {"--delete-config": "no longer supported, as in Apache Kafka: minikafka configs --alter --topic NAME --delete-config NAME"},
}
#: Kafka's tool without kafka- and .sh -> what to do instead.
TOOLS_NOT_OFFERED: dict[str, str] = {
    "metadata-shell": "use minikafka dump-log --cluster-metadata-decoder --files with a file of __cluster_metadata-0",
    "replica-verification": "use minikafka audit --bootstrap-server, which compares every batch and ends with a verdict",
}
_HAS_KAFKA_FLAGS = "_has_kafka_flags"


def answer_for(name: str, command: click.Command) -> None:
    """Add the flags of this module and `--version` to a command and its subcommands. Further calls do nothing."""
    if getattr(command, _HAS_KAFKA_FLAGS, False):
        return
    setattr(command, _HAS_KAFKA_FLAGS, True)
    mine = [_accepting(flag, why) for flag, why in WITHOUT_EFFECT.get(name, {}).items()]
    mine += [_refusing(flag, why) for flag, why in NOT_OFFERED.get(name, {}).items()]
    for one in (command, *(command.commands.values() if isinstance(command, click.Group) else ())):
        one.params.extend(mine)
        if not any("--version" in parameter.opts for parameter in one.params):
            one.params.append(_version())


def _accepting(flag: str, why: str) -> click.Option:
    return click.Option([flag], hidden=True, expose_value=False, help=f"Accepted; {why}.")


def _refusing(flag: str, why: str) -> click.Option:
    def refuse(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value is not None:
            raise click.UsageError(f"{flag}: {why}")

    return click.Option([flag], is_flag=False, flag_value="", hidden=True, expose_value=False, is_eager=True, callback=refuse, help=why)


def _version() -> click.Option:
    about = "Show the version and exit."
    return click.Option(["--version"], is_flag=True, hidden=True, expose_value=False, is_eager=True, callback=show_version, help=about)
