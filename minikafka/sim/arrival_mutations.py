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


TOGETHER = (("wake_s", 0.001), ("batch_bytes_max", 1), ("batch_records_max", 8))
ARRIVAL_MUTATIONS: list[dict[str, Any]] = [
    {"name": "one-offset-for-a-run", "breaks": "batches that are appended together are all acknowledged with the first one's offset",
     "patches": (("minikafka.broker.partitions.produce_fast_path:ProduceFastPath._answer_run", _one_offset_for_all),), "options": TOGETHER},
    {"name": "refused-runs-count", "breaks": "batches that cannot be appended together are acknowledged but never appended",
     "patches": (("minikafka.broker.partitions.partition:Partition.append_run", _refused_counts),), "options": TOGETHER},
    {"name": "repeats-in-a-run", "breaks": "batches that were appended together are stored a second time when they are resent",
     "patches": (("minikafka.storage.log_append:BatchRun._continue", _any_sequence),), "options": TOGETHER, "profile": "network"},
]  # fmt: skip
