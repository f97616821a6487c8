"""`minikafka start`: run a node until it receives SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from minikafka.addresses import host_port
from minikafka.broker.config.broker_config import BrokerConfig, ConfigurationError, load_properties
from minikafka.broker.config.image_environment import (
    SINGLE_NODE,
    ImageEnvironment,
    data_directory,
    mounted_config,
    old_names,
    own_quorum,
    read_environment,
)
from minikafka.broker.config.login_file import properties_of_login_file
from minikafka.cli import private_directories
from minikafka.cli.first_topics import FirstTopic, create_topics, requested_topics
from minikafka.cli.imports import no_collections
from minikafka.cli.log_format import CONSOLE, log_level, use_json
from minikafka.cli.reasons import reason
from minikafka.cli.stop_signals import stop_signals
from minikafka.net.garbage import GarbagePauses
from minikafka.net.tasks import done_before

if TYPE_CHECKING:
    from minikafka.broker.environment import Environment
    from minikafka.broker.node import Node
    from minikafka.broker.observe.http import HttpServer

EXIT_CONFIGURATION = 2
EXIT_FAILED = 1
BLOCKING_THREADS = 2
logger = logging.getLogger("minikafka.node")


@click.command("start")
@click.argument("config_argument", required=False, metavar="[CONFIG]")
@click.option("--config", "-c", "config_path", help="server.properties file. KAFKA_* variables override or replace it.")
@click.option("--override", multiple=True, metavar="NAME=VALUE", help="Set one property; may be repeated.")
@click.option("--format", "do_format", is_flag=True, help="Format log directories that are not formatted yet; needs --cluster-id.")
@click.option("--cluster-id", envvar="CLUSTER_ID", help="Cluster id for --format: 22 characters, the same for every node.")
@click.option("--container", is_flag=True, help="Use the image's defaults: a mounted file or a single node; data on a volume.")
@click.option("--topic", "topics", multiple=True, metavar="NAME[:PARTITIONS[:REPLICAS]]", help="Create this topic (KAFKA_CREATE_TOPICS).")
@click.option("--log-level", "level", default=None, help="debug, info, warning or error (KAFKA_LOG4J_ROOT_LOGLEVEL).")
@click.option("--traceback", is_flag=True, help="Show tracebacks of errors.")
def start(
    config_argument: str | None,
    config_path: str | None,
    override: tuple[str, ...],
    do_format: bool,
    cluster_id: str | None,
    container: bool,
    topics: tuple[str, ...],
    level: str | None,
    traceback: bool,
) -> None:
    """Run a broker, a controller, or both, as process.roles says. Storage must be formatted (minikafka storage format, or --format)."""
    # Without a handler, process 1 of a container ignores SIGTERM.
    signal.signal(signal.SIGTERM, _leave)
    try:
        image = read_environment(os.environ)
        level_name = level or os.environ.get("KAFKA_LOG4J_ROOT_LOGLEVEL") or ("debug" if image.debug else "info")
        logging.basicConfig(level=log_level(level_name), format=CONSOLE, stream=sys.stdout)
        given = read_configuration(config_path or config_argument, image, override, container=container)
        config = BrokerConfig.from_properties(given)
        first_topics = requested_topics(topics)
    except ConfigurationError as error:
        for problem in error.problems:
            click.echo(f"error: {problem}", err=True)
        sys.exit(EXIT_CONFIGURATION)
    if config.minikafka_log_format == "json":
        use_json(config.node_id)
    for note in image.notes if container else ():
        logger.info("%s", note)
    for warning in config.warnings:
        logger.warning("%s", warning)
    try:
        if container and image.formats:
            format_new_directories(config, image.cluster_id, image)
        elif do_format:
            format_new_directories(config, cluster_id)
        # In a container there are no other users.
        for line in () if container else private_directories.warnings([*config.directories, config.metadata_directory]):
            logger.warning("%s", line)
        run(config, first_topics)
    except Exception as error:
        if traceback:
            raise
        click.echo(f"error: node {config.node_id} cannot run: {_reason(error)}", err=True)
        logger.debug("traceback", exc_info=True)
        _leave_process(EXIT_FAILED)


def _reason(error: Exception) -> str:
    """The error's message, with a hint if a directory is not formatted."""
    from minikafka.storage.errors import NotFormatted

    hint = "; minikafka storage format prepares it, or --format with --cluster-id" if isinstance(error, NotFormatted) else ""
    return f"{reason(error)}{hint}"


