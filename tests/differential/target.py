"""One of the two brokers, for all sequences that play on it at once: its connections, what they wait for together, what they leave."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterable
from typing import Any, cast

from minikafka.testing.wait import LoadAdjustedDeadline, available_cores
from minikafka.wire.errors import WireError
from minikafka.wire.frame import encode_request
from minikafka.wire.header import decode_response_header
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.delete_groups import DeleteGroupsRequest
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest
from minikafka.wire.messages.describe_configs import DescribeConfigsRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.registry import api

NO_ANSWER = "no answer"
#: Apache Kafka answers the first question about share groups' offsets after half a minute: the topic of their states is made meanwhile.
ANSWER_S, HEARD_S = 60.0, 15.0
#: Pauses between two questions, from the shortest, each twice the one before.
PAUSES_S = 0.002, 0.032
FENCE = "fence"
#: So many topics or groups are deleted with one request.
SWEPT = 60
#: Groups with members cannot be deleted before the members' sessions are over. More are forgotten: the broker keeps them.
GROUPS_KEPT = 100_000
_CORES = available_cores()


class Target:
    """A broker's address, and what its sequences share."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.split(",", maxsplit=1)[0].partition(":")
        self._address = host, int(port)
        self._own = self.connection()
        self._changing = asyncio.Lock()
        self._begun = self._done = 0
        self._topics: list[str] = []
        self._groups: deque[str] = deque(maxlen=GROUPS_KEPT)
        self._sweeping: set[asyncio.Task[None]] = set()

    def connection(self) -> Connection:
        """Another connection."""
        return Connection(*self._address)

    async def prepare(self) -> None:
        """Create the topic of the fence."""
        kind = CreateTopicsRequest.CreatableTopic
        await self._own.ask(CreateTopicsRequest(topics=[kind(name=FENCE, num_partitions=1, replication_factor=1)], timeout_ms=10_000), 7)

    async def changes(self) -> None:
        """Until the broker knows of all changes of metadata made so far. Sequences that wait at once wait for the same fence."""
        wanted = self._begun + 1
        while self._done < wanted:
            async with self._changing:
                if self._done < wanted:
                    self._begun += 1
                    await self._fence(str(1_000_000 + self._begun))
                    self._done = self._begun

    async def _fence(self, value: str) -> None:
        """Metadata are read in their order: what was changed before the fence is known when the fence is."""
        kind = IncrementalAlterConfigsRequest
        change = kind.AlterableConfig(name="retention.ms", config_operation=0, value=value)
        await self._own.ask(kind(resources=[kind.AlterConfigsResource(resource_type=2, resource_name=FENCE, configs=[change])]), 1)
        described = DescribeConfigsRequest.DescribeConfigsResource
        resource = described(resource_type=2, resource_name=FENCE, configuration_keys=["retention.ms"])
        patience = Patience(HEARD_S)
        while True:
            found = await self._own.ask(DescribeConfigsRequest(resources=[resource]), 4)
            if found is not NO_ANSWER and found.results[0].configs and found.results[0].configs[0].value == value:
                return
            if patience.is_over:
                raise TimeoutError("the broker does not hear of changes")
            await patience.pause()

    async def write_an_offset(self) -> None:
        """A group that a refused commit has created can be seen at Apache Kafka when the next record of its partition is written."""
        kind = OffsetCommitRequest.OffsetCommitRequestTopic
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(committed_metadata="")
        async with self._changing:
            await self._own.ask(OffsetCommitRequest(group_id=FENCE, topics=[kind(name=FENCE, partitions=[partition])]), 7)

    def leave(self, topics: Iterable[str], groups: Iterable[str]) -> None:
        """What a sequence has left is deleted with what others have: thousands of topics and groups would slow a broker down."""
        self._topics += topics
        self._groups += groups
        if len(self._topics) >= SWEPT:
            deleted, self._topics = self._topics, []
            kind = DeleteTopicsRequest
            self._sweep(kind(topics=[kind.DeleteTopicState(name=name) for name in deleted], timeout_ms=10_000), 6)
        if len(self._groups) >= SWEPT:
            self._sweep(DeleteGroupsRequest(groups_names=[self._groups.popleft() for _ in range(SWEPT)]), 2)

    def undo(self, requests: Iterable[tuple[Any, int]]) -> None:
        """Send requests that take back what a sequence has changed for the whole cluster."""
        for request, version in requests:
            self._sweep(request, version)

    def _sweep(self, request: Any, version: int) -> None:
        task = asyncio.create_task(self._swept(request, version))
        self._sweeping.add(task)
        task.add_done_callback(self._sweeping.discard)

    async def _swept(self, request: Any, version: int) -> None:
        connection = self.connection()
        answer = await connection.ask(request, version)
        connection.close()
        if isinstance(request, DeleteGroupsRequest) and answer is not NO_ANSWER:
            # 69: there is no such group. Others, with members, are tried again when many more have played.
            self._groups += [one.group_id for one in answer.results if one.error_code not in (0, 69)]

    async def close(self) -> None:
        """When all sequences have been played."""
        await asyncio.gather(*self._sweeping)
        self._own.close()


class Connection(asyncio.Protocol):
    """Asks one question after the other; opens itself again when the broker has closed it."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None

    async def ask(self, request: Any, version: int) -> Any:
        """The answer, or NO_ANSWER."""
        loop = asyncio.get_running_loop()
        try:
            if self._transport is None:
                await loop.create_connection(lambda: self, *self._address)
            assert self._transport is not None
            self._answer = loop.create_future()
            self._transport.writelines(cast(list[bytes], encode_request(request, version, 1, "differential")))
            async with asyncio.timeout(ANSWER_S * _load()):
                frame = memoryview(await self._answer)
            entry = api(request.API_KEY)
            assert entry is not None
            _, position = decode_response_header(frame, request.API_KEY, version, 0)
            return entry.response.decode(version, frame, position)
        except (OSError, EOFError, WireError):
            self.close()
            return NO_ANSWER

    def close(self) -> None:
        """The next question opens it again."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._received.clear()

    def data_received(self, data: bytes) -> None:
        self._received += data
        size = int.from_bytes(self._received[:4], "big")
        if len(self._received) >= 4 + size and self._answer is not None and not self._answer.done():
            self._answer.set_result(bytes(self._received[4 : 4 + size]))
            self._received.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(EOFError("closed"))


class Patience:
    """Pauses that become longer, and whether so many seconds are over; on a busy machine they are longer."""

    def __init__(self, seconds: float) -> None:
        self._end = LoadAdjustedDeadline(seconds, load_factor=_load)
        self._pause_s = PAUSES_S[0]

    @property
    def is_over(self) -> bool:
        return self._end.is_over

    async def pause(self) -> None:
        """A moment, in which the broker reads."""
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSES_S[1])


def _load() -> float:
    return max(os.getloadavg()[0] / _CORES, 1.0)
