"""The progress of a load job, stored in a topic of the target cluster, so that a driver on any machine can resume it.

Each fact is one record, key = job id, value = JSON: `start` (the plan's fingerprint and a producer id for every task), `task` (a task is
done), `done` (the job is done). The first `start` of a job counts. So two drivers that begin the same job at once use the same producer
ids, and the brokers accept each batch once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from minikafka.spark.fetch_client import BrokerError, Connection, first_answer
from minikafka.spark.logformat import walk
from minikafka.spark.produce_client import LoadProducer, ProduceFailed
from minikafka.spark.records import decode_records
from minikafka.spark.security import PLAIN_TEXT, Security

TOPIC = "minikafka-load-ledger"
RETENTION_MS = 7 * 24 * 3600 * 1000
#: producer.id.expiration.ms is a day. After that, a resumed job could not see what its producers wrote.
RESUME_MS_MAX = 20 * 3600 * 1000


@dataclass(slots=True)
class JobState:
    """A job in the ledger. `producers`: (producer id, epoch) by task. `tasks`: task -> its report. `summary`: None before it is done."""

    fingerprint: str
    producers: list[tuple[int, int]]
    plan: dict[str, Any]
    started_ms: int
    tasks: dict[int, dict[str, Any]] = field(default_factory=dict)
    summary: dict[str, Any] | None = None


class JobLedger:
    """The ledger of one cluster. Raises ProduceFailed."""

    def __init__(self, bootstrap: str, timeout_ms: int = 30_000, security: Security = PLAIN_TEXT) -> None:
        self.bootstrap, self.timeout_ms, self.security = bootstrap, timeout_ms, security
        self._producer: LoadProducer | None = None

    def __enter__(self) -> JobLedger:
        return self

    def __exit__(self, *_: object) -> None:
        if self._producer is not None:
            self._producer.close()

    def _writer(self) -> LoadProducer:
        if self._producer is None:
            producer = LoadProducer(self.bootstrap, TOPIC, timeout_ms=self.timeout_ms, security=self.security)
            if producer.partition_count() == 0:
                producer.create_topic(1, -1, {"cleanup.policy": "delete", "retention.ms": str(RETENTION_MS)})
            producer.start()
            self._producer = producer
        return self._producer

    def append(self, job: str, kind: str, content: dict[str, Any]) -> None:
        """Write one fact, and wait until all in-sync replicas have it."""
        import numpy as np
        import pyarrow as pa

        from minikafka.spark.encode import encode_rows

        value = json.dumps({"kind": kind, **content}).encode()
        writer = self._writer()
        rows = pa.array([job.encode()], pa.binary()), pa.array([value], pa.binary())
        writer.send(list(encode_rows(*rows, np.zeros(1, np.int64), batch_bytes=1 << 20, now_ms=time.time_ns() // 1_000_000)))
        writer.flush()

    def begin(self, job: str, fingerprint: str, producers: list[tuple[int, int]], plan: dict[str, Any]) -> JobState:
        """Write the job's start. Returns the first start in the topic, which is the one that counts."""
        started = time.time_ns() // 1_000_000
        self.append(job, "start", {"fingerprint": fingerprint, "producers": producers, "plan": plan, "started_ms": started})
        state = self.read(job)
        if state is None:
            raise ProduceFailed(f"the ledger topic {TOPIC} does not return what was written to it")
        return state

    def read(self, job: str) -> JobState | None:
        """The state of a job; None if it never began."""
        state: JobState | None = None
        for fact in self._facts(job.encode()):
            if fact["kind"] == "start":
                if state is None:
                    pairs = [(int(one), int(epoch)) for one, epoch in fact["producers"]]
                    state = JobState(fact["fingerprint"], pairs, fact["plan"], fact["started_ms"])
            elif state is not None and fact["kind"] == "task":
                state.tasks[int(fact["task"])] = fact
            elif state is not None and fact["kind"] == "done":
                state.summary = fact
        return state

    def _facts(self, key: bytes) -> Iterator[dict[str, Any]]:
        try:
            cluster = first_answer(self.bootstrap, self.security, [TOPIC])
            partition = cluster.partitions.get((TOPIC, 0))
            if partition is None:
                return
            host, port = cluster.brokers[partition.leader]
            with Connection(host, port, self.security) as connection:
                offset = max(0, connection.earliest([(TOPIC, 0)])[TOPIC, 0][1])
                while True:
                    found = connection.fetch({(TOPIC, 0): offset}, 4 << 20)[TOPIC, 0]
                    if found.error:
                        raise ProduceFailed(f"the ledger topic {TOPIC} cannot be read: error {found.error}")
                    batches, _, _ = walk(found.records)
                    if len(batches) == 0:
                        return
                    records, _ = decode_records(batches)
                    for index in range(len(records)):
                        if records.key(index) == key:
                            yield json.loads(records.value(index) or b"{}")
                    offset = int(batches.last_offset[-1]) + 1
        except (BrokerError, KeyError) as error:
            raise ProduceFailed(f"the ledger topic {TOPIC} cannot be read: {error}") from error