def read_configuration(
    path: str | None, image: ImageEnvironment, overrides: tuple[str, ...] = (), *, container: bool = False
) -> dict[str, str]:
    """The properties of the file, the environment and the overrides, each overriding the ones before. Raises ConfigurationError.

    In a container, a mounted file is used if there is one, the default is a single node, and data go to a mounted volume."""
    path = path or (mounted_config(os.path.isfile) if container else None)
    properties = load_properties(path) if path else {}
    properties |= image.properties
    for override in overrides:
        name, separator, value = override.partition("=")
        if not separator:
            raise ConfigurationError([f"--override {override}: must be NAME=VALUE"])
        properties[name.strip()] = value.strip()
    problems = old_names(properties, os.environ)
    if problems:
        raise ConfigurationError(problems)
    if container:
        if path is None and "process.roles" not in properties:
            properties = SINGLE_NODE | properties
        if not {"log.dirs", "log.dir"} & properties.keys():
            properties["log.dirs"] = data_directory(os.path.ismount)
        properties |= own_quorum(properties)
    properties |= properties_of_login_file(os.environ.get("KAFKA_OPTS", ""), properties, _read_text)
    if not properties:
        text = "no configuration: give --config server.properties or set KAFKA_* variables (`minikafka cluster up` needs none)"
        raise ConfigurationError([text])
    return properties


def _read_text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def _leave(*_: Any) -> None:
    """Handle SIGTERM before the node runs, when there is nothing to stop yet."""
    sys.exit(0)


def format_new_directories(config: BrokerConfig, cluster_id: str | None, image: ImageEnvironment | None = None) -> None:
    """Format log directories that are not formatted yet, and leave the others unchanged. Raises FormatError, OSError."""
    from minikafka.broker.quorum.format import FormatError, format_storage
    from minikafka.storage.filesystem import OsFileSystem

    if not cluster_id:
        raise FormatError("--format needs --cluster-id or the variable CLUSTER_ID (minikafka storage random-uuid prints a new id)")
    lines = format_storage(
        OsFileSystem(),
        config,
        cluster_id=cluster_id,
        wall_ms=time.time_ns() // 1_000_000,
        random_bytes=os.urandom,
        standalone=image is not None and config.is_controller and not config.voters and image.initial_controllers is None,
        initial_controllers=image.initial_controllers if image is not None else None,
        ignore_formatted=True,
    )
    for line in lines:
        logger.info("%s", line)


def run(config: BrokerConfig, first_topics: Sequence[FirstTopic] = ()) -> NoReturn:
    """Run the node until a signal stops it, and end the process."""
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        new_loop = uvloop.new_event_loop
    garbage = GarbagePauses()
    # The command's modules leave next to no garbage: the collection before the start looks at what follows alone.
    garbage.keep()
    _import(config)
    # Do not close or drop the loop: both would wait for pending name lookups.
    runner = asyncio.Runner(loop_factory=new_loop)
    _leave_process(runner.run(_run(config, garbage, list(first_topics))))


def _import(config: BrokerConfig) -> None:
    """Import what the node needs before its loop runs: no turn may take so long."""
    from minikafka.broker.early_imports import NEEDED_LATER, OF_PAGE, import_early

    with no_collections():
        import_early(("minikafka.broker.node", *NEEDED_LATER, *(OF_PAGE if config.minikafka_http_port >= 0 else ())))


