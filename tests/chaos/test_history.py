"""The judge is judged: every rule and every anomaly in a history made by hand that breaks just that one."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.run import TOPIC, writer_of
from helpers.history import History, Outcome, anomalies, realtime_lag_s, twice
from helpers.transformers import differences

from minikafka.wire.batch import build_batch


def sent(history: History, value: str, offset: int, *, process: str = "w", partition: int = 0, outcome: Outcome = Outcome.OK) -> None:
    history.settled(history.begin(process, partition, value), outcome, partition, offset)


def good(count: int = 5) -> History:
    history = History()
    for number in range(count):
        sent(history, f"v{number}", number)
    return history


def everything(history: History, values: list[str] | None = None) -> None:
    found = [f"v{number}" for number in range(5)] if values is None else values
    history.polled("final", 0, [(0, offset, value) for offset, value in enumerate(found)])


def test_a_good_history_is_good() -> None:
    history = good()
    history.polled("r", 1, [(0, 0, "v0"), (0, 1, "v1")])
    history.polled("r", 1, [(0, 2, "v2")])
    history.polled("r", 2, [(0, 1, "v1"), (0, 2, "v2"), (0, 3, "v3"), (0, 4, "v4")])
    everything(history)
    assert (history.violations, anomalies(history)) == ([], {})
    assert history.ends == {0: 4} and history.acknowledged == 5
    assert 0 <= realtime_lag_s(history) < 5


def test_gaps_without_known_values_are_not_skips() -> None:
    history = History()
    for number, offset in enumerate((0, 2, 5)):
        sent(history, f"v{number}", offset)
    history.polled("final", 0, [(0, 0, "v0"), (0, 2, "v1"), (0, 5, "v2")])
    assert anomalies(history) == {}


def test_an_unknown_outcome_may_be_either() -> None:
    history = good(4)
    history.begin("w", 0, "stored")
    history.begin("w", 0, "not stored")
    everything(history, ["v0", "v1", "v2", "v3", "stored"])
    assert (history.violations, anomalies(history)) == ([], {})


def test_lost_write() -> None:
    history = good()
    history.polled("final", 0, [(0, offset, f"v{offset}") for offset in (0, 1, 3, 4)])
    found = anomalies(history)
    assert set(found) == {"lost-write", "int-poll-skip"}
    assert found["lost-write"][0].startswith("v2 at (0, 2)")


def test_unseen() -> None:
    history = good()
    everything(history, ["v0", "v1", "v2", "v3"])
    assert set(anomalies(history)) == {"unseen"}


def test_duplicate() -> None:
    history = good()
    everything(history, ["v0", "v1", "v2", "v3", "v4", "v1"])
    assert set(anomalies(history)) == {"duplicate"}
    assert twice(history) == {"v1": [(0, 1), (0, 5)]}


def test_the_writer_of_a_duplicate_is_named(tmp_path: Path) -> None:
    directory = tmp_path / f"{TOPIC}-3"
    directory.mkdir()
    records = [(0, 0, None, b"v", ()), (1, 0, None, b"w", ())]
    log = b"".join(
        build_batch(records, base_offset=2 * epoch, producer_id=7, producer_epoch=epoch, base_sequence=10) for epoch in (0, 1)
    )
    (directory / "00000000000000000000.log").write_bytes(log)
    assert [writer_of(str(tmp_path), 3, offset) for offset in (1, 2, 4)] == [
        "producer 7, epoch 0, sequence 11", "producer 7, epoch 1, sequence 10", "nobody that is known",
    ]  # fmt: skip


def test_inconsistent_offsets() -> None:
    history = good()
    everything(history)
    history.begin("w", 0, "other")
    history.polled("r", 1, [(0, 2, "other")])
    assert set(anomalies(history)) == {"inconsistent-offsets"}
    assert any("known as" in text for text in history.violations)


def test_aborted_read() -> None:
    history = good(4)
    sent(history, "refused", -1, outcome=Outcome.FAIL)
    everything(history, ["v0", "v1", "v2", "v3", "refused"])
    assert set(anomalies(history)) == {"G1a"}


def test_nonmonotonic_send() -> None:
    history = History()
    first, second = history.begin("w", 0, "v0"), history.begin("w", 0, "v1")
    history.settled(second, Outcome.OK, 0, 0)
    history.settled(first, Outcome.OK, 0, 1)
    history.polled("final", 0, [(0, 0, "v1"), (0, 1, "v0")])
    assert set(anomalies(history)) == {"nonmonotonic-send"}
    assert history.violations == [], "the two were in flight together: no offset was known before"


@pytest.mark.parametrize(("between", "kind"), [(1, "poll-skip"), (0, "int-poll-skip")])
def test_poll_skip(between: int, kind: str) -> None:
    history = good()
    everything(history)
    if between:
        history.polled("r", 1, [(0, 0, "v0")])
        history.polled("r", 1, [(0, 2, "v2")])
    else:
        history.polled("r", 1, [(0, 0, "v0"), (0, 2, "v2")])
    assert set(anomalies(history)) == {kind}


@pytest.mark.parametrize(("between", "kind"), [(1, "nonmonotonic-poll"), (0, "int-nonmonotonic-poll")])
def test_nonmonotonic_poll(between: int, kind: str) -> None:
    history = good()
    everything(history)
    if between:
        history.polled("r", 1, [(0, 0, "v0"), (0, 1, "v1")])
        history.polled("r", 1, [(0, 1, "v1")])
    else:
        history.polled("r", 1, [(0, 0, "v0"), (0, 1, "v1"), (0, 1, "v1")])
    assert set(anomalies(history)) == {kind}
    assert any("after" in text for text in history.violations)


def test_a_new_assignment_may_begin_anywhere() -> None:
    history = good()
    everything(history)
    history.polled("r", 1, [(0, 3, "v3")])
    history.polled("r", 2, [(0, 1, "v1")])
    assert (history.violations, anomalies(history)) == ([], {})


def test_online_an_old_offset_for_a_new_record() -> None:
    history = good(3)
    sent(history, "late", 1)
    assert any("had been acknowledged when it was sent" in text for text in history.violations)
    assert any("acknowledged twice" in text for text in history.violations)


def test_online_a_value_that_was_never_written() -> None:
    history = good()
    history.polled("r", 1, [(0, 5, "ghost")])
    assert history.violations == ["r read 'ghost' at (0, 5), which nobody wrote"]


def test_online_another_partition_than_asked_for() -> None:
    history = History()
    history.settled(history.begin("w", 0, "v0"), Outcome.OK, 1, 0)
    assert "sent to partition 0 and acknowledged in 1" in history.violations[0]


SOURCE = {0: ["a", "b", "c"], 1: []}


@pytest.mark.parametrize(
    ("copy", "said"),
    [
        ({0: ["a", "b"], 1: []}, "1 lost ['c']"),
        ({0: ["a", "b", "b", "c"], 1: []}, "1 twice, 0 lost"),
        ({0: ["b", "a", "c"], 1: []}, "0 twice, 0 lost []; first difference at 0"),
        ({0: ["a", "b", "c"], 1: ["a"]}, "copy-1: 1 records of 0"),
        ({1: []}, "3 lost"),
    ],
)
def test_a_copy_that_differs_from_its_source_is_reported(copy: dict[int, list[str]], said: str) -> None:
    (line,) = differences(SOURCE, copy, "copy")
    assert said in line
    assert differences(SOURCE, SOURCE, "copy") == []
