"""The control plane of one node without sockets, disk or quorum: real dispatchers, handlers and hosts over a log in memory."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from helpers.golden_logs import ROOT

from minikafka.broker.admin.cluster import ClusterHandlers
from minikafka.broker.admin.config_descriptions import ConfigDescriptions
from minikafka.broker.admin.configs import ConfigHandlers
from minikafka.broker.admin.metadata import MetadataHandlers
from minikafka.broker.admin.topics import TopicHandlers
from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.environment import Environment
from minikafka.broker.front.dispatch import Dispatcher
from minikafka.broker.front.forwarding import Forwarder
from minikafka.broker.quorum.controller_host import ControllerHost
from minikafka.broker.quorum.controller_requests import ControllerHandlers
from minikafka.broker.quorum.metadata_batch import MetadataBatch
from minikafka.broker.quorum.metadata_log import MetadataHost
from minikafka.core.controller.config import SUPPORTED_FEATURES
from minikafka.wire.errors import ErrorCode
from minikafka.wire.frame import encode_request
from minikafka.wire.header import decode_response_header
from minikafka.wire.message import Response
from minikafka.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from minikafka.wire.messages.broker_registration import BrokerRegistrationRequest
from minikafka.wire.records.frame import decode_metadata_record
from minikafka.wire.registry import api

GOLDEN = ROOT.parent / "control"
CLUSTER_ID = "golden-standaloneCCCC"


class FakeClock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def now_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now


class FakeRaft:
    """A quorum of one whose log is a list; commits at once unless `is_holding`."""

    def __init__(self, records: Iterable[Any] = ()) -> None:
        self.records: list[Any] = list(records)
        self.listeners: list[Any] = []
        self.high_watermark = len(self.records)
        self.leader_epoch = 1
        self.leader_id: int | None = None
        self.is_leader = False
        self.is_holding = False
        self.is_in_doubt = False
        self._on_doubt: list[Any] = []
        self._delivered: dict[int, int] = {}

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    def leader_endpoint(self) -> tuple[str, int] | None:
        return None if self.leader_id is None else ("127.0.0.1", 1)

    def subscribe(self, listener: Any) -> None:
        self.listeners.append(listener)
        self._delivered[id(listener)] = 0
        self.deliver()

    def subscribe_doubt(self, callback: Any) -> None:
        self._on_doubt.append(callback)

    def lead(self, node_id: int = 1) -> None:
        self.leader_id, self.is_leader = node_id, True
        self.leader_epoch += 1
        for listener in self.listeners:
            listener.on_leader_change(node_id, self.leader_epoch, True)

    def resign(self, leader_id: int | None = None) -> None:
        """Lose the leadership and all uncommitted records."""
        del self.records[self.high_watermark :]
        self.leader_id, self.is_leader = leader_id, False
        self.leader_epoch += 1
        for listener in self.listeners:
            listener.on_leader_change(leader_id, self.leader_epoch, False)

    def append(self, records: Sequence[Any] | MetadataBatch, *, atomic: bool = True, epoch: int | None = None) -> int:
        assert self.is_leader
        if isinstance(records, MetadataBatch):
            records = records.values
        self.records += [decode_metadata_record(record) if isinstance(record, bytes) else record for record in records]
        if not self.is_holding:
            self.commit()
        return len(self.records) - 1

    def commit(self) -> None:
        self.high_watermark = len(self.records)
        self.deliver()

    def deliver(self) -> None:
        for listener in self.listeners:
            start = self._delivered[id(listener)]
            if start < self.high_watermark:
                self._delivered[id(listener)] = self.high_watermark
                listener.on_commit(start, self.leader_epoch, list(enumerate(self.records))[start : self.high_watermark])
                listener.on_high_watermark(self.high_watermark)


class FakeConnection:
    """Collects answers."""

    def __init__(self) -> None:
        self.peer_host = "127.0.0.1"
        self.principal = "User:ANONYMOUS"
        self.peer_port = 5
        self.closed = False
        self.answers: list[asyncio.Future[bytes]] = []

    def begin(self) -> int:
        self.answers.append(asyncio.get_running_loop().create_future())
        return len(self.answers) - 1

    def finish(self, ticket: int, pieces: list[Any]) -> None:
        self.answers[ticket].set_result(b"".join(bytes(piece) for piece in pieces)[4:])

    def send(self, pieces: list[Any]) -> None:
        raise AssertionError("the asking side is not here")

    def hold(self) -> None:
        """A dispatched frame is the only one."""

    def keep_frame(self) -> None:
        """Do nothing: every frame has bytes of its own."""

    def go_on(self) -> None:
        """Do nothing: no frame was held back."""

    def count_memory(self, ticket: int, size: int) -> None:
        """Do nothing: there is no budget."""

    def close(self, reason: str = "") -> None:
        self.closed = True
        for answer in self.answers:
            if not answer.done():
                answer.set_exception(ConnectionError(reason))


class LocalControllerChannel:
    """A ControllerChannel that hands frames to the controller's dispatcher."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.connection = FakeConnection()

    def subscribe_disturbances(self, on_change: Any, on_loss: Any) -> None:
        """Its connection never ends."""

    async def request(
        self, request: Any, timeout_ms: int = 30_000, *, version: int | None = None, resends_max: int | None = None, again: Any = None
    ) -> Any:
        entry = api(request.API_KEY)
        assert entry is not None
        chosen = entry.max_version if version is None else version
        frame = b"".join(bytes(piece) for piece in encode_request(request, chosen, 7, "test"))[4:]
        answer = await ask(self._dispatcher, "CONTROLLER", frame, self.connection)
        _, position = decode_response_header(answer, entry.key, chosen)
        return entry.response.decode(chosen, answer, position)