def _leave_process(status: int) -> NoReturn:
    """End the process at once. A thread can hang for many seconds in a name lookup of a node that is gone, and both the event loop and
    the interpreter would wait for it."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


async def _run(config: BrokerConfig, garbage: GarbagePauses, first_topics: list[FirstTopic]) -> int:
    """Run the node from start to stop. Returns the exit status."""
    from minikafka.broker.node import Node

    executor = ThreadPoolExecutor(BLOCKING_THREADS, thread_name_prefix="blocking")
    node = Node(config, _environment(config, executor))
    stop_requested: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, _request, stop_requested)
    http = await _http(node)
    garbage.start()
    if not await done_before(stop_requested, node.start()):
        return 0
    garbage.keep()
    warning = _announce(node)
    creating = _begin_to_create(node, first_topics)
    ends: list[asyncio.Future[Any]] = [stop_requested, node.failed]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    if node.failed.done():
        logger.error("the node cannot continue: %s", node.failed.result())
    else:
        logger.info("stopping: moving leaderships to other brokers first")
    warning.cancel()
    if creating is not None:
        creating.cancel()
    await node.stop()
    if http is not None:
        await http.stop()
    executor.shutdown(wait=False)
    return EXIT_FAILED if node.failed.done() else 0


def _request(stop: asyncio.Future[None]) -> None:
    if not stop.done():
        stop.set_result(None)


def _environment(config: BrokerConfig, executor: ThreadPoolExecutor) -> Environment:
    """The real environment: sockets, files, clocks, threads and random numbers."""
    from minikafka.broker.environment import Environment
    from minikafka.net import descriptors
    from minikafka.net.clock import SystemClock
    from minikafka.net.loop_watch import LoopWatch
    from minikafka.net.server import SocketNetwork
    from minikafka.storage.filesystem import OsFileSystem

    loop = asyncio.get_running_loop()

    async def run_blocking(function: Any, *arguments: Any) -> Any:
        return await loop.run_in_executor(executor, function, *arguments)

    descriptors.raise_limit()
    loop_watch = LoopWatch(loop)
    loop_watch.start()
    environment = Environment(
        network=SocketNetwork(loop, config.minikafka_tcp_congestion),
        filesystem=OsFileSystem(),
        clock=SystemClock(),
        random=random.SystemRandom(),
        loop=loop,
        run_blocking=run_blocking,
        monotonic_s=time.monotonic,
        loop_watch=loop_watch,
        connections_max=descriptors.connections_max(),
    )
    loop.set_exception_handler(environment.supervisor.on_loop_error)
    return environment


async def _http(node: Node) -> HttpServer | None:
    """The HTTP server of metrics and probes, started before the node is in service. Raises OSError."""
    config = node.config
    if config.minikafka_http_port < 0:
        return None
    from minikafka.broker.observe.http import HttpServer

    http = HttpServer(node)
    await http.start(config.minikafka_http_host, config.minikafka_http_port)
    logger.info("metrics and probes on port %d", http.port)
    return http


def _begin_to_create(node: Any, topics: list[FirstTopic]) -> asyncio.Task[None] | None:
    if not topics or not node.config.is_broker:
        return None
    host, port, _ = node.registered_listeners[node.config.inter_broker_listener]
    return _beside(node, create_topics(host_port(host, port), topics, node.security.inter_broker), "creation of the first topics")


def _announce(node: Any) -> asyncio.Task[None]:
    """Log the address of every listener, so that a wrong advertised address is obvious."""
    from minikafka.cli.listeners import listeners_of, table, warn

    roles = " and ".join(node.config.process_roles)
    logger.info("node %d is in service as %s of cluster %s", node.config.node_id, roles, node.cluster_id)
    listeners = listeners_of(node)
    for line in table(listeners):
        logger.info("%s", line)
    return _beside(node, warn(node, listeners), "the check of advertised addresses")


def _beside(node: Any, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Work that ends alone if it fails."""
    from minikafka.broker.supervise import Ends

    task: asyncio.Task[None] = node.supervisor.start(work, name, ends=Ends("task", logger.error))
    return task
