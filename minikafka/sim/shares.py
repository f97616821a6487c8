"""S28: a share group (KIP-932) as its members and its leaders see it. What was accepted or rejected is never delivered again, a delivery
that was acknowledged is never forgotten, no record is left out, and a record whose acknowledgement was refused is delivered again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from minikafka.sim.dead_letters import DeadLetters
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.sim.attempts import Attempt, Place
    from minikafka.sim.node import SimNode
    from minikafka.sim.parts import Invariants

#: With these errors, nothing of an acknowledgement is stored. After others the member cannot know.
CERTAINLY_REFUSED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_RECORD_STATE)


class Shares:
    """The history of the share group."""

    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self._world = invariants.world
        #: Records whose final acknowledgement a leader has confirmed.
        self._settled: set[Place] = set()
        #: The largest delivery count at which a leader has confirmed a release.
        self._released: dict[Place, int] = {}
        #: Records that may be archived, as they were delivered as often as allowed.
        self._perhaps_archived: set[Place] = set()
        #: Final acknowledgements of unknown outcome.
        self._unknown: Counter[Place] = Counter()
        self.letters = DeadLetters(invariants)
        #: Outcome -> acknowledgements.
        self.outcomes: Counter[str] = Counter()

    def acquired(self, node: SimNode, partition: Any, runs: Iterable[Any]) -> None:
        """A leader gives out records."""
        limit = self._world.options.delivery_count_max
        is_unaware = self._is_unaware(node, partition)
        for run in runs:
            for offset in range(run.first_offset, run.last_offset + 1):
                place, where = (partition.index, offset), f"{node} {partition}/{offset}"
                self._invariants.checked["S28"] += 1
                self.letters.delivered(place, run.delivery_count)
                if run.delivery_count >= limit:
                    # Also a leader that has been replaced may archive it: its writes count until its successor has read the state.
                    self._perhaps_archived.add(place)
                if is_unaware and (place in self._settled or place in self._released):
                    continue
                if place in self._settled:
                    self._world.violate("S28", f"{where} is delivered again after its acknowledgement was confirmed")
                if not self._released.get(place, 0) < run.delivery_count <= limit:
                    before = self._released.get(place, 0)
                    text = f"is delivered for the {run.delivery_count}th time: {before} deliveries are confirmed and {limit} are allowed"
                    self._world.violate("S28", f"{where} {text}")

    def _is_unaware(self, node: SimNode, partition: Any) -> bool:
        """Whether the leader has been replaced and cannot know it yet, as the heartbeats and the followers tell it nothing."""
        topic = self._invariants.image.topics_by_id.get(partition.topic_id)
        registration = None if topic is None else topic.partitions.get(partition.index)
        if registration is None or registration.leader_epoch <= partition.leader_epoch:
            return False
        assert node.node is not None and node.node.broker is not None
        return not node.node.broker.replicas.is_in_doubt(partition)

    def trying(self, attempt: Attempt) -> None:
        """A member is about to acknowledge a record."""
        self.letters.trying(attempt)
        if attempt.is_final:
            self._unknown[attempt.place] += 1

    def answered(self, attempts: list[Attempt], code: int) -> None:
        """A leader has answered acknowledgements."""
        for attempt in attempts:
            self.outcomes["refused" if code else "final" if attempt.is_final else "released"] += 1
            if attempt.is_final and code in CERTAINLY_REFUSED:
                self._unknown[attempt.place] -= 1
            if code:
                continue
            self.letters.confirmed(attempt)
            if attempt.is_final:
                self._settled.add(attempt.place)
            else:
                self._released[attempt.place] = max(self._released.get(attempt.place, 0), attempt.count)

    def unsettled(self, places: Iterable[Place]) -> list[Place]:
        """The records that must still be delivered."""
        perhaps_settled = self._perhaps_archived | (+self._unknown).keys()
        return sorted(place for place in places if place not in self._settled and place not in perhaps_settled)
