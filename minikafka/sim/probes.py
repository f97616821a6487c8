"""Where the simulator looks into the brokers: calls that it wraps while a world runs. Nothing of what they do is changed."""

from __future__ import annotations

import functools
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from minikafka.broker.coordinators.transaction_markers import MarkerSender
from minikafka.broker.front.dispatch import RequestContext
from minikafka.broker.quorum.metadata_log import MetadataHost
from minikafka.broker.quorum.raft_log import MetadataLog
from minikafka.sim.loop import ProcessLoop
from minikafka.storage.log import Log
from minikafka.storage.log_dir import LogDirectory

if TYPE_CHECKING:
    from minikafka.sim.node import SimNode
    from minikafka.sim.parts import Invariants


@contextmanager
def wrapped(owner: type, name: str, around: Callable[..., Any]) -> Iterator[None]:
    """`owner.name` becomes `around(original, self, ...)` within the context."""
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
    """Tell `invariants` of high watermarks, truncations, images, votes, recoveries, answers and markers."""
    nodes = {node.host: node for node in invariants.world.nodes.values()}

    def here() -> SimNode | None:
        loop = events._get_running_loop()
        if not isinstance(loop, ProcessLoop) or loop.is_dead:
            return None
        return nodes.get(loop.name)

    def update_high_watermark(original: Any, log: Log, offset: int) -> Any:
        before = log.high_watermark
        moved = original(log, offset)
        if moved and (node := here()) is not None:
            invariants.high_watermark_moved(node, log, before)
        return moved

    def truncate_to(original: Any, log: Log, offset: int, wall_ms: int = 0) -> Any:
        if (node := here()) is not None:
            invariants.truncating(node, log, offset)
        return original(log, offset, wall_ms)

    def metadata_host(original: Any, host: MetadataHost, *arguments: Any, **named: Any) -> None:
        original(host, *arguments, **named)

        def published(delta: Any, image: Any) -> None:
            if (node := here()) is not None:
                invariants.image_published(node, image)

        # The first subscriber hears of a step before the broker acts on it.
        host.subscribe(published)

    def persist(original: Any, log: MetadataLog, state: Any, *arguments: Any) -> Any:
        result = original(log, state, *arguments)
        if (node := here()) is not None:
            invariants.voted(node, state)
        return result

    def load(original: Any, directory: LogDirectory, *arguments: Any) -> Any:
        result = original(directory, *arguments)
        if (node := here()) is not None:
            invariants.recovered(node, directory)
        return result

    def respond(original: Any, context: RequestContext, response: Any) -> Any:
        if context.api_key == 0 and (node := here()) is not None:
            invariants.acknowledging(node, response, context.client_id or "")
        return original(context, response)

    def send(original: Any, sender: MarkerSender, markers: Any, *arguments: Any) -> Any:
        if (node := here()) is not None:
            invariants.isolation.deciding(node, markers)
        return original(sender, markers, *arguments)

    with ExitStack() as stack:
        for owner, name, around in (
            (Log, "update_high_watermark", update_high_watermark),
            (Log, "truncate_to", truncate_to),
            (MetadataHost, "__init__", metadata_host),
            (MetadataLog, "persist", persist),
            (LogDirectory, "load", load),
            (RequestContext, "respond", respond),
            (MarkerSender, "send", send),
        ):
            stack.enter_context(wrapped(owner, name, around))
        yield
