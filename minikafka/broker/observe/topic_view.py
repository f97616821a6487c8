"""Details of one topic or broker for the page: configurations, and the last records of a partition."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from minikafka.broker.observe import shown_records
from minikafka.broker.observe.shows_records import shows_records
from minikafka.client.errors import BrokerError, ClientError
from minikafka.net.tasks import within
from minikafka.wire.errors import ErrorCode, WireError
from minikafka.wire.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from minikafka.broker.observe.cluster_view import ClusterView
    from minikafka.broker.observe.observed import ObservedNode
    from minikafka.client.maintenance import Maintenance
    from minikafka.wire.messages.fetch import FetchResponse

TOPIC, BROKER = 2, 4
#: Source ids of DescribeConfigs.
SOURCES = {1: "topic", 2: "broker", 3: "cluster default", 4: "static", 5: "default", 6: "logger", 7: "client metrics", 8: "group"}
RECORDS_MAX = 50
#: Bytes fetched at a time. The first batch is always complete, whatever its size.
FETCH_BYTES_MAX = 1 << 20
FETCH_WAIT_MS = 500
#: The last version with topic names instead of ids.
FETCH_VERSION_MAX = 12
ASK_TIMEOUT_S = 4.0


class Refused(Exception):
    """A request is refused, with an HTTP status and a reason."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class TopicView:
    """Sends requests over the page's connections, one at a time."""

    def __init__(self, node: ObservedNode, view: ClusterView) -> None:
        self._node, self._view = node, view
        #: Held during a request: one at a time.
        self._lock = asyncio.Lock()

    async def configs(self, parameters: dict[str, str]) -> dict[str, Any]:
        """Configuration of `topic` or `broker`: name, value (None if it is secret) and source. Raises Refused."""
        topic, broker = parameters.get("topic"), parameters.get("broker")
        if (topic is None) == (broker is None):
            raise Refused("400 Bad Request", "give topic=NAME or broker=ID")
        if topic is not None and topic not in self._node.metadata.image.topics_by_name:
            raise Refused("404 Not Found", f"there is no topic {topic[:249]}")
        if broker is not None and _whole(broker, "broker") not in self._node.metadata.image.brokers:
            raise Refused("404 Not Found", f"there is no broker {broker[:20]}")
        async with self._lock:
            admin = await self._admin()
            request = admin.describe_configs(TOPIC, topic) if topic is not None else admin.describe_configs(BROKER, str(broker))
            entries = await _answered(request)
        rows = [
            {"name": e.name, "value": e.value, "source": SOURCES.get(e.source, str(e.source)), "sensitive": e.is_sensitive}
            for e in sorted(entries, key=lambda e: (e.source, e.name))
        ]
        return {"configs": rows}

    async def records(self, parameters: dict[str, str]) -> dict[str, Any]:
        """The last `count` records of `topic` and `partition` below the high watermark, the newest first. Raises Refused."""
        if not shows_records(self._node):
            raise Refused(
                "403 Forbidden", "records are not shown; minikafka.http.records=true shows them to everyone who can connect to this port"
            )
        topic = self._node.metadata.image.topics_by_name.get(parameters.get("topic", ""))
        index = _whole(parameters.get("partition", "0"), "partition")
        if topic is None or index not in topic.partitions:
            raise Refused("404 Not Found", "there is no such partition")
        count = min(max(_whole(parameters.get("count", "20"), "count"), 1), RECORDS_MAX)
        leader = topic.partitions[index].leader
        if leader < 0:
            raise Refused("503 Service Unavailable", "the partition has no leader")
        async with self._lock:
            admin = await self._admin()
            return await self._last(admin, leader, topic.name, index, count)

    async def _last(self, admin: Maintenance, leader: int, topic: str, index: int, count: int) -> dict[str, Any]:
        """Fetch from `count` offsets before the end, or from a later offset if that exceeds one fetch."""
        bounds = await _answered(admin.list_offsets({(topic, index): "latest"}))
        end = bounds[(topic, index)].offset
        for wanted in (count, max(count // 5, 1), 1):
            begin = max(end - wanted, 0)
            if begin == end:
                return {"topic": topic, "partition": index, "begin": begin, "end": end, "records": []}
            part = await _answered(self._fetched(admin, leader, topic, index, begin))
            if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and part.log_start_offset >= 0:
                begin = part.log_start_offset
                part = await _answered(self._fetched(admin, leader, topic, index, begin)) if begin < end else part
            data = bytes(part.records or b"")
            run = self._node.environment.run_blocking
            try:
                if await run(shown_records.next_offset, data, begin) >= end or wanted == 1:
                    rows = await run(shown_records.last_records, data, begin, end, wanted)
                    return {"topic": topic, "partition": index, "begin": begin, "end": end, "records": rows}
            except WireError as error:
                raise Refused("502 Bad Gateway", f"unreadable answer of broker {leader}: {error}") from error
        raise AssertionError("the last of the three attempts returns")

    @staticmethod
    async def _fetched(admin: Maintenance, leader: int, topic: str, index: int, offset: int) -> FetchResponse.PartitionData:
        part = FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=FETCH_BYTES_MAX)
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS, min_bytes=1, max_bytes=FETCH_BYTES_MAX, session_id=0, session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])],
        )  # fmt: skip
        channel = await admin.cluster.channel_to(leader, "fetch")
        answer: Any = await channel.request(request, channel.version_for(request, FETCH_VERSION_MAX), int(ASK_TIMEOUT_S * 1000))
        found: FetchResponse.PartitionData = answer.responses[0].partitions[0]
        return found

    async def _admin(self) -> Maintenance:
        admin = await self._view.connected()
        if admin is None:
            raise Refused("503 Service Unavailable", "this node cannot connect to the brokers")
        return admin


def _whole(text: str, name: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise Refused("400 Bad Request", f"{name} must be a number")
    return int(text)


async def _answered(request: Any) -> Any:
    try:
        return await within(ASK_TIMEOUT_S, request)
    except BrokerError as error:
        raise Refused("502 Bad Gateway", str(error)) from error
    except (ClientError, OSError, TimeoutError, WireError) as error:
        raise Refused("503 Service Unavailable", f"no answer: {error}") from error
