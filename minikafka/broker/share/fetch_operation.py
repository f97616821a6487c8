"""One ShareFetch from its request to its response (DelayedShareFetch of Apache Kafka 4.3): it waits until a share partition has something
to deliver, and until its acknowledgements are written.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol

from minikafka.broker.partitions.fetch_steps import FetchInSteps, FetchTurns, Steps, StepsOf
from minikafka.broker.share.fetch_read import end_offset
from minikafka.core.share.sessions import Partition, ShareSession
from minikafka.core.share.state import SharePartitionKey
from minikafka.storage.cold_reads import Look
from minikafka.storage.errors import StorageError
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

if TYPE_CHECKING:
    from minikafka.broker.front.dispatch import RequestContext
    from minikafka.broker.share.leader import HeldSharePartition, ShareLeader
    from minikafka.broker.share.settings import ShareGroupSettings
    from minikafka.core.purgatory import Purgatory

PartitionData = ShareFetchResponse.PartitionData
#: The results of acknowledgements, by partition.
Results = dict[Partition, tuple[ErrorCode, "str | None"]]
#: The budget of a step, and the costs of its actions: acknowledge records of a partition, find a partition, check it for records, try to
#: deliver records of it, watch it. The unit is about 5 µs.
STEP_COST = 1_024
ACKNOWLEDGE_COST, FIND_COST, LOOK_COST, TAKE_COST, WATCH_COST = 32, 32, 1, 16, 1


class ShareFetchHost(Protocol):
    """The part of the broker that a fetch uses."""

    leader: ShareLeader
    settings: ShareGroupSettings
    turns: FetchTurns
    fetch_bytes_max: int

    def fault_of(self, context: RequestContext, partition: Partition) -> ErrorCode | None:
        """Why a partition must not be read; None if it may be."""

    def take(
        self, fetch: ShareFetchOperation, held: HeldSharePartition, left: int, bytes_max: int, look: Look
    ) -> tuple[PartitionData | None, int]:
        """One partition's data, with at most `left` records, and the number of records; None if there is nothing to report. Raises
        NotInMemory, with nothing changed that another call would change."""

    def respond(self, fetch: ShareFetchOperation, response: ShareFetchResponse, acknowledged: Results) -> None:
        """Answer."""

    def park(self, fetch: ShareFetchOperation) -> Purgatory:
        """Keep the fetch until its max_wait_ms have passed. Returns where it may watch keys."""


class Pace:
    """Counts the costs of actions. A step is over when its budget is spent."""

    __slots__ = ("_left", "steps")

    def __init__(self) -> None:
        self._left = STEP_COST
        self.steps = 1

    def is_over(self, cost: int) -> bool:
        """Count an action. Returns whether the step is over."""
        self._left -= cost
        if self._left > 0:
            return False
        self._left = STEP_COST
        self.steps += 1
        return True


class ShareFetchOperation(FetchInSteps):
    """One fetch. `is_done`: nothing is waited for any more but the acknowledgements."""

    __slots__ = ("_acknowledged", "_doubted", "_errors", "_held", "_host", "_pace", "_response", "request", "session")

    def __init__(self, host: ShareFetchHost, context: RequestContext, request: ShareFetchRequest, session: ShareSession) -> None:
        super().__init__(context, host.turns)
        self._host = host
        self.request = request
        self.session = session
        self._held: dict[Partition, HeldSharePartition] = {}
        self._errors: dict[Partition, ErrorCode] = {}
        self._doubted: list[HeldSharePartition] = []
        self._acknowledged: Results | None = None
        self._response: ShareFetchResponse | None = None
        self._pace = Pace()

    def start(self, steps: Steps) -> None:
        """Take the first step now, and any others in later turns."""
        self._pace = Pace()
        super().start(steps)

    def abandon(self) -> None:
        """Drop the fetch and what it refers to."""
        self.is_done = True
        self._held, self._errors = {}, {}

    def serving(self, acknowledging: Iterator[None], *, reads: bool) -> Steps:
        """Serve the request until it is answered or parked. `acknowledging` yields after each partition; `reads`: records are fetched."""
        for _ in acknowledging:
            if self._pace.is_over(ACKNOWLEDGE_COST):
                yield None
        if reads:
            yield from self._finding()
            self._host.leader.verify(self.session, self._doubted)
        if not self._held or self.request.max_wait_ms <= 0 or (yield from self.looking()):
            yield from self.answering()
        else:
            yield from self._parking()
            # Partitions may have changed since they were checked in an earlier turn.
            self._is_woken |= self._pace.steps > 1
            yield from self.until_nothing_happens()

    def _finding(self) -> Steps:
        """Find the share partitions of the session. Each request starts with another one, so that all get their turn."""
        partitions = list(self.session.partitions)
        turn = self.request.share_session_epoch % len(partitions) if partitions else 0
        for partition in partitions[turn:] + partitions[:turn]:
            self._find(partition)
            if self._pace.is_over(FIND_COST):
                yield None
                if not self._host.leader.sessions.is_current(self.session):
                    return

    def _find(self, partition: Partition) -> None:
        fault = self._host.fault_of(self.context, partition)
        if fault is not None:
            self._errors[partition] = fault
            return
        key, unverified = SharePartitionKey(self.session.group_id, *partition), self.session.unverified
        is_known = self._host.leader.is_known(key)
        try:
            held = self._held[partition] = self._host.leader.get(key)
        except ApiError as error:
            self._errors[partition] = error.code
            return
        if unverified.get(partition) is False:
            if is_known:
                unverified[partition] = True
                self._doubted.append(held)
            else:
                del unverified[partition]

    def _parking(self) -> Steps:
        purgatory = self._host.park(self)
        for held in list(self._held.values()):
            keys: list[Hashable] = [held.wait_key, held.partition.key]
            purgatory.watch(self, keys)
            if self._pace.is_over(WATCH_COST):
                yield None

    def looking(self) -> StepsOf[bool]:
        """Whether to answer now."""
        gathered = 0
        for held in list(self._held.values()):
            found = self._change_of(held)
            if found is None:
                found = yield from self.look_up(partial(self._gathered_from, held))
            if found < 0:
                return True
            gathered += found
            if self._pace.is_over(LOOK_COST):
                yield None
        return gathered >= max(self.request.min_bytes, 1)

    def _end_of(self, held: HeldSharePartition) -> int:
        return end_offset(held.partition, is_read_committed=self._host.settings.rules(self.session.group_id).is_read_committed)

    def _change_of(self, held: HeldSharePartition) -> int | None:
        """0 if there is nothing to deliver, -1 if what there is, or a change of the partition, is reason enough to answer; None if it must
        be looked at."""
        host = self._host
        if not host.leader.is_held(held):
            return -1
        if held.core is None or not held.core.can_acquire or held.key[1:] in self.session.unverified:
            return 0
        offset, log = held.core.fetch_offset, held.partition.log
        if log.failure is not None or offset < log.log_start_offset:
            return -1
        if offset >= self._end_of(held):
            return 0
        return -1 if self.request.min_bytes <= 1 or offset < held.core.next_offset else None

    def _gathered_from(self, held: HeldSharePartition, look: Look) -> int:
        """The bytes available now; -1 if they are reason enough to answer."""
        log = held.partition.log
        if held.core is None:
            return -1
        try:
            with look:
                start, stop = log.offset_position(held.core.fetch_offset), log.offset_position(self._end_of(held))
        except (ApiError, StorageError):
            return -1
        if start.segment_base_offset != stop.segment_base_offset:
            return -1
        return stop.file_position - start.file_position

    # -- answering -------------------------------------------------------------------------------------------------

    def answering(self) -> Steps:
        """Deliver the available records, and answer when the results of the acknowledgements are known."""
        self.is_done = True
        host, request = self._host, self.request
        answers: dict[bytes, list[PartitionData]] = {}
        left = request.max_records
        bytes_max = min(request.max_bytes, host.fetch_bytes_max) // max(len(self._held), 1)
        for partition, code in self._errors.items():
            answers.setdefault(partition[0], []).append(refused(partition[1], code))
        for partition, held in self._held.items():
            data, count = yield from self.look_up(partial(host.take, self, held, left, max(bytes_max, 1)))
            left -= count
            if data is not None:
                data.partition_index = partition[1]
                answers.setdefault(partition[0], []).append(data)
            if self._pace.is_over(TAKE_COST if count else LOOK_COST):
                yield None
        kind = ShareFetchResponse.ShareFetchableTopicResponse
        topics = [kind(topic_id=topic_id, partitions=partitions) for topic_id, partitions in answers.items()]
        self._response = ShareFetchResponse(responses=topics)
        self._answer()

    def acknowledged(self, results: Results) -> None:
        """All acknowledgements are written or refused."""
        self._acknowledged = results
        self._answer()

    def _answer(self) -> None:
        """Answer when everything is there."""
        if self._response is not None and self._acknowledged is not None:
            self._host.respond(self, self._response, self._acknowledged)


def refused(index: int, code: ErrorCode) -> PartitionData:
    """A partition of the answer that only has an error."""
    return PartitionData(partition_index=index, error_code=code, error_message=code.text, records=b"")


def finder(response: ShareFetchResponse) -> Callable[[Partition], PartitionData]:
    """A function that returns the partitions of an answer, and adds one that is missing."""
    topics = {topic.topic_id: topic for topic in response.responses}
    answered = {(topic.topic_id, data.partition_index): data for topic in response.responses for data in topic.partitions}

    def find(partition: Partition) -> PartitionData:
        data = answered.get(partition)
        if data is None:
            topic_id, index = partition
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=topic_id, partitions=[])
                response.responses.append(topic)
            data = answered[partition] = PartitionData(partition_index=index, records=b"")
            topic.partitions.append(data)
        return data

    return find
