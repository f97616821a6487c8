"""What a group shard asks its host to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minikafka.core.coordinator.shard import Append
from minikafka.core.group.streams.model import InternalTopic
from minikafka.wire.errors import ErrorCode
from minikafka.wire.message import Response
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse

#: The opaque handle with which the host finds the waiting request again.
Reply = Any


#: (topic id, partition) -> what the share coordinator said of it.
StateAnswers = Mapping[tuple[bytes, int], tuple[ErrorCode, "str | None"]]


@dataclass(slots=True)
class StateQuestion:
    """Share coordinators are to give share partitions a state, or to delete it.

    `topics`: partitions by topic id, each with its start offset (-1: as `share.auto.offset.reset` says), which a deletion does not heed.
    `state_epoch`: of the new states; None: delete them. `done(answers, now_ms)` is called once, unless the shard is given up before.
    """

    group_id: str
    topics: Mapping[bytes, Sequence[tuple[int, int]]]
    state_epoch: int | None
    done: Callable[[StateAnswers, int], None]


@dataclass(slots=True)
class Creation:
    """Internal topics of a streams group do not exist: whoever has sent the heartbeat has them made, if he may, or is told why not.

    `answer` is among the answers: it says that they are missing."""

    reply: Reply
    answer: StreamsGroupHeartbeatResponse
    topics: Mapping[str, InternalTopic]


@dataclass(slots=True)
class Effects:
    """Appends are carried out before answers are sent, so that nothing is answered before it is handed to the log.

    `questions` are for share coordinators. `work`: what is done in steps, in a turn of the loop each. `resolutions`: (whose request it was,
    group id, patterns): which topics these patterns stand for is to be found out beside the loop. `creations` come before the answers.
    """

    appends: list[Append] = field(default_factory=list)
    answers: list[tuple[Reply, Response]] = field(default_factory=list)
    resolutions: list[tuple[Reply, str, frozenset[str]]] = field(default_factory=list)
    questions: list[StateQuestion] = field(default_factory=list)
    creations: list[Creation] = field(default_factory=list)
    work: list[Iterator[None]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.appends or self.answers or self.resolutions or self.questions or self.creations or self.work)
