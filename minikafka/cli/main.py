"""The `minikafka` command: a table of subcommands, each imported when it is called."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

#: name -> (module, attribute, one line of help). The help is here so that `--help` imports no subcommand.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "audit": ("minikafka.cli.audit", "audit", "Prove that the replicas in log directories agree."),
    "configs": ("minikafka.cli.configs", "configs", "Describe and alter configurations."),
    "consume": ("minikafka.cli.consume", "consume", "Read records."),
    "consumer-groups": ("minikafka.cli.groups", "consumer_groups", "List and describe consumer groups."),
    "demo": ("minikafka.cli.demo", "demo", "Three brokers, a killed leader, and a proof that nothing was lost."),
    "dump-log": ("minikafka.cli.dump_log", "dump_log", "Show what is in log, index and snapshot files."),
    "load": ("minikafka.cli.load", "load", "Bulk-load a table into a topic."),
    "produce": ("minikafka.cli.produce", "produce", "Write records."),
    "sim": ("minikafka.cli.sim", "sim", "Play seeds of the deterministic cluster simulator."),
    "start": ("minikafka.cli.start", "start", "Run a broker, a controller, or both."),
    "storage": ("minikafka.cli.storage", "storage", "Format log directories; make cluster ids."),
    "topics": ("minikafka.cli.topics", "topics", "Create, list, describe, alter and delete topics."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the table."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None for an unknown one."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(importlib.import_module(entry[0]), entry[1])
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][2]) for name in sorted(COMMANDS)])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a suggestion for a misspelt name."""
        import difflib

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], COMMANDS, n=1, cutoff=0.5)
            hint = f" Did you mean {close[0]}?" if close else " See minikafka --help."
            ctx.fail(f"There is no command {args[0]}.{hint}")
        return super().resolve_command(ctx, args)


def _version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if not value:
        return
    from importlib import metadata

    try:
        version = metadata.version("minikafka")
    except metadata.PackageNotFoundError:
        version = "of a source tree that is not installed"
    click.echo(f"minikafka, version {version}")
    context.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version and exit.")
def cli() -> None:
    """A networked, replicated log server that speaks Apache Kafka's protocol and writes its files."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script."""
    try:
        cli.main(args=list(arguments) if arguments is not None else None, prog_name="minikafka")
    except KeyboardInterrupt:
        sys.exit(130)
