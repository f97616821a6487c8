"""`minikafka cluster up`: start brokers on this machine with one command."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli import first_sign
from minikafka.cli.common import parse_pairs
from minikafka.cli.reasons import reason
from minikafka.cli.still_starting import StillStarting
from minikafka.cli.stop_signals import stop_signals

if TYPE_CHECKING:
    from pathlib import Path

    from minikafka.testing.embedded import EmbeddedCluster
    from minikafka.testing.security import Security

#: Copies of the names in minikafka.testing.security, so that `--help` does not import it.
SECURITIES = ("SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
PORT, HTTP_PORT = 9092, 9404
EXIT_NOT_STARTED, EXIT_CONFIGURATION, EXIT_INTERRUPTED = 1, 2, 130


@click.command("up")
@click.option("-n", "--brokers", type=click.IntRange(1), default=3, show_default=True, help="Number of brokers.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False),
    help="Keep the data in this directory for the next run. By default, the data is deleted at the end.",
)
@click.option("--topic", "topics", multiple=True, metavar="NAME[:PARTITIONS[:REPLICAS]]", help="Create this topic; may be repeated.")
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="Broker property; may be repeated.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port of the first broker; the others use the next ones. 0: any free ports.  [default: 9092 if free]",
)
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    help="Port of the first broker's /ui and /metrics; the others use the next ones. 0: any free ports.  [default: 9404 if free]",
)
@click.option(
    "--security",
    type=click.Choice(SECURITIES, case_sensitive=False),
    metavar=f"[{'|'.join(SECURITIES)}]",
    help="Protocol of all listeners; MTLS: clients need a certificate.",
)
@click.option("--mechanism", type=click.Choice(MECHANISMS), default="PLAIN", show_default=True, help="SASL mechanism.")
@click.option("--user", "users", multiple=True, metavar="NAME=PASSWORD", help="SASL user, in addition to admin=admin; may be repeated.")
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    metavar=f"[{'|'.join(LOG_LEVELS)}]",
    default="INFO",
    show_default=True,
    help="Log level of the brokers.",
)
def up(
    brokers: int,
    directory: str | None,
    topics: tuple[str, ...],
    configs: tuple[str, ...],
    port: int | None,
    http_port: int | None,
    security: str | None,
    mechanism: str,
    users: tuple[str, ...],
    log_level: str,
) -> None:
    """Start a cluster on this machine. It stops when this command ends (Ctrl-C). From another terminal, use `minikafka cluster kill 2`,
    `start 2`, `cut 3`, `heal` and `status` to break, repair and inspect it."""
    if directory == "":
        raise click.BadParameter("the name is empty", param_hint="--directory")
    _check_size(_absolute(directory), brokers)
    first_port = _usual_if_free(PORT, brokers) if port is None else port
    where = f"localhost:{first_port}" if first_port else "free ports"
    # Print this before the slow imports.
    first_sign.end()
    click.echo(f"starting {brokers} {'broker' if brokers == 1 else 'brokers'} on {where} ...", err=True)
    begin_imports()
    _run(
        partial(
            _made,
            brokers,
            topics=dict(_topic(text) for text in topics),
            config=parse_pairs(configs, "--config"),
            directory=_absolute(directory),
            log_level=log_level,
            security=_security(security, mechanism, parse_pairs(users, "--user")),
            first_port=first_port,
            first_http_port=_usual_if_free(HTTP_PORT, brokers) if http_port is None else http_port,
        ),
        first_port,
        directory,
        is_elsewhere=port is None and first_port != PORT,
    )


def begin_imports() -> None:
    """Start the process that brokers are forked from. It imports modules while this process does the same."""
    from minikafka.testing.processes import Zygote

    Zygote.begin()


def _made(brokers: int, **settings: Any) -> EmbeddedCluster:
    from minikafka.testing.embedded import EmbeddedCluster

    return EmbeddedCluster(brokers, mode="process", cluster_id=_stored_cluster_id(settings["directory"]), **settings)


def _run(make: Callable[[], EmbeddedCluster], first_port: int, directory: str | None, *, is_elsewhere: bool) -> None:
    """Run the cluster until a signal arrives or no broker is left."""
    from minikafka.cli.cluster_control import ControlServer
    from minikafka.cli.starting_cluster import StartingCluster
    from minikafka.testing.errors import ClusterError, WrongConfiguration

    ended = threading.Event()
    is_starting = True

    def end(*_: object) -> None:
        is_first = not ended.is_set()
        ended.set()
        if is_starting and is_first:
            raise KeyboardInterrupt

    for number in stop_signals():
        signal.signal(number, end)
    try:
        with StillStarting(lambda: _last_lines(made)) as start, StartingCluster(first_port) as announced:
            made: EmbeddedCluster | None = None
            made = make()
            with made:
                # From here on, a signal does not interrupt what begins, but ends it.
                is_starting = False
                with ControlServer(made) as control:
                    start.end()
                    announced.end()
                    _announce(made, start.seconds, is_elsewhere=is_elsewhere, is_kept=directory is not None)
                    while not ended.wait(0.5):
                        _report_dead_brokers(made, control.ended)
                    click.echo("stopping", err=True)
    except KeyboardInterrupt:
        click.echo("stopped before the cluster was up", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except (ClusterError, OSError) as error:
        click.echo(f"error: {_reason(error, first_port, directory)}", err=True)
        sys.exit(EXIT_CONFIGURATION if isinstance(error, WrongConfiguration) else EXIT_NOT_STARTED)


def _last_lines(made: EmbeddedCluster | None) -> str:
    """The last line of each broker's log; empty before the brokers have directories."""
    return "" if made is None else "\n".join(line for line in made.logs(1).splitlines() if not line.startswith("--- "))


