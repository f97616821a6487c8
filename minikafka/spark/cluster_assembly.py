"""The second half of a load to files: turns a partition's batches from all runs into segments, for every replica.

A partition's segments depend only on the runs and the rules. Every attempt writes the same bytes, each in a directory of its own.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from minikafka.spark.cluster_runs import check_shared, read_index
from minikafka.spark.cluster_segments import FileFact, LogRules, RunReader, Syncer, copy_file, plan_segments, write_end, write_segment


@dataclass(frozen=True, slots=True)
class AssembleTask:
    """Segments number `share`, `share + shares` ... of all replicas of a partition. The first share also writes the files that exist
    once per replica."""

    partition: int
    share: int
    shares: int
    partitions: int
    runs: tuple[str, ...]
    copies: int
    rules: LogRules
    topic_id: str
    staging: str
    job: str


@dataclass(slots=True)
class Assembled:
    """Files under `path`/0 (and /1 ... for the other replicas)."""

    partition: int
    path: str = ""
    files: list[FileFact] | None = None
    records: int = 0
    bytes: int = 0
    segments: int = 0
    end_offset: int = 0
    oldest_max_timestamp: int = -1
    error: str = ""


def assemble_tasks(tasks: Sequence[AssembleTask]) -> list[Assembled]:
    """Assemble some partitions and sync them together; runs on a worker. Failures are returned as text."""
    made: list[Assembled] = []
    try:
        with Syncer() as syncer:
            for task in tasks:
                made.append(Assembled(task.partition))
                _assemble(task, made[-1], syncer)
    except OSError as error:
        made[-1].error = f"cannot write {error.filename or 'segments'}: {error.strerror or error}"
    except Exception as error:
        made[-1].error = f"{type(error).__name__}: {error}" if type(error).__module__ == "builtins" else str(error)
    return made


def _assemble(task: AssembleTask, found: Assembled, syncer: Syncer) -> None:
    import numpy as np

    check_shared(task.staging, task.job)
    parts = [read_index(path, task.partition, task.partitions) for path in task.runs]
    batches = np.concatenate(parts)
    runs = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    segments = plan_segments(batches["size"].tolist(), batches["records"].tolist(), batches["timestamp"].tolist(), task.rules)
    found.path = f"{task.staging}/segments/{task.partition:06d}-{task.share:04d}-{secrets.token_hex(6)}"
    os.makedirs(f"{found.path}/0")
    found.files = []
    with RunReader(task.runs) as reader:
        for plan in segments[task.share :: task.shares]:
            facts, records = write_segment(f"{found.path}/0", plan, batches, runs, reader, syncer)
            found.files += facts
            found.records += records
            found.bytes += plan.bytes
            found.segments += 1
        found.end_offset = segments[-1].next_offset
        found.oldest_max_timestamp = min((plan.max_timestamp for plan in segments if plan.bytes), default=-1)
        if task.share == 0:
            found.files += write_end(f"{found.path}/0", found.end_offset, task.topic_id, syncer)
        for copy in range(1, task.copies):
            os.mkdir(f"{found.path}/{copy}")
            for fact in found.files:
                copy_file(f"{found.path}/0/{fact.name}", f"{found.path}/{copy}/{fact.name}", syncer)
