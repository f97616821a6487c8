"""Mutations that break what happens to produce requests that arrive together."""

from __future__ import annotations

from typing import Any


def _one_offset_for_all(original: Any) -> Any:
    def answer(self: Any, connection: Any, partition: Any, run: Any) -> None:
        run.requests = [(*request, 0) for *request, _ in run.requests]
        original(self, connection, partition, run)

    return answer


def _refused_counts(original: Any) -> Any:
    def append_run(self: Any, run: Any, now_ms: int) -> bool:
        original(self, run, now_ms)
        return True

    return append_run


def _any_sequence(original: Any) -> Any:
    return lambda self, header, last_offset: True


def _nothing_before(original: Any) -> Any:
    return lambda connection: {}


def _wait_for_nobody(original: Any) -> Any:
    def wait(self: Any, replicas: Any, timeout_ms: int) -> None:
        self._left = []
        self._answer()

    return wait


def _from_any_epoch(original: Any) -> Any:
    return lambda replica, leader, required: original(replica, replica.leader or leader, required)


def _when_one_is_replicated(original: Any) -> Any:
    def try_complete(self: Any, key: Any = None) -> Any:
        waiting = len(self._left)
        if not original(self, key) and len(self._left) < waiting:
            self._answer()
        return self.is_done

    return try_complete


def _exchange_records(original: Any) -> Any:
    def read(self: Any, frame: memoryview, beginning: Any) -> Any:
        parts = original(self, frame, beginning)
        if not parts or len(parts) < 2:
            return parts
        return [(topic, index, parts[-1 - number][2]) for number, (topic, index, _) in enumerate(parts)]

    return read


class _NoShares:
    def begin(self) -> Any:
        return lambda: False


def _without_shares(original: Any) -> Any:
    def serve(self: Any, *arguments: Any) -> Any:
        self._shares = _NoShares()
        return original(self, *arguments)

    return serve


SEVERAL_TESTS = ("tests/broker/test_produce_several.py",)
SEVERAL = "minikafka.broker.partitions.produce_several"
TOGETHER = (("wake_s", 0.001), ("batch_bytes_max", 1), ("batch_records_max", 8))
ARRIVAL_MUTATIONS: list[dict[str, Any]] = [
    {"name": "one-offset-for-a-run", "breaks": "batches that are appended together are all acknowledged with the first one's offset",
     "patches": (("minikafka.broker.partitions.produce_fast_path:ProduceFastPath._answer_run", _one_offset_for_all),), "options": TOGETHER},
    {"name": "refused-runs-count", "breaks": "batches that cannot be appended together are acknowledged but never appended",
     "patches": (("minikafka.broker.partitions.partition:Partition.append_run", _refused_counts),), "options": TOGETHER},
    {"name": "repeats-in-a-run", "breaks": "batches that were appended together are stored a second time when they are resent",
     "patches": (("minikafka.storage.log_append:BatchRun._continue", _any_sequence),), "options": TOGETHER, "profile": "network"},
    {"name": "rest-appends-again", "breaks": "what the fast path has appended of a request is appended again with the rest of it",
     "patches": (("minikafka.broker.partitions.produce_run:appended_before", _nothing_before),), "tests": SEVERAL_TESTS},
    {"name": "several-not-waited-for", "breaks": "a request for several partitions is acknowledged before they are replicated",
     "patches": ((f"{SEVERAL}:_Replicating.wait", _wait_for_nobody),), "tests": SEVERAL_TESTS},
    {"name": "several-from-any-epoch", "breaks": "a later leadership acknowledges what an earlier one appended, in a request for several",
     "patches": ((f"{SEVERAL}:replication_result", _from_any_epoch),), "tests": SEVERAL_TESTS},
    {"name": "several-when-one-is", "breaks": "a request for several partitions is acknowledged when one more of them is replicated",
     "patches": ((f"{SEVERAL}:_Replicating.try_complete", _when_one_is_replicated),), "tests": SEVERAL_TESTS},
    {"name": "several-exchanged", "breaks": "the records of a request for several partitions go to the wrong ones",
     "patches": (("minikafka.broker.partitions.produce_layout:ProduceLayout.read", _exchange_records),), "tests": SEVERAL_TESTS},
    {"name": "several-in-one-turn", "breaks": "all partitions of a request are appended in one turn of the loop, however long they take",
     "patches": ((f"{SEVERAL}:SeveralPartitions.serve", _without_shares),), "tests": SEVERAL_TESTS},
]  # fmt: skip
