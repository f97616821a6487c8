"""Embedded clusters: real brokers on free ports of this machine, for the duration of a test.

    with EmbeddedCluster(brokers=3, topics={"orders": {"partitions": 6}}) as cluster:
        producer = confluent_kafka.Producer(cluster.client_config("confluent"))
        cluster.broker(cluster.leader("orders", 0)).kill()
        ...
        cluster.audit()

There are two modes. "thread": each broker is a thread of this process with its own event loop. That is the fastest, and can be debugged.
"process": each broker is a process, and `kill` is kill -9. In both modes the brokers end with the test process, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from minikafka.testing import inspection
from minikafka.testing.admin_thread import AdminThread
from minikafka.testing.broker_handle import START_TIMEOUT_S, WAIT_TIMEOUT_S, BrokerHandle, Fault
from minikafka.testing.directories import check_directory
from minikafka.testing.errors import ClusterError
from minikafka.testing.faults import FaultRule
from minikafka.testing.first_topics import create_first
from minikafka.testing.layout import ClusterLayout
from minikafka.testing.leftovers import TemporaryDirectory
from minikafka.testing.logs import ThreadLogs, tail
from minikafka.testing.processes import ProcessHost
from minikafka.testing.security import SecuredCluster, Security
from minikafka.testing.wait import LoadAdjustedDeadline, wait_until

if TYPE_CHECKING:
    from minikafka.security.client import ClientSecurity
    from minikafka.testing.threads import ThreadHost

Mode = Literal["thread", "process"]
CONTROLLERS_DEFAULT_MAX = 3
#: How often a wait for a broker's start checks its deadline.
START_POLL_S = 0.25
_NUMBERS = itertools.count(1)

__all__ = ["BrokerHandle", "ClusterError", "EmbeddedBroker", "EmbeddedCluster", "Fault", "Security"]


def _thread_host() -> ThreadHost:
    # Imported late: it imports the whole broker, which process mode does not need here.
    from minikafka.testing.threads import ThreadHost

    return ThreadHost()


def _controllers_of(brokers: int) -> int:
    return CONTROLLERS_DEFAULT_MAX if brokers >= CONTROLLERS_DEFAULT_MAX else 1


def _check(mode: str, brokers: int, log_level: str) -> None:
    if mode not in ("thread", "process"):
        raise ValueError(f"mode={mode}: must be thread or process")
    if brokers < 1:
        raise ValueError(f"brokers={brokers}: must be at least 1")
    if log_level.upper() not in logging.getLevelNamesMapping():
        raise ValueError(f"log_level={log_level}: must be DEBUG, INFO, WARNING or ERROR")


class EmbeddedCluster:
    """A cluster for a test; a context manager, with `with` and with `async with`.

    Methods block; in a coroutine use `cluster.aio`, which has the same methods as coroutines. Node ids are 1 to `brokers`.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        topics: Mapping[str, Mapping[str, Any] | int] | Iterable[str] = (),
        config: Mapping[str, Any] | None = None,
        mode: Mode = "thread",
        controllers: int | None = None,
        racks: Mapping[int, str] | None = None,
        directory: Path | str | None = None,
        cluster_id: str | None = None,
        log_level: str = "INFO",
        start_timeout_s: float = START_TIMEOUT_S,
        first_port: int = 0,
        first_http_port: int | None = None,
        security: Security | str | None = None,
    ) -> None:
        """`topics`: name -> number of partitions, or a mapping with partitions, replication_factor and configs. `config`: broker
        properties for every node; they override the short timeouts of an embedded cluster. The first `controllers` brokers (default 3,
        or 1 with fewer than 3 brokers) are controllers, too. `directory`: kept, for later clusters with the same `cluster_id`; None = a
        temporary one. `first_port`: the brokers listen on this and the following ports, 0 = any free ones. `first_http_port`:
        likewise, None = no HTTP. `security`: "ssl", "mtls", "sasl_plaintext", "sasl_ssl" or a Security, for all listeners."""
        _check(mode, brokers, log_level)
        self.mode: Mode = mode
        self.log_level = log_level.upper()
        self._size = brokers
        self._controllers = _controllers_of(brokers) if controllers is None else min(controllers, brokers)
        self._topics = _topic_specs(topics)
        self._config = {name: _text(value) for name, value in (config or {}).items()}
        self._racks = dict(racks or {})
        self._given_directory = None if directory is None else Path(directory)
        self._cluster_id = cluster_id
        self._start_timeout_s = start_timeout_s
        self._first_ports = (first_port, first_http_port)
        self._security = Security.of(security)
        #: Certificates and users; None without `security`, and before the start.
        self.secured: SecuredCluster | None = None
        #: How this process connects; None without `security`, and before the start.
        self.client_security: ClientSecurity | None = None
        #: This and the following fields are set while the cluster is started.
        self._layout: ClusterLayout | None = None
        self._host: ThreadHost | ProcessHost | None = None
        self._logs: ThreadLogs | None = None
        self._admin: AdminThread | None = None
        self._brokers: dict[int, BrokerHandle] = {}
        self._temporary: TemporaryDirectory | None = None
        self.started_seconds = 0.0
        self.aio = _Awaitable(self)

    # -- life ------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self.stop)

    def start(self) -> None:
        """Start and wait until every broker answers, groups have a coordinator and the topics have leaders. Raises ClusterError."""
        if self._layout is not None:
            raise ClusterError("the cluster is already started")
        began = time.monotonic()
        # In process mode the parent of the brokers imports its modules while this process prepares the directories.
        host = self._host = ProcessHost(self.log_level) if self.mode == "process" else _thread_host()
        try:
            self._prepare(host)
            started = {broker.node_id: broker.process.start() for broker in self._brokers.values()}
            for node_id, future in started.items():
                self.await_start(node_id, future)
            self.wait_ready(timeout_s=self._start_timeout_s)
            # A reused directory may already contain the topics.
            existing = self.topics() if self._topics and self._given_directory is not None else []
            for name, spec in self._topics.items():
                if name not in existing:
                    create_first(self, name, spec, self._start_timeout_s)
        except BaseException:
            self.stop(keep_directory=False)
            raise
        self.started_seconds = time.monotonic() - began

    def _prepare(self, host: ThreadHost | ProcessHost) -> None:
        directory = self._given_directory
        if directory is None:
            # The nursery removes it once it has killed the brokers.
            self._temporary = TemporaryDirectory("minikafka-", watched=not isinstance(host, ProcessHost))
            directory = self._temporary.path
            if isinstance(host, ProcessHost):
                host.own(directory)
        check_directory(directory, is_temporary=self._temporary is not None)
        if self._security is not None:
            from minikafka.security.client import ClientSecurity

            self.secured = SecuredCluster(self._security, directory)
            self.client_security = ClientSecurity.from_properties(self.secured.client_properties())
        layout = self._layout = ClusterLayout(
            directory,
            self._size,
            self._controllers,
            self._config,
            self._racks,
            self._cluster_id,
            first_port=self._first_ports[0],
            first_http_port=self._first_ports[1],
            secured=self.secured,
        )
        tag = f"minikafka-{next(_NUMBERS)}"
        for node in layout.nodes.values():
            layout.format(node)
            process = host.node(node) if isinstance(host, ProcessHost) else host.node(node, tag)
            self._brokers[node.node_id] = BrokerHandle(self, node, process)
        if not isinstance(host, ProcessHost):
            self._logs = ThreadLogs(tag, {n.node_id: n.directory / "broker.log" for n in layout.nodes.values()}, self.log_level)

    def await_start(self, node_id: int, future: Any) -> None:
        """Wait until a broker has started; `future` is that of its process. Raises ClusterError."""
        deadline = LoadAdjustedDeadline(self._start_timeout_s)
        with contextlib.suppress(Exception):  # told below
            while not future.done():
                with contextlib.suppress(TimeoutError):
                    future.result(START_POLL_S)
                if deadline.is_over and not future.done():
                    break
        if not future.done():
            raise ClusterError(f"{deadline} for broker {node_id} to start\n{self.logs()}")
        try:
            future.result()
        except Exception as error:
            raise ClusterError(f"broker {node_id} cannot start: {error or type(error).__name__}") from error

    def stop(self, *, keep_directory: bool = False) -> None:
        """Stop every broker and remove the directory if it is a temporary one. Safe to call again."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
        brokers = list(self._brokers.values())
        host, self._host = self._host, None
        try:
            if host is not None:
                self._stop_brokers(brokers)
        finally:
            if self._logs is not None:
                self._logs.close()
                self._logs = None
            if host is not None:
                host.close()
            layout, self._layout = self._layout, None
            self._brokers = {}
            if layout is not None:
                layout.release()
            temporary, self._temporary = self._temporary, None
            if temporary is not None:
                temporary.keep() if keep_directory else temporary.remove()

    close = stop

    def _stop_brokers(self, brokers: list[BrokerHandle]) -> None:
        """Kill the brokers if their directory is temporary. Otherwise shut them down, those that are not controllers first, because a
        controlled shutdown needs the controller."""
        for is_controller in (False, True):
            group = [b for b in brokers if b.is_controller == is_controller and b.running]
            if self._given_directory is None:
                for broker in group:
                    broker.process.kill()
                continue
            for broker in group:
                broker.process.request_stop()
            for broker in group:
                try:
                    broker.process.terminate()
                except ClusterError:
                    broker.process.kill()

    # -- addresses -------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """The directory that contains the brokers' directories."""
        return self.layout.directory

    @property
    def cluster_id(self) -> str:
        """The cluster id, 22 characters."""
        return self.layout.cluster_id

    @property
    def brokers(self) -> list[BrokerHandle]:
        """All brokers, including dead ones, sorted by node id."""
        return list(self._brokers.values())

    def broker(self, node_id: int) -> BrokerHandle:
        """A broker by its node id. Raises ClusterError."""
        found = self._brokers.get(node_id)
        if found is None:
            raise ClusterError(f"there is no broker {node_id}; there are {', '.join(map(str, self._brokers)) or 'none: start the cluster'}")
        return found

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker, separated by commas."""
        return ",".join(node.address for node in self.layout.nodes.values())

    def client_config(self, client: str = "confluent", **more: Any) -> dict[str, Any]:
        """Settings that connect a client: "confluent", "aiokafka", "kafka-python", "java", "minikafka" or "spark"; `more` is added. With
        `security` they log in as admin; for other users take `cluster.secured.client_config(client, user)`."""
        secured = {} if self.secured is None else self.secured.client_config(client)
        return inspection.client_config(self.bootstrap_servers, client, {**secured, **more})

    @property
    def layout(self) -> ClusterLayout:
        """Directories, ports and properties of the nodes. Raises ClusterError before the start."""
        if self._layout is None:
            raise ClusterError("the cluster is not running: use it in a with statement or call start()")
        return self._layout

    # -- topics ----------------------------------------------------------------------------------------------------

    @property
    def admin(self) -> AdminThread:
        """Calls `minikafka.client.Admin` without asyncio: `cluster.admin.call(lambda admin: admin.list_groups())`."""
        if self._admin is None:
            self._admin = AdminThread(self.bootstrap_servers, None if self.secured is None else self.secured.client_properties())
        return self._admin

    def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int | None = None, configs: Mapping[str, Any] | None = None
    ) -> None:
        """Create a topic and wait until it has leaders and all replicas are in sync. Raises ClusterError, BrokerError."""
        factor = replication_factor if replication_factor is not None else -1
        texts = {key: _text(value) for key, value in (configs or {}).items()}
        self.admin.call(lambda admin: admin.create_topic(name, partitions=partitions, replication_factor=factor, configs=texts))
        self.wait_healthy([name])

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until no running broker lists it any more."""
        self.admin.call(lambda admin: admin.delete_topic(name))
        wait_until(
            lambda: all(inspection.topic_of(b.address, name, self.client_security) is None for b in self._running_brokers()),
            f"topic {name} to be gone",
            WAIT_TIMEOUT_S,
        )

    def topics(self) -> list[str]:
        """Names of the topics that are not internal, sorted."""
        names: list[str] = self.admin.call(lambda admin: admin.list_topics(with_internal=False))
        return names

    # -- state -----------------------------------------------------------------------------------------------------

    def _running_brokers(self) -> list[BrokerHandle]:
        running = [broker for broker in self._brokers.values() if broker.running]
        if not running:
            raise ClusterError("no broker is running")
        # A signal may have stopped all of them for a moment, as under a quota of processor time: then they answer a little later.
        return [broker for broker in running if not broker.paused] or running

    def partition(self, topic: str, partition: int) -> inspection.PartitionState:
        """Leader, epoch, replicas and in-sync replicas, from the running broker with the newest metadata. Raises ClusterError."""
        newest, found = -1, None
        for broker in self._running_brokers():
            answer = broker.ask("partition", topic=topic, partition=partition)
            if answer["offset"] > newest:
                newest, found = answer["offset"], answer["partition"]
        if found is None:
            raise ClusterError(f"there is no partition {topic}-{partition}")
        return inspection.PartitionState(topic, partition, **found)

    def leader(self, topic: str, partition: int) -> int:
        """Node id of the leader, or -1."""
        return self.partition(topic, partition).leader

    def isr(self, topic: str, partition: int) -> list[int]:
        """Node ids of the in-sync replicas, sorted."""
        return sorted(self.partition(topic, partition).isr)

    @property
    def controller(self) -> int:
        """Node id of the active controller, or -1."""
        found = [broker.ask("quorum") for broker in self._running_brokers()]
        return int(max(found, key=lambda quorum: quorum["epoch"])["leader"])

    def replicas(self, topic: str, partition: int) -> dict[int, dict[str, Any]]:
        """node id -> role, leader_epoch, log_start_offset, high_watermark and log_end_offset, for every running replica."""
        found = {}
        for broker in self._running_brokers():
            for row in broker.ask("replicas"):
                if row["topic"] == topic and row["partition"] == partition:
                    found[broker.node_id] = row
        return found

    def metrics(self, node_id: int) -> dict[str, float]:
        """A broker's metrics: name (with {labels} if any) -> value."""
        return inspection.parse_metrics(self.broker(node_id).ask("metrics"))

    def describe(self) -> str:
        """The state of the cluster as readable text: brokers, leaders, in-sync sets, each replica's offsets."""
        return inspection.describe(self)

    def logs(self, lines_max: int = 15) -> str:
        """The end of every broker's log."""
        layout = self._layout
        if layout is None:
            return ""
        return "\n".join(tail(f"broker {n.node_id}", n.directory / "broker.log", lines_max) for n in layout.nodes.values())

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], object], what: str = "the condition", timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Poll until `condition()` is true; connection errors count as not yet. Raises ClusterError with the cluster's state."""
        wait_until(condition, what, timeout_s, lambda: f"{self.describe()}\n{self.logs()}")

    def wait_ready(self, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until all running brokers list each other and a group's coordinator can be found."""
        expected = {broker.node_id for broker in self._running_brokers()}

        def ready() -> bool:
            for broker in self._running_brokers():
                broker.raise_if_dead()
                if inspection.brokers_of(broker.address, self.client_security) != expected:
                    return False
            return all(inspection.has_coordinator(broker.address, self.client_security) for broker in self._running_brokers())

        self.wait_until(ready, f"brokers {sorted(expected)} to be ready", timeout_s)

    def wait_leader(self, topic: str, partition: int, *, node_id: int | None = None, timeout_s: float = WAIT_TIMEOUT_S) -> int:
        """Wait until the partition has a running leader (this one, if given). Returns its node id."""
        found = -1

        def led() -> bool:
            nonlocal found
            found = self.leader(topic, partition)
            return found == node_id if node_id is not None else found >= 0 and self.broker(found).running

        self.wait_until(led, f"a leader of {topic}-{partition}" if node_id is None else f"{node_id} to lead {topic}-{partition}", timeout_s)
        return found

    def wait_isr(
        self,
        topic: str,
        partition: int,
        *,
        size: int | None = None,
        members: Iterable[int] | None = None,
        timeout_s: float = WAIT_TIMEOUT_S,
    ) -> None:
        """Wait until the in-sync set has this size, or these members, or all replicas if neither is given."""
        expected = None if members is None else sorted(members)

        def reached() -> bool:
            state = self.partition(topic, partition)
            if expected is not None:
                return sorted(state.isr) == expected
            return len(state.isr) == (len(state.replicas) if size is None else size)

        what = f"members {expected}" if expected is not None else f"{'every replica' if size is None else size} in sync"
        self.wait_until(reached, f"{topic}-{partition}: {what}", timeout_s)

    def wait_healthy(self, topics: Iterable[str] | None = None, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until every partition (of these topics) has a leader and all its replicas in sync, on every running broker."""
        names = None if topics is None else list(topics)

        def healthy() -> bool:
            return all(inspection.is_healthy(broker.address, names, self.client_security) for broker in self._running_brokers())

        self.wait_until(healthy, "every partition to have a leader and be in sync", timeout_s)

    # -- changes and faults ----------------------------------------------------------------------------------------

    def transfer_leadership(self, topic: str, partition: int, to: int, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Make a replica the preferred leader and elect it. Returns when it leads. Raises ClusterError, BrokerError."""
        state = self.partition(topic, partition)
        if to not in state.replicas:
            raise ClusterError(f"broker {to} holds no replica of {topic}-{partition} (replicas: {state.replicas})")
        if state.leader == to:
            return
        replicas = [to, *(node_id for node_id in state.replicas if node_id != to)]
        key = (topic, partition)
        self.admin.call(lambda admin: admin.alter_reassignments({key: replicas}))

        def reordered() -> bool:
            return self.partition(topic, partition).replicas[0] == to

        self.wait_until(reordered, f"{to} to be the preferred leader of {topic}-{partition}", timeout_s)

        def elected() -> bool:
            self.admin.call(lambda admin: admin.elect_leaders([key]))
            return self.leader(topic, partition) == to

        self.wait_until(elected, f"{to} to lead {topic}-{partition}", timeout_s)

    def partition_network(self, *sides: Iterable[int]) -> None:
        """Cut the links between brokers of different sides; the brokers not named form one more side. Clients still reach all brokers."""
        groups = [set(side) for side in sides]
        groups.append(set(self._brokers).difference(*groups))
        for broker in self._running_brokers():
            own = next(side for side in groups if broker.node_id in side)
            broker.ask("cut", ports=[port for other in self._brokers.values() if other.node_id not in own for port in other.ports])

    def heal(self) -> None:
        """Undo `partition_network` and `delay`."""
        for broker in self._running_brokers():
            broker.ask("cut", ports=[])
            broker.ask("delay", ports=[port for other in self._brokers.values() for port in other.ports], delay_ms=0)

    def delay(self, node_id: int, ms: int) -> None:
        """Delay the requests of other brokers to this broker by `ms`."""
        ports = list(self.broker(node_id).ports)
        for broker in self._running_brokers():
            broker.ask("delay", ports=ports, delay_ms=ms)

    def fault(
        self,
        api: str = "",
        *,
        error: str | None = None,
        topic: str = "",
        partition: int = -1,
        client_id: str = "",
        count: int = 1,
        after_work: bool = False,
        delay_ms: int = 0,
        action: str | None = None,
        brokers: Iterable[int] | None = None,
    ) -> Fault:
        """Inject a fault: answer matching requests with the `error` of this name, or `delay_ms` late, or with `action` "drop" (no
        response) or "disconnect".

        An empty field, or partition -1, matches all requests except ApiVersions and those between nodes. With `after_work`, the broker
        carries out the request first. `count`: how often per broker, 0 = until removed."""
        chosen = action or ("error" if error else "none")
        rule = FaultRule(api, topic, partition, client_id, chosen, error or "", delay_ms, after_work, count)
        rule.check()
        targets = [self.broker(n) for n in brokers] if brokers is not None else self._running_brokers()
        return Fault([(broker, broker.ask("fault_add", rule=rule.as_dict())) for broker in targets])

    def clear_faults(self) -> None:
        """Remove every fault."""
        for broker in self._running_brokers():
            broker.ask("fault_clear")

    def repair(self) -> None:
        """Undo what a test has broken: resume paused brokers, start dead ones, heal links, remove faults. Returns when the cluster is
        healthy again."""
        broken = [broker for broker in self._brokers.values() if not broker.running or broker.paused]
        for broker in broken:
            if broker.paused:
                broker.resume()
            else:
                broker.process.start().result(self._start_timeout_s)
        self.heal()
        self.clear_faults()
        if broken:
            self.wait_ready()
            self.wait_healthy()

    def drop_acks(self, node_id: int, count: int = 1) -> Fault:
        """Let a broker append produced records but never acknowledge them."""
        return self.fault("Produce", action="drop", after_work=True, count=count, brokers=[node_id])

    def audit(self, *, raise_on_mismatch: bool = True, topics: Iterable[str] = ()) -> Any:
        """Compare the logs of all brokers, batch by batch with recomputed checksums. Returns a `minikafka.spark.AuditResult`.

        Raises ClusterError if replicas differ or are corrupt, or if something could not be compared. For a cluster without records it does
        not raise, and `result.outcome` is INCOMPLETE."""
        for broker in self._brokers.values():
            if broker.running and not broker.paused:
                broker.ask("flush")
        return inspection.audit(self, list(topics), raise_on_mismatch=raise_on_mismatch)


class EmbeddedBroker(EmbeddedCluster):
    """A cluster of one broker."""

    def __init__(self, **options: Any) -> None:
        super().__init__(1, **options)

    @property
    def port(self) -> int:
        """The broker's port."""
        return self.broker(1).port


class _Awaitable:
    """The methods of a cluster as coroutines: they run in a thread and do not block the event loop."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._cluster, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            return await asyncio.to_thread(method, *arguments, **options)

        return call


def _topic_specs(topics: Mapping[str, Mapping[str, Any] | int] | Iterable[str]) -> dict[str, dict[str, Any]]:
    if not isinstance(topics, Mapping):
        return {name: {} for name in topics}
    return {name: {"partitions": spec} if isinstance(spec, int) else dict(spec) for name, spec in topics.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
