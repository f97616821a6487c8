"""The `minikafka` command: a table of subcommands, each imported when it is called."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli import standard_streams
from minikafka.cli.imports import no_collections
from minikafka.cli.late_interruptions import late_interruptions
from minikafka.cli.version import show_version

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: name -> (module, attribute, one line of help). The help is here so that `--help` imports no subcommand.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "acls": ("minikafka.cli.acls", "acls", "Add, remove and list ACLs."),
    "audit": ("minikafka.cli.audit", "audit", "Prove that replicas agree, in a running cluster or in log directories."),
    "bench": ("minikafka.cli.bench", "bench", "Measure a running cluster."),
    "broker-api-versions": ("minikafka.cli.api_versions", "broker_api_versions", "Show the APIs and versions that brokers serve."),
    "client-metrics": ("minikafka.cli.client_metrics", "client_metrics", "Choose which metrics clients push to the brokers."),
    "cluster": ("minikafka.cli.cluster", "cluster", "Start a cluster on this machine (up), break it, inspect it."),
    "completion": ("minikafka.cli.shims", "completion", "Print a shell's completion script."),
    "configs": ("minikafka.cli.configs", "configs", "Describe and alter configurations."),
    "console-consumer": ("minikafka.cli.console", "console_consumer", "Read records, like kafka-console-consumer.sh."),
    "console-producer": ("minikafka.cli.console", "console_producer", "Write records, like kafka-console-producer.sh."),
    "console-share-consumer": (
        "minikafka.cli.console_share",
        "console_share_consumer",
        "Read records of a share group, like kafka-console-share-consumer.sh.",
    ),
    "consume": ("minikafka.cli.consume", "consume", "Read records."),
    "consumer-groups": ("minikafka.cli.groups", "consumer_groups", "List, describe, reset and delete consumer groups."),
    "consumer-perf-test": ("minikafka.cli.perf", "consumer_perf_test", "Measure how fast a consumer reads."),
    "delegation-tokens": ("minikafka.cli.delegation_tokens", "delegation_tokens", "Create, renew and expire delegation tokens."),
    "delete-records": ("minikafka.cli.offsets", "delete_records", "Delete records before an offset."),
    "demo": ("minikafka.cli.demo", "demo", "Watch a cluster survive killed brokers without losing a record."),
    "doctor": ("minikafka.cli.doctor", "doctor", "Find common mistakes, and explain how to fix them."),
    "dump-log": ("minikafka.cli.dump_log", "dump_log", "Show what is in log, index and snapshot files."),
    "features": ("minikafka.cli.features", "features", "Show and change the cluster's feature levels."),
    "get-offsets": ("minikafka.cli.offsets", "get_offsets", "Show the offsets of partitions at a given time."),
    "groups": ("minikafka.cli.groups", "groups", "List groups of all types."),
    "health": ("minikafka.cli.health", "health", "Check that the cluster is healthy, or wait until it is (-e)."),
    "install-shims": ("minikafka.cli.shims", "install_shims", "Write kafka-topics.sh and Kafka's other scripts."),
    "leader-election": ("minikafka.cli.elections", "leader_election", "Elect preferred or unclean leaders."),
    "load": ("minikafka.cli.load", "load", "Bulk-load a table into a topic."),
    "log-dirs": ("minikafka.cli.disks", "log_dirs", "Show the log directories of brokers."),
    "metadata-quorum": ("minikafka.cli.quorum", "metadata_quorum", "Show and change the quorum of controllers."),
    "produce": ("minikafka.cli.produce", "produce", "Write records."),
    "producer-perf-test": ("minikafka.cli.perf", "producer_perf_test", "Measure how fast a producer writes."),
    "reassign-partitions": ("minikafka.cli.reassign", "reassign_partitions", "Move replicas between brokers."),
    "streams-groups": ("minikafka.cli.streams_groups", "streams_groups", "List, describe, reset and delete streams groups."),
    "share-consumer-perf-test": (
        "minikafka.cli.perf_share",
        "share_consumer_perf_test",
        "Measure how fast members of a share group read.",
    ),
    "share-groups": ("minikafka.cli.share_groups", "share_groups", "List, describe, reset and delete share groups."),
    "sim": ("minikafka.cli.sim", "sim", "Run the deterministic cluster simulator."),
    "start": ("minikafka.cli.start", "start", "Run a broker, a controller, or both."),
    "storage": ("minikafka.cli.storage", "storage", "Format log directories; generate cluster ids."),
    "top": ("minikafka.cli.top", "top", "Watch partitions, replicas and groups."),
    "topics": ("minikafka.cli.topics", "topics", "Create, list, describe, alter and delete topics."),
    "transactions": ("minikafka.cli.transactions", "transactions", "List, describe and abort transactions; find hanging ones."),
    "verifiable-consumer": ("minikafka.cli.verifiable", "verifiable_consumer", "Read records and report each as a JSON line."),
    "verifiable-producer": ("minikafka.cli.verifiable", "verifiable_producer", "Write records and report each as a JSON line."),
    "verifiable-share-consumer": (
        "minikafka.cli.verifiable_share",
        "verifiable_share_consumer",
        "Read records of a share group and report each as a JSON line.",
    ),
    "verify-files": ("minikafka.cli.load_files", "verify_files", "Check what load --to-files wrote."),
}


class LazyGroup(click.Group):
    """A command group that imports each command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the table."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None for an unknown one."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        with no_collections():
            from minikafka.cli.kafka_flags import answer_for

            command: click.Command = getattr(importlib.import_module(entry[0]), entry[1])
        answer_for(cmd_name, command)
        _complete_names(command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Like click's method, but Ctrl-C exits silently at any moment, with the shell's status for it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Another Ctrl-C ends the process at once: click would say "Aborted!" and exit with 1.
            with contextlib.suppress(ValueError):  # not the main thread
                signal.signal(signal.SIGINT, signal.SIG_DFL)
            sys.exit(130)
        except click.UsageError as error:
            raise _with_name_option_hint(error) from None
        except ImportError as error:
            from minikafka.cli.reasons import why_not_imported

            why = why_not_imported(error)
            if why is None:
                raise
            click.echo(f"error: {why}", err=True)
            sys.exit(2)
        except Exception as error:
            from minikafka.cli.reasons import is_interruption

            if not is_interruption(error):
                raise
            sys.exit(130)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of the table, without importing anything."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=COMMANDS[name][2]) for name in sorted(COMMANDS) if name.startswith(incomplete)]
        return found or super().shell_complete(ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][2]) for name in sorted(COMMANDS)])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's method, with a suggestion for a misspelt name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            from minikafka.cli.kafka_flags import TOOLS_NOT_OFFERED

            if args[0] in TOOLS_NOT_OFFERED:
                ctx.fail(f"kafka-{args[0]}.sh is not offered: {TOOLS_NOT_OFFERED[args[0]]}.")
            options = {"help": "--help", "version": "--version"}
            close = [options[args[0]]] if args[0] in options else difflib.get_close_matches(args[0], COMMANDS, n=1, cutoff=0.5)
            hint = f" Did you mean {close[0]}?" if close else " See minikafka --help."
            ctx.fail(f"There is no command {args[0]}.{hint}")
        return super().resolve_command(ctx, args)


