"""What a group shard asks its host to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from minikafka.core.coordinator.shard import Append
from minikafka.wire.message import Response

#: The opaque handle with which the host finds the waiting request again.
Reply = Any


@dataclass(slots=True)
class Effects:
    """Appends are carried out before answers are sent, so that nothing is answered before it is handed to the log.

    `resolutions`: (whose request it was, group id, patterns): which topics these patterns stand for is to be found out beside the loop.
    """

    appends: list[Append] = field(default_factory=list)
    answers: list[tuple[Reply, Response]] = field(default_factory=list)
    resolutions: list[tuple[Reply, str, frozenset[str]]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.appends or self.answers or self.resolutions)
