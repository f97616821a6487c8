"""Mutations that break the rules of eligible leader replicas when min.insync.replicas changes (KIP-966)."""

from __future__ import annotations

from typing import Any

from minikafka.wire.records.metadata_records import ClearElrRecord


def _clear_all(original: Any) -> Any:
    return lambda self, topic_name: [ClearElrRecord(topic_name=topic_name)]


def _never_enough_after_election(original: Any) -> Any:
    def elect(self: Any, record: Any) -> None:
        before = self._elr
        original(self, record)
        self._elr = self._elr or tuple(replica for replica in before if replica != record.leader)

    return elect


def _commit_any_answer(original: Any) -> Any:
    def commit(self: Any, isr: tuple[int, ...], partition_epoch: int, *, is_answer: bool = False) -> Any:
        if is_answer:
            self.pending = None
        return original(self, isr, partition_epoch, is_answer=is_answer)

    return commit


ELECTION_TESTS = ("tests/core/controller/test_elections.py",)
ELIGIBLE_MUTATIONS: list[dict[str, Any]] = [
    {"name": "min-isr-forgets-all", "breaks": "a change of min.insync.replicas forgets the only replicas that can bring a partition back",
     "patches": (("minikafka.core.controller.configs:ConfigControl._clear_eligible", _clear_all),), "tests": ELECTION_TESTS},
    {"name": "eligible-beside-enough", "breaks": "replicas stay eligible beside a leader that commits without them",
     "tests": ELECTION_TESTS, "patches": (("minikafka.core.controller.change:PartitionChange._elect", _never_enough_after_election),)},
    {"name": "shrink-before-metadata", "breaks": "a leader acts on a smaller in-sync set before it knows which min.insync.replicas applies",
     "patches": (("minikafka.core.partition.isr:IsrState.commit", _commit_any_answer),), "tests": ("tests/core/partition/test_leader.py",)},
]
