"""`minikafka cluster up`: brokers on this machine with one command."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import parse_pairs
from minikafka.cli.reasons import reason

if TYPE_CHECKING:
    from minikafka.testing.embedded import EmbeddedCluster
    from minikafka.testing.security import Security

#: As minikafka.testing.security has them; here so that `--help` imports nothing.
SECURITIES = ("SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
PORT, HTTP_PORT = 9092, 9404
EXIT_NOT_STARTED, EXIT_CONFIGURATION = 1, 2
LOG_END_BYTES = 64 << 10


@click.command("up")
@click.option("-n", "--brokers", type=click.IntRange(1), default=3, show_default=True, help="How many brokers.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False),
    help="Keep the data here for the next time. Without it they are deleted at the end.",
)
@click.option("--topic", "topics", multiple=True, metavar="NAME[:PARTITIONS[:REPLICAS]]", help="Create this topic; may be repeated.")
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="Broker property; may be repeated.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port of the first broker; the others follow. 0: any free ports.  [default: 9092 if free]",
)
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    help="Port of the first broker's /ui and /metrics, likewise.  [default: 9404 if free]",
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
    """Start a cluster on this machine; it ends with this command (Ctrl-C). From another terminal `minikafka cluster kill 2`, `start 2`,
    `cut 3`, `heal` and `status` break it, mend it and look at it."""
    first_port = _usual_if_free(PORT, brokers) if port is None else port
    where = f"localhost:{first_port}" if first_port else "free ports"
    # Said before anything slow is imported.
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
    """Start the process that brokers are forked from: it imports while this one does."""
    from minikafka.testing.processes import Zygote

    Zygote.begin()


def _made(brokers: int, **settings: Any) -> EmbeddedCluster:
    from minikafka.testing.embedded import EmbeddedCluster

    return EmbeddedCluster(brokers, mode="process", cluster_id=_stored_cluster_id(settings["directory"]), **settings)


def _run(make: Callable[[], EmbeddedCluster], first_port: int, directory: str | None, *, is_elsewhere: bool) -> None:
    """Until a signal, or until no broker is left."""
    from minikafka.cli.cluster_control import ControlServer
    from minikafka.testing.errors import ClusterError, WrongConfiguration

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    try:
        with make() as made, ControlServer(made) as control:
            _announce(made, is_elsewhere=is_elsewhere)
            while not ended.wait(0.5):
                _tell_of_deaths(made, control.ended)
            click.echo("stopping", err=True)
    except (ClusterError, OSError) as error:
        click.echo(f"error: {_reason(error, first_port, directory)}", err=True)
        sys.exit(EXIT_CONFIGURATION if isinstance(error, WrongConfiguration) else EXIT_NOT_STARTED)


def _reason(error: Exception, first_port: int, directory: str | None) -> str:
    """What went wrong, and where a cluster runs already that is in the way."""
    import errno

    from minikafka.cli.cluster_control import socket_path

    text = reason(error)
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        if first_port and socket_path(first_port).exists():
            text += f". A cluster of `minikafka cluster up` runs there: `minikafka cluster status -b localhost:{first_port}` shows it"
        text += ". Give --port and --http-port other ones (0: any that are free)"
        text += f" and --directory another one than {directory}, which is in use as long as that cluster runs" if directory else ""
    return text


def _security(name: str | None, mechanism: str, users: dict[str, str]) -> Security | None:
    from minikafka.testing.security import USERS, Security

    if name is None or not name.upper().startswith("SASL"):
        if users or mechanism != MECHANISMS[0]:
            raise click.UsageError("--user and --mechanism need --security SASL_SSL or SASL_PLAINTEXT")
        return Security.of(name)
    return Security(name.upper(), mechanism, users={**USERS, **users})


def _write_client_files(made: EmbeddedCluster) -> tuple[Path, Path] | None:
    """What connects clients of a secured cluster: for Java's clients and these commands, and for librdkafka's."""
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
        # A certificate of several lines is one line of a properties file.
        path.write_text("".join(f"{key}={value}\n".replace("\n", "\\n", value.count("\n")) for key, value in properties.items()))
        paths.append(path)
    return paths[0], paths[1]


def _usual_if_free(first: int, count: int) -> int:
    """The port itself when it and the following ones are free here, else 0."""
    import socket

    for port in range(first, first + count):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return 0
    return first


def _tell_of_deaths(made: EmbeddedCluster, reported: set[int]) -> None:
    """Say it once when a broker ends that nobody asked to end, with the last error of its log."""
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
                click.echo(f"  minikafka cluster start {broker.node_id}   brings it back", err=True)


def last_error(log: Path) -> str:
    """The message of the last error in the end of a broker's log; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - LOG_END_BYTES, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    errors = (line.partition(" ERROR ")[2] for line in reversed(lines) if " ERROR " in line)
    return next(errors, "").partition(": ")[2]


def _absolute(directory: str | None) -> Path | None:
    return None if directory is None else Path(directory).absolute()


def _stored_cluster_id(directory: Path | None) -> str | None:
    """The cluster id of a directory that has been used before."""
    if directory is None:
        return None
    for path in directory.glob("broker-*/data/meta.properties"):
        for line in path.read_text().splitlines():
            if line.startswith("cluster.id="):
                return line.partition("=")[2]
    return None


def _topic(text: str) -> tuple[str, dict[str, Any]]:
    name, *counts = text.split(":")
    if not name or len(counts) > 2 or not all(count.isdigit() and int(count) for count in counts):
        raise click.BadParameter(f"{text!r} is not NAME[:PARTITIONS[:REPLICAS]]", param_hint="--topic")
    return name, dict(zip(("partitions", "replication_factor"), map(int, counts), strict=False))


def _announce(made: Any, *, is_elsewhere: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("node", "address", "metrics and page", "log", "pid"):
        table.add_column(title)
    for broker in made.brokers:
        page = f"http://127.0.0.1:{broker.http_port}/ui" if broker.http_port is not None else "-"
        table.add_row(str(broker.node_id), broker.address, page, str(broker.log_dir.parent / "broker.log"), str(broker.process.pid))
    # The table is for people, the address for scripts that read the standard output.
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.width = 200
    console.print(table)
    console.print(f"cluster {made.cluster_id} is up after {made.started_seconds:.2f} s. To try:")
    if is_elsewhere:
        last = PORT + len(made.brokers) - 1
        ports = f"port {PORT} is" if last == PORT else f"ports {PORT} to {last} are"
        console.print(f"  # {ports} not free, and commands without an address ask localhost:{PORT}. So first:", soft_wrap=True)
    # All of them: the first may be the one that is killed.
    console.print(f"  export MINIKAFKA_BOOTSTRAP={made.bootstrap_servers}", soft_wrap=True)
    client_files = _write_client_files(made)
    if client_files is not None:
        console.print(f"  export MINIKAFKA_COMMAND_CONFIG={client_files[0]}", soft_wrap=True)
    console.print("  echo hello | minikafka produce greetings")
    console.print("  minikafka consume greetings --from-beginning -n 1")
    console.print("  minikafka cluster kill 2; minikafka cluster status; minikafka cluster start 2")
    if client_files is not None:
        console.print(f"How clients connect is in {client_files[0]} (Java), {client_files[1]} (librdkafka, kcat -F).", soft_wrap=True)
    click.echo(made.bootstrap_servers)
    sys.stdout.flush()