def _reason(error: Exception, first_port: int, directory: str | None) -> str:
    """The error, and which running cluster occupies the ports or the directory, if one does."""
    import errno

    from minikafka.cli.control_socket import socket_path

    text = reason(error)
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        if first_port and socket_path(first_port).exists():
            text += f". `minikafka cluster up` already runs a cluster there: `minikafka cluster status -b localhost:{first_port}` shows it"
        text += ". Choose other ports with --port and --http-port (0: any free ports)"
        text += f", and another --directory: a running cluster uses {directory}" if directory and _is_in_use(directory) else ""
    elif directory and _is_in_use(directory):
        text += f" Another cluster runs on {directory}: stop that one, or choose another --directory"
    return text


def _is_in_use(directory: str) -> bool:
    """Whether a process that runs has locked a log directory of a broker there."""
    from pathlib import Path

    from minikafka.storage.filesystem import OsFileSystem

    try:
        locks = list(Path(directory).glob("broker-*/data/.lock"))
    except OSError:
        return False  # the directory itself is what is wrong
    for lock in locks:
        try:
            OsFileSystem().lock(str(lock)).release()
        except OSError:
            return True
    return False


def _security(name: str | None, mechanism: str, users: dict[str, str]) -> Security | None:
    from minikafka.testing.security import USERS, Security

    if name is None or not name.upper().startswith("SASL"):
        if users or mechanism != MECHANISMS[0]:
            raise click.UsageError("--user and --mechanism need --security SASL_SSL or SASL_PLAINTEXT")
        return Security.of(name)
    return Security(name.upper(), mechanism, users={**USERS, **users})


def _write_client_files(made: EmbeddedCluster) -> tuple[Path, Path] | None:
    """Client property files of a secured cluster: one for Java clients and these commands, one for librdkafka clients."""
    if made.secured is None:
        return None
    files = {
        "client.properties": made.secured.client_properties(),
        "librdkafka.properties": made.secured.client_config("confluent"),
    }
    paths = []
    for name, properties in files.items():
        path = made.directory / name
        path.touch(mode=0o600)
        # A properties file holds a multi-line certificate on one line.
        path.write_text("".join(f"{key}={value}\n".replace("\n", "\\n", value.count("\n")) for key, value in properties.items()))
        paths.append(path)
    return paths[0], paths[1]


def _usual_if_free(first: int, count: int) -> int:
    """`first` if it and the following `count` - 1 ports are free on this machine, else 0."""
    import socket

    for port in range(first, first + count):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return 0
    return first


