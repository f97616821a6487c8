"""Hooks into the brokers: the simulator wraps these calls while a world runs, without changing what they do."""

from __future__ import annotations

import functools
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from minikafka.broker.coordinators.transaction_markers import MarkerSender
from minikafka.broker.front.dispatch import RequestContext
from minikafka.broker.partitions.partition import Partition
from minikafka.broker.quorum import raft_wire
from minikafka.broker.quorum.metadata_log import MetadataHost
from minikafka.broker.quorum.raft_log import MetadataLog
from minikafka.broker.share.dead_letters import DeadLetterQueues
from minikafka.broker.share.fetch import ShareFetchHandlers
from minikafka.core.raft.messages import FetchReply
from minikafka.sim.loop import ProcessLoop
from minikafka.storage.log import Log
from minikafka.storage.log_dir import LogDirectory
from minikafka.storage.watermarks import Watermarks
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minikafka.wire.messages.produce import ProduceRequest
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

if TYPE_CHECKING:
    from minikafka.sim.node import SimNode
    from minikafka.sim.parts import Invariants


_WATCHED = frozenset({ProduceRequest.API_KEY, ConsumerGroupHeartbeatRequest.API_KEY, StreamsGroupHeartbeatRequest.API_KEY})


@contextmanager
def wrapped(owner: type | ModuleType, name: str, around: Callable[..., Any]) -> Iterator[None]:
    """A context in which a call of `owner.name` calls `around(original, self, ...)`."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def replacement(self: Any, *arguments: Any, **named: Any) -> Any:
        return around(original, self, *arguments, **named)

    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def installed(invariants: Invariants) -> Iterator[None]:
    """A context in which `invariants` is notified of high watermarks, truncations, images, votes, recoveries, responses and markers."""
    probes = _Probes(invariants)
    with ExitStack() as stack:
        for owner, name, around in (
            (Log, "__init__", probes.log_made),
            (Watermarks, "move_high_watermark", probes.move_high_watermark),
            (Log, "truncate_to", probes.truncate_to),
            (Partition, "append_run", probes.append_run),
            (MetadataHost, "__init__", probes.metadata_host),
            (MetadataLog, "persist", probes.persist),
            (raft_wire, "response_to_wire", probes.response_to_wire),
            (LogDirectory, "load", probes.load),
            (RequestContext, "respond", probes.respond),
            (MarkerSender, "send", probes.send),
            (ShareFetchHandlers, "take", probes.take),
            (DeadLetterQueues, "_written", probes.written),
        ):
            stack.enter_context(wrapped(owner, name, around))
        yield


class _Probes:
    """The wrappers. Each takes the original function and its arguments, and returns what the original returns."""

    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self._nodes = {node.host: node for node in invariants.world.nodes.values()}
        #: Followers move high watermarks without a method of the log, to save its call.
        self._logs: dict[Watermarks, Log] = {}

    def _here(self) -> SimNode | None:
        """The node whose callback is running."""
        loop = events._get_running_loop()
        if not isinstance(loop, ProcessLoop) or loop.is_dead:
            return None
        return self._nodes.get(loop.name)

    def log_made(self, original: Any, log: Log, *arguments: Any, **named: Any) -> None:
        """Wraps the constructor of `Log`."""
        original(log, *arguments, **named)
        self._logs[log.watermarks] = log

    def move_high_watermark(self, original: Any, watermarks: Watermarks, offset: int) -> Any:
        """Wraps `Watermarks.move_high_watermark`, which every move goes through."""
        before = watermarks.high_watermark
        moved = original(watermarks, offset)
        if moved and (node := self._here()) is not None:
            self._invariants.high_watermark_moved(node, self._logs[watermarks], before)
        return moved

    def truncate_to(self, original: Any, log: Log, offset: int, *arguments: Any) -> Any:
        """Wraps `Log.truncate_to`."""
        if (node := self._here()) is not None:
            self._invariants.truncating(node, log, offset)
        result = original(log, offset, *arguments)
        if node is not None:
            self._invariants.truncated(log)
        return result

    def append_run(self, original: Any, partition: Partition, run: Any, *arguments: Any) -> Any:
        """Wraps `Partition.append_run`."""
        is_appended = original(partition, run, *arguments)
        if is_appended and len(run.batches) > 1:
            self._invariants.appended_together += len(run.batches)
        return is_appended

    def metadata_host(self, original: Any, host: MetadataHost, *arguments: Any, **named: Any) -> None:
        """Wraps the constructor of `MetadataHost`."""
        original(host, *arguments, **named)

        def published(delta: Any, image: Any) -> None:
            if (node := self._here()) is not None:
                self._invariants.image_published(node, image)

        # The first subscriber sees an image before the broker acts on it.
        host.subscribe(published)

    def persist(self, original: Any, log: MetadataLog, state: Any, *arguments: Any) -> Any:
        """Wraps `MetadataLog.persist`."""
        result = original(log, state, *arguments)
        if (node := self._here()) is not None:
            self._invariants.voted(node, state)
        return result

    def response_to_wire(self, original: Any, request: Any, reply: Any, version: int) -> Any:
        """Wraps `raft_wire.response_to_wire`."""
        if isinstance(reply, FetchReply) and (node := self._here()) is not None:
            self._invariants.metadata_fetched(node, reply)
        return original(request, reply, version)

    def load(self, original: Any, directory: LogDirectory, *arguments: Any) -> Any:
        """Wraps `LogDirectory.load`."""
        result = original(directory, *arguments)
        if (node := self._here()) is not None:
            self._invariants.recovered(node, directory)
        return result

    def respond(self, original: Any, context: RequestContext, response: Any) -> Any:
        """Wraps `RequestContext.respond`."""
        if context.api_key in _WATCHED and (node := self._here()) is not None:
            if context.api_key == ProduceRequest.API_KEY:
                self._invariants.acknowledging(node, response, context.client_id or "")
            elif context.api_key == StreamsGroupHeartbeatRequest.API_KEY:
                self._invariants.memberships.streams_answered(node, response)
            else:
                self._invariants.memberships.answered(node, response, context.client_id or "")
        return original(context, response)

    def send(self, original: Any, sender: MarkerSender, markers: Any, *arguments: Any) -> Any:
        """Wraps `MarkerSender.send`."""
        if (node := self._here()) is not None:
            self._invariants.isolation.deciding(node, markers)
        return original(sender, markers, *arguments)

    def take(self, original: Any, handlers: ShareFetchHandlers, fetch: Any, held: Any, *arguments: Any) -> Any:
        """Wraps `ShareFetchHandlers.take`."""
        data, count = original(handlers, fetch, held, *arguments)
        if data is not None and (node := self._here()) is not None:
            self._invariants.shares.acquired(node, held.partition, data.acquired_records or ())
        return data, count

    async def written(self, original: Any, queues: DeadLetterQueues, topic: str, source: int, batch: bytes) -> Any:
        """Wraps `DeadLetterQueues._written`."""
        fault = await original(queues, topic, source, batch)
        if fault is not None:
            self._invariants.shares.letters.unwritten(batch)
        return fault
