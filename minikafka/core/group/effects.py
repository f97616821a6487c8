"""Effects that a group shard asks its host to carry out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from minikafka.core.coordinator.shard import Append
from minikafka.core.group.streams.model import InternalTopic
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ErrorCode
from minikafka.wire.message import Response
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse

#: The opaque handle with which the host finds the waiting request again.
Reply = Any


#: (topic id, partition) -> the share coordinator's error code and message.
StateAnswers = Mapping[tuple[bytes, int], tuple[ErrorCode, "str | None"]]


@dataclass(slots=True)
class StateQuestion:
    """Ask share coordinators to initialize the states of share partitions, or to delete them.

    `topics`: partitions by topic id, each with its start offset (-1: use `share.auto.offset.reset`); a deletion ignores the offsets.
    `state_epoch`: of the new states; None to delete them. `done(answers, now_ms)` is called once, unless the shard is shut down before.
    """

    group_id: str
    topics: Mapping[bytes, Sequence[tuple[int, int]]]
    state_epoch: int | None
    done: Callable[[StateAnswers, int], None]


@dataclass(slots=True)
class Creation:
    """Create missing internal topics of a streams group for the sender of a heartbeat, if it is authorized. Otherwise the host adds the
    reason to `answer`.

    `answer` is also among the effects' answers and says that the topics are missing."""

    reply: Reply
    answer: StreamsGroupHeartbeatResponse
    topics: Mapping[str, InternalTopic]


@dataclass(slots=True)
class Effects:
    """Appends are carried out before answers are sent, so that nothing is answered before it is handed to the log.

    `questions` go to share coordinators. `work`: iterators to run one step per turn of the event loop. `resolutions`: (the request's reply
    handle, group id, patterns): find out, outside the event loop, which topics the patterns match. `creations` come before the answers.
    """

    appends: list[Append] = field(default_factory=list)
    answers: list[tuple[Reply, Response]] = field(default_factory=list)
    resolutions: list[tuple[Reply, str, tuple[str, ...]]] = field(default_factory=list)
    questions: list[StateQuestion] = field(default_factory=list)
    creations: list[Creation] = field(default_factory=list)
    work: list[Iterator[None]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.appends or self.answers or self.resolutions or self.questions or self.creations or self.work)
