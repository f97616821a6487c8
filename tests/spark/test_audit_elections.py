"""What unclean elections lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.audited_clusters import TOPIC, audit, messages_of, registered_topic, verdicts
from helpers.log_clusters import Partition, lines, plain, write_broker


def after_an_unclean_election(tmp_path: Path, high_watermark: int) -> Path:
    """Broker 1 was alone in sync and wrote 20..119; broker 2 was elected uncleanly and went on at 20; 1 has not come back."""
    log = registered_topic().change(TOPIC, isr=(1,)).change(TOPIC, leader=2, isr=(2,), recovering=True)
    log.change(TOPIC, isr=(2, 3), recovering=False)
    common = [plain(offset) for offset in range(20)]
    old = [*common, *(plain(offset, text="acked") for offset in range(20, 120))]
    new = [*common, *(plain(offset, epoch=1, text="new") for offset in range(20, 50))]
    write_broker(tmp_path / "b1", 1, [Partition("t-0", old, high_watermark=high_watermark)], log.encode(), clean=False)
    for broker in (2, 3):
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", new, epochs=((0, 0), (1, 20)))], log.encode())
    return tmp_path


@pytest.mark.parametrize("high_watermark", [20, 35, 120])
def test_records_lost_by_an_unclean_election_are_reported(tmp_path: Path, high_watermark: int) -> None:
    result = audit(after_an_unclean_election(tmp_path, high_watermark))
    (text,) = messages_of(result, "unclean-loss")
    assert (result.exit_code, verdicts(result)["t-0"]) == (1, "LOST")
    assert text == (
        "1: offsets 20..119 that broker 1 still has may have been acknowledged; they were lost in the unclean election of broker 2 in "
        "leader epoch 1 (metadata offset 6, 2023-11-14T22:13:26Z; in sync were 1, eligible none)"
    )
    assert not messages_of(result, "isr-claim"), "those in sync do not lack what nobody can have any more"


def test_an_unclean_election_that_cost_nothing_is_no_alarm(tmp_path: Path) -> None:
    after_an_unclean_election(tmp_path, 20)
    shutil.rmtree(tmp_path / "b1" / "t-0")
    shutil.copytree(tmp_path / "b2" / "t-0", tmp_path / "b1" / "t-0")
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (tmp_path / "b1" / name).write_text(lines(["t 0 50"]))
    assert audit(tmp_path).outcome == "PASS"


def test_acknowledged_records_lost_by_an_election_are_reported_once(tmp_path: Path) -> None:
    import json

    after_an_unclean_election(tmp_path, 20)
    rows = [(offset, f"v{offset:08d}") for offset in range(20)] + [(offset, f"acked{offset:08d}") for offset in range(20, 120)]
    rows += [(offset, f"new{offset:08d}") for offset in range(20, 50)]
    ledger = tmp_path / "acked.jsonl"
    ledger.write_text("".join(json.dumps({"topic": "t", "partition": 0, "offset": at, "value": value}) + "\n" for at, value in rows))
    result = audit(tmp_path, acked=(str(ledger),))
    (conflict,) = messages_of(result, "acked-conflict")
    assert verdicts(result)["t-0"] == "LOST"
    assert "offsets 20..49" in conflict and "unclean election of broker 2" in conflict
