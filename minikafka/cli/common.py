"""Shared by the client commands: the bootstrap address, output formats, readable errors, exit codes.

Exit codes: 0 done; 1 the cluster refused, or the data is not what you asked for; 2 wrong usage; 3 the cluster cannot be reached or does not
answer in time; 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import copy_context
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.client_settings import PropertyOption

if TYPE_CHECKING:
    import asyncio

    from minikafka.client.errors import ClientError

EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
#: Commands report an unreachable cluster after this long. `health -e` waits longer, for a cluster that is starting.
FIRST_ANSWER_MS = 3000
#: How often a command says that no broker answers, which each of its clients notices.
SAID_AGAIN_S = 20.0
COMMAND_CONFIG_VARIABLE = "MINIKAFKA_COMMAND_CONFIG"
CONTROLLERS = "minikafka.bootstrap-controller"
BOOTSTRAP_VARIABLES = ("MINIKAFKA_BOOTSTRAP", "KAFKA_BOOTSTRAP_SERVERS")
HELP_CHARACTERS_MAX = 1000
Command = Callable[..., Any]


class CommandGroup(click.Group):
    """A group whose help shows the whole first sentence of each command: click cuts it to one line. Its own options, such as
    --bootstrap-server, may follow the command's name, too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the group's options before the command's name, except those that the command has itself."""
        at = next((number for number, word in enumerate(args) if word in self.commands), len(args))
        own, its = _with_value(self), _with_value(self.commands[args[at]]) if at < len(args) else set()
        moved, rest = _options_of_the_group(args[at + 1 :], own - its, its)
        return super().parse_args(ctx, [*args[:at], *moved, *args[at : at + 1], *rest])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One entry per command."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(HELP_CHARACTERS_MAX)) for name, command in found if command and not command.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _with_value(command: click.Command) -> set[str]:
    options = (parameter for parameter in command.params if isinstance(parameter, click.Option))
    return {name for option in options if not option.is_flag for name in option.opts}


def _options_of_the_group(words: list[str], names: set[str], others: set[str]) -> tuple[list[str], list[str]]:
    """(options of these names with their values, everything else), each in the order of the words. `others` have values, too."""
    moved: list[str] = []
    rest: list[str] = []
    left = iter(words)
    for word in left:
        if word == "--":
            return moved, [*rest, word, *left]
        if word in names or word in others:
            (moved if word in names else rest).extend([word, *islice(left, 1)])
        elif word.partition("=")[0] in names or (word[:2] in names and not word.startswith("--")):
            moved.append(word)
        else:
            rest.append(word)
    return moved, rest


def bootstrap_option(command: Command) -> Command:
    """`--bootstrap-server`, `-b`, or an environment variable."""
    return click.option(
        "--bootstrap-server",
        "-b",
        "bootstrap",
        envvar=list(BOOTSTRAP_VARIABLES),
        default="localhost:9092",
        show_default=True,
        callback=_address,
        help="host:port of one or more brokers.",
    )(command)


def bootstrap_controller_option(command: Command) -> Command:
    """`--bootstrap-controller` (KIP-919): the command asks the active controller itself."""
    return click.option(
        "--bootstrap-controller",
        "-C",
        expose_value=False,
        is_eager=True,
        callback=_ask_controllers,
        help="host:port of one or more controllers to ask instead of brokers.",
    )(command)


