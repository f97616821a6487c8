"""What may have been compacted: by the controller's record, not by the look of a batch (docs/audit.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.audited_clusters import BROKERS, audit, known_to_the_controller, told, verdicts
from helpers.log_clusters import Batch, MetadataLog, Partition, plain, write_broker


def sparse(batch: Batch) -> Batch:
    """One record less than the offsets that it takes."""
    return Batch(batch.base, batch.records[:-1], batch.epoch, last_delta=batch.span - 1)


def in_segments(tmp_path: Path, batches: list[Batch], log: MetadataLog | None, **more: Any) -> Path:
    for broker in BROKERS:
        one = Partition("t-0", batches, bases=(0, 10, 20))
        write_broker(tmp_path / f"b{broker}", broker, [one], log.encode() if log is not None else b"", **more)
    return tmp_path


BATCHES = [plain(base, 2) for base in range(0, 30, 2)]
#: One batch that looks compacted, and the segment in the middle gone, on every replica alike.
ROBBED = [*BATCHES[:2], sparse(BATCHES[2]), *BATCHES[3:5], *BATCHES[10:]]


def test_one_sparse_batch_excuses_nothing_in_a_topic_that_was_never_compacted(tmp_path: Path) -> None:
    result = audit(in_segments(tmp_path, ROBBED, known_to_the_controller()))
    assert (result.exit_code, verdicts(result)["t-0"]) == (1, "CORRUPT")
    assert told(result, "batch-sparse") and told(result, "offset-gap")


def test_without_a_word_of_the_policy_a_sparse_batch_is_no_proof(tmp_path: Path) -> None:
    result = audit(in_segments(tmp_path, ROBBED, None))
    assert (result.exit_code, verdicts(result)) == (3, {"t-0": "INCOMPLETE"})


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
@pytest.mark.parametrize("now", ["", "delete"])
def test_a_topic_that_once_was_compacted_may_have_gaps(tmp_path: Path, policy: str, now: str) -> None:
    log = known_to_the_controller().config("t", "cleanup.policy", policy)
    if now:
        log.config("t", "cleanup.policy", now)
    assert audit(in_segments(tmp_path, ROBBED, log)).outcome == "PASS"


def test_a_cleaners_checkpoint_tells_of_a_policy_that_only_the_brokers_know(tmp_path: Path) -> None:
    assert audit(in_segments(tmp_path, ROBBED, known_to_the_controller(), cleaned={"t-0": 20})).outcome == "PASS"


def test_a_topic_made_again_does_not_inherit_its_policy(tmp_path: Path) -> None:
    log = MetadataLog().topic("t", bytes(16)).config("t", "cleanup.policy", "compact").remove(bytes(16))
    log.values += known_to_the_controller().values
    assert audit(in_segments(tmp_path, ROBBED, log)).exit_code == 1