def _report_dead_brokers(made: EmbeddedCluster, reported: set[int]) -> None:
    """Report each broker that ended unexpectedly, once, with the last error in its log."""
    from minikafka.cli.last_words import full, last_error
    from minikafka.testing.errors import ClusterError

    for broker in made.brokers:
        if not broker.running and broker.node_id not in reported:
            reported.add(broker.node_id)
            try:
                broker.raise_if_dead()
            except ClusterError as error:
                log = broker.log_dir.parent / "broker.log"
                click.echo(f"{str(error).partition(chr(10))[0]}; its log: {log}", err=True)
                why = last_error(log)
                if why:
                    click.echo(f"  {why}", err=True)
                shortage = full(log.parent)
                if shortage:
                    click.echo(f"  {shortage}", err=True)
                click.echo(f"  minikafka cluster start {broker.node_id}   brings it back{' then' if shortage else ''}", err=True)


def _absolute(directory: str | None) -> Path | None:
    from pathlib import Path

    return None if directory is None else Path(directory).absolute()


def _stored_cluster_id(directory: Path | None) -> str | None:
    """The cluster id of a directory that has been used before."""
    if directory is None:
        return None
    for path in directory.glob("broker-*/data/meta.properties"):
        # The node's start says what is wrong with a damaged file.
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("cluster.id="):
                return line.partition("=")[2]
    return None


def _check_size(directory: Path | None, brokers: int) -> None:
    """Refuse to start a part of a cluster: without the others its controllers have no majority, and partitions no leader."""
    used = [] if directory is None else [path.parts[-3].removeprefix("broker-") for path in directory.glob("broker-*/data/meta.properties")]
    last = max((int(number) for number in used if number.isdecimal()), default=0)
    if last > brokers:
        from minikafka.counted import counted

        why = f"{directory} has the data of {counted(last, 'broker')}: start them with -n {last}, or choose another --directory"
        raise click.BadParameter(why, param_hint="-n")


def _topic(text: str) -> tuple[str, dict[str, Any]]:
    name, *counts = text.split(":")
    if not name or len(counts) > 2 or not all(count.isdigit() and int(count) for count in counts):
        raise click.BadParameter(f"{text!r} is not NAME[:PARTITIONS[:REPLICAS]]", param_hint="--topic")
    return name, dict(zip(("partitions", "replication_factor"), map(int, counts), strict=False))


def _announce(made: Any, seconds: float, *, is_elsewhere: bool, is_kept: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("node", "address", "metrics and page", "pid"):
        table.add_column(title)
    for broker in made.brokers:
        page = f"http://127.0.0.1:{broker.http_port}/ui" if broker.http_port is not None else "-"
        table.add_row(str(broker.node_id), broker.address, page, str(broker.process.pid))
    # The table is for people. The address goes to standard output, for scripts.
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.width = 200
    console.print(table)
    console.print(f"Their logs: {made.directory}/broker-*/broker.log", soft_wrap=True)
    console.print(f"cluster {made.cluster_id} is up after {seconds:.2f} s. Try it:")
    if is_elsewhere:
        last = PORT + len(made.brokers) - 1
        ports = f"port {PORT} is" if last == PORT else f"ports {PORT} to {last} are"
        console.print(f"  # {ports} not free, and commands without an address use localhost:{PORT}, so first run:", soft_wrap=True)
    # List all brokers: the user may kill the first one.
    console.print(f"  export MINIKAFKA_BOOTSTRAP={made.bootstrap_servers}", soft_wrap=True)
    client_files = _write_client_files(made)
    if client_files is not None:
        console.print(f"  export MINIKAFKA_COMMAND_CONFIG={client_files[0]}", soft_wrap=True)
    console.print("  echo hello | minikafka produce greetings")
    console.print("  minikafka consume greetings --from-beginning -n 1")
    victim = min(2, len(made.brokers))
    console.print(f"  minikafka cluster kill {victim}; minikafka cluster status; minikafka cluster start {victim}")
    if client_files is not None:
        console.print(f"Client settings: {client_files[0]} (Java), {client_files[1]} (librdkafka, kcat -F).", soft_wrap=True)
    console.print("Ctrl-C stops it." if is_kept else "Ctrl-C stops it and deletes its data; --directory keeps the data.")
    if not sys.stdout.isatty():
        click.echo(made.bootstrap_servers)
        sys.stdout.flush()