def _ask_controllers(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value:
        context.meta[CONTROLLERS] = value


def _address(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The controllers' address, if given, replaces the brokers'."""
    controllers = context.meta.get(CONTROLLERS)
    if controllers is None:
        return value
    if context.get_parameter_source(str(parameter.name)) is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("give either --bootstrap-server or --bootstrap-controller")
    from minikafka.client.cluster import ask_controllers

    token = ask_controllers.set(True)
    context.call_on_close(lambda: ask_controllers.reset(token))
    return str(controllers)


def _use_properties(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        from minikafka.cli.connection import use_properties

        use_properties(context, value)


def older_config_option(command: Command) -> Command:
    """`--config FILE`, kafka-cluster.sh's former name of `--command-config`."""
    about = "Older name of --command-config."
    return click.option("--config", hidden=True, expose_value=False, callback=_use_properties, help=about)(command)


def command_config_option(command: Command) -> Command:
    """Kafka's `--command-config FILE` and librdkafka's `-X NAME=VALUE`. Both set connection properties (security.protocol, ssl.*, sasl.*)
    for every client of the command. -X also sets properties of its producer or consumer. Other properties in the file are ignored."""

    command = click.option(
        "-X",
        "command_properties",
        multiple=True,
        metavar="NAME=VALUE",
        expose_value=False,
        callback=_use_properties,
        cls=PropertyOption,
    )(command)
    command = click.option(
        "--consumer.config",
        "--consumer-config",
        "--producer.config",
        "--admin.config",
        "older_config",
        hidden=True,
        expose_value=False,
        callback=_use_properties,
        help="Kafka's older names of --command-config.",
    )(command)
    return click.option(
        "--command-config",
        envvar=COMMAND_CONFIG_VARIABLE,
        expose_value=False,
        callback=_use_properties,
        help=f"Properties file for the client's TLS and SASL settings; or set {COMMAND_CONFIG_VARIABLE}.",
    )(command)


#: Output formats that every command offers.
OUTPUTS = ("table", "wide", "json", "jsonl", "yaml")


def output_option(command: Command) -> Command:
    """`-o table|wide|json|jsonl|yaml`."""
    return click.option(
        "--output",
        "-o",
        type=click.Choice(OUTPUTS),
        default="table",
        show_default=True,
        help="Format of the result.",
    )(command)


def run(work: Callable[[], Coroutine[Any, Any, Any]], *, traceback: bool = False) -> Any:
    """Run a coroutine function. An error becomes one line on stderr and an exit code."""
    from minikafka.client.errors import ClientError, NoBrokers, WrongAddress, WrongSettings

    try:
        # In a context of its own: clients that the caller makes later do not wait as those of commands do.
        return copy_context().run(_patiently, work)
    except (WrongAddress, WrongSettings) as error:
        _fail(str(error), EXIT_USAGE, traceback)
    except NoBrokers as error:
        _fail(str(error), EXIT_UNREACHABLE, traceback)
    except ClientError as error:
        _fail(f"{error}{_advice(error)}", EXIT_REFUSED, traceback)
    except TimeoutError as error:
        _fail(f"no answer in time: {error}", EXIT_UNREACHABLE, traceback)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except ConnectionError as error:
        _fail(f"the connection broke: {error}", EXIT_UNREACHABLE, traceback)


def _patiently(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run it with clients that wait for a cluster that is starting, and say so."""
    from minikafka.cli.starting_cluster import is_starting
    from minikafka.client.cluster import first_answer_ms, may_be_starting
    from minikafka.client.silence import on_silence

    first_answer_ms.set(FIRST_ANSWER_MS)
    may_be_starting.set(is_starting)
    on_silence.set(_said_now_and_then())
    return _runner()(work())


def _advice(error: ClientError) -> str:
    """What to do about a broker's refusal, where its own words do not say it."""
    from minikafka.client.errors import BrokerError
    from minikafka.wire.errors import ErrorCode

    if not isinstance(error, BrokerError):
        return ""
    listed = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "topics --list", ErrorCode.GROUP_ID_NOT_FOUND: "groups --list"}.get(error.code)
    return f". See `minikafka {listed}`" if listed else ""


def _said_now_and_then() -> Callable[[str, float | None], None]:
    from time import monotonic

    said_s: float | None = None

    def say(addresses: str, left_s: float | None) -> None:
        nonlocal said_s
        if said_s is None or monotonic() - said_s > SAID_AGAIN_S:
            said_s = monotonic()
            how_long = "" if left_s is None else f", for {left_s:.0f} s more at most"
            click.echo(f"no answer from {addresses} yet, still trying{how_long} ...", err=True)

    return say


def _runner() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    import asyncio

    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return _run_with(uvloop.new_event_loop)


def _run_with(factory: Callable[[], asyncio.AbstractEventLoop]) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    def runner(work: Coroutine[Any, Any, Any]) -> Any:
        import asyncio

        with asyncio.Runner(loop_factory=factory) as loop:
            return loop.run(work)

    return runner


def _fail(text: str, status: int, traceback: bool) -> None:
    if traceback:
        raise  # noqa: PLE0704 - called from an except block only
    click.echo(f"error: {text}", err=True)
    sys.exit(status)


def traceback_option(command: Command) -> Command:
    """`--traceback`."""
    return click.option("--traceback", is_flag=True, help="Show the traceback of an error.")(command)


def emit(rows: Iterable[Mapping[str, Any]], output: str, columns: Sequence[str]) -> None:
    """Print rows as aligned columns, as one JSON array, as one JSON object per line, or as YAML."""
    found = list(rows)
    if output == "wide":
        names = dict.fromkeys([*columns, *(name for row in found for name in row)])
        click.echo(table(found, list(names)), nl=False)
    elif output == "yaml":
        click.echo(to_yaml(found), nl=False)
    elif output == "json":
        click.echo(json.dumps(found, indent=2, default=str))
    elif output == "jsonl":
        for row in found:
            click.echo(json.dumps(row, default=str))
    else:
        click.echo(table(found, columns), nl=False)


def emit_one(row: Mapping[str, Any], output: str) -> None:
    """Print a single object that is not a table row, as json (indented), jsonl (one line) or yaml."""
    if output == "yaml":
        click.echo("---\n" + to_yaml(row), nl=False)
    else:
        click.echo(json.dumps(row, indent=1 if output == "json" else None, default=str))


def to_yaml(value: Any, indent: str = "") -> str:
    """Lists, mappings and scalars as YAML. Strings are written as JSON strings, which are valid YAML."""
    if isinstance(value, Mapping) and value:
        return "".join(
            f"{indent}{key}:{chr(10) + to_yaml(item, indent + '  ') if _is_nested(item) else ' ' + _scalar(item) + chr(10)}"
            for key, item in value.items()
        )
    if isinstance(value, list | tuple) and value:
        return "".join(
            f"{indent}- {to_yaml(item, indent + '  ')[len(indent) + 2 :] if _is_nested(item) else _scalar(item) + chr(10)}"
            for item in value
        )
    return f"{indent}{_scalar(value)}\n"


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple) and bool(value)


def _scalar(value: Any) -> str:
    return json.dumps(value, default=str)


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Columns aligned by spaces, headings in capitals, as Kafka's tools print them."""
    cells = [[column.upper().replace("_", "-") for column in columns]]
    cells += [["-" if row.get(c) is None else str(row.get(c)) for c in columns] for row in rows]
    widths = [max(len(line[number]) for line in cells) for number in range(len(columns))]
    return "".join("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() + "\n" for line in cells)


def parse_pairs(texts: Iterable[str], what: str) -> dict[str, str]:
    """Parse `a=1,b=[x,y]`, from one or more options. Raises click.BadParameter."""
    pairs: dict[str, str] = {}
    for text in texts:
        for part in _split(text):
            name, separator, value = part.partition("=")
            if not separator or not name.strip():
                raise click.BadParameter(f"{part!r} is not name=value", param_hint=what)
            value = value.strip()
            pairs[name.strip()] = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    return pairs


def command_settings(texts: Iterable[str]) -> dict[str, str]:
    """The client properties of --command-property. Connection properties apply to all clients of the command, as with -X."""
    settings = parse_pairs(texts, "--command-property")
    if any(name.startswith(("security.", "ssl.", "sasl.")) for name in settings):
        from minikafka.cli.connection import use_properties

        use_properties(click.get_current_context(), settings)
    return settings


def _split(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [part for part in [*parts, current] if part.strip()]