async def ask(dispatcher: Dispatcher, listener: str, frame: bytes, connection: FakeConnection | None = None) -> bytes:
    """The answer's bytes to a request's bytes, both without size."""
    used = FakeConnection() if connection is None else connection
    dispatcher.dispatch(used, listener, memoryview(frame))  # type: ignore[arg-type]
    return await used.answers[-1]


class ControlPlane:
    """Node 1 of the golden cluster, broker and active controller; `records` are what its log holds already."""

    def __init__(
        self, records: Iterable[Any] = (), properties: dict[str, str] | None = None, lead: bool = True, clock: Any = None
    ) -> None:
        given = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": "PLAINTEXT://127.0.0.1:21521,CONTROLLER://127.0.0.1:21621",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:21621",
            "log.retention.ms": "-1",
            **(properties or {}),
        }
        self.config = BrokerConfig.from_properties(given)
        self.clock: Any = clock or FakeClock()
        loop = asyncio.get_running_loop()
        self.environment = Environment(
            network=None,  # type: ignore[arg-type]
            filesystem=None,  # type: ignore[arg-type]
            clock=self.clock,
            random=random.Random(5),
            loop=loop,
            run_blocking=None,  # type: ignore[arg-type]
        )
        self.raft = FakeRaft(records)
        self.metadata = MetadataHost(self.raft)  # type: ignore[arg-type]
        self.controller = ControllerHost(
            self.config, self.environment, self.raft, self.metadata, cluster_id=CLUSTER_ID  # type: ignore[arg-type]
        )
        self.controller_dispatcher = Dispatcher("controller", self.clock, self.environment.supervisor)
        ControllerHandlers(self.controller).register(self.controller_dispatcher)
        self.channel = LocalControllerChannel(self.controller_dispatcher)
        supervisor = self.environment.supervisor
        self.forwarder = Forwarder(
            self.channel, self.metadata, self.environment.random, supervisor, self.channel  # type: ignore[arg-type]
        )
        self.dispatcher = Dispatcher("broker", self.clock, self.environment.supervisor)
        for handlers in (
            MetadataHandlers(self.config, self.metadata, self.forwarder, CLUSTER_ID, self.clock, self.environment.supervisor),
            TopicHandlers(self.forwarder),
            ConfigHandlers(self.config, ConfigDescriptions(self.config, self.metadata), self.forwarder),
            ClusterHandlers(self.config, self.metadata, self.forwarder, CLUSTER_ID),
        ):
            handlers.register(self.dispatcher)
        if lead:
            self.raft.lead()

    async def request(self, request: Any, version: int | None = None) -> Any:
        """The broker's response to a client."""
        return await self._request(self.dispatcher, "PLAINTEXT", request, version)

    async def to_controller(self, request: Any, version: int | None = None) -> Any:
        """The controller listener's response."""
        return await self._request(self.controller_dispatcher, "CONTROLLER", request, version)

    async def _request(self, dispatcher: Dispatcher, listener: str, request: Any, version: int | None) -> Any:
        entry = api(request.API_KEY)
        assert entry is not None
        chosen = entry.max_version if version is None else version
        frame = b"".join(bytes(piece) for piece in encode_request(request, chosen, 7, "test"))[4:]
        answer = await ask(dispatcher, listener, frame)
        _, position = decode_response_header(answer, entry.key, chosen)
        return entry.response.decode(chosen, answer, position)


def registration(broker_id: int = 1, incarnation: int = 1) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=bytes((incarnation,)) * 16,
        listeners=[BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="127.0.0.1", port=21520 + broker_id)],
        features=[
            BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        rack=None,
        log_dirs=[bytes(15) + bytes((200 + broker_id,))],
    )


async def join(plane: ControlPlane, broker_id: int = 1) -> int:
    """Register and unfence a broker; its epoch."""
    epoch = (await plane.to_controller(registration(broker_id))).broker_epoch
    await plane.to_controller(BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=epoch))
    return epoch


class Exchange:
    """A request of the golden cluster and Kafka's answer."""

    def __init__(self, line: dict[str, Any]) -> None:
        self.api_key: int = line["api_key"]
        self.version: int = line["api_version"]
        self.on_controller: bool = line["from"].endswith("controller-1")
        self.cluster_3 = "broker-3" in line["from"] or "21511" in line["from"]
        self.request = bytes.fromhex(line["request_hex"])
        self.response = bytes.fromhex(line["response_hex"])
        self.origin: str = line["from"]

    def decode(self, data: bytes) -> Response:
        entry = api(self.api_key)
        assert entry is not None
        _, position = decode_response_header(data, self.api_key, self.version)
        return entry.response.decode(self.version, data, position)


def exchanges(name: str, origin: str = "crafted") -> list[Exchange]:
    """Those of one file of tests/golden/control that came from the hand-made client (or another origin)."""
    path: Path = GOLDEN / f"{name}.jsonl"
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return [Exchange(line) for line in lines if line.get("response_hex") and line["from"].startswith(origin)]


def codes(response: Any) -> list[ErrorCode]:
    """Error codes of a response's topics."""
    return [ErrorCode(topic.error_code) for topic in response.topics]