def _with_name_option_hint(error: click.UsageError) -> click.UsageError:
    """Say which option takes the name: `topics --create orders` without --topic is a common mistake."""
    if "unexpected extra argument" not in error.message or error.ctx is None:
        return error
    options = {option for parameter in error.ctx.command.params for option in parameter.opts}
    takes = [option for option in ("--topic", "--group", "--files") if option in options]
    return click.UsageError(f"{error.message}. Names follow {' or '.join(takes)}.", error.ctx) if takes else error


#: Parameters whose values are names of topics or groups in the cluster.
TOPIC_PARAMETERS = frozenset({"topic", "topics", "names", "topic_argument"})
GROUP_PARAMETERS = frozenset({"group", "groups", "group_id"})


def _complete_names(command: click.Command) -> None:
    """Complete names of topics and groups by asking the cluster."""
    if "_MINIKAFKA_COMPLETE" not in os.environ:
        return
    from minikafka.cli.completion import complete_groups, complete_topics

    for parameter in command.params:
        if parameter.name in TOPIC_PARAMETERS:
            parameter.shell_complete = complete_topics  # type: ignore[method-assign]
        elif parameter.name in GROUP_PARAMETERS:
            parameter.shell_complete = complete_groups  # type: ignore[method-assign]


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=show_version, help="Show the version and exit.")
def cli() -> None:
    """A networked, replicated log server that speaks Apache Kafka's protocol and writes its files."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script."""
    given = list(arguments) if arguments is not None else sys.argv[1:]
    standard_streams.watch(given[0] if given else None)
    for argument in given:
        if not _is_text_or_path(argument):
            click.echo(f"error: {os.fsencode(argument)!r} is not valid UTF-8, and no file has this name", err=True)
            sys.exit(2)
    try:
        with late_interruptions():
            _run_and_write(given)
    except KeyboardInterrupt:
        sys.exit(130)


def _is_text_or_path(argument: str) -> bool:
    """Whether an argument is UTF-8. A path need not be."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return any(os.path.lexists(path) for path in (argument, argument.partition("=")[2]))
    return True


def _run_and_write(arguments: list[str]) -> None:
    """Run the command and write its last lines. What the system refuses is one line, whichever command it was."""
    from minikafka.cli.reasons import reason

    failure_status = 3 if arguments[:1] == ["audit"] else 1
    try:
        try:
            cli.main(args=arguments, prog_name="minikafka")
        except SystemExit as end:
            unwritten = standard_streams.finish()
            if unwritten is not None and end.code in (0, None):
                raise unwritten from None
            raise
        except BaseException:
            standard_streams.finish()
            raise
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        if "--traceback" in arguments:
            raise
        click.echo(f"error: {reason(error)}", err=True)
        sys.exit(failure_status)
