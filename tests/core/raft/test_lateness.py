"""Time-outs of the quorum on a machine that does not keep up: longer by what is measured, and short again afterwards."""

from __future__ import annotations

from minikafka.core.raft.lateness import ALLOWANCE_FACTOR, SAMPLE_MS_MAX, Lateness


def test_on_a_machine_that_keeps_up_timeouts_are_as_configured() -> None:
    lateness = Lateness()
    for _ in range(1000):
        lateness.observe(1)
    assert lateness.allow(1000) <= 1000 + ALLOWANCE_FACTOR


def test_timeouts_follow_what_is_measured_and_come_back() -> None:
    lateness = Lateness()
    for _ in range(50):
        lateness.observe(300)
    assert 200 + 0.9 * ALLOWANCE_FACTOR * 300 < lateness.allow(200) <= 200 + ALLOWANCE_FACTOR * 300
    for _ in range(50):
        lateness.observe(0)
    assert lateness.allow(200) < 210


def test_one_long_pause_counts_for_little() -> None:
    lateness = Lateness()
    lateness.observe(3_600_000)
    assert lateness.allow(1000) == 1000 + SAMPLE_MS_MAX, "a process that was suspended for an hour waits a second longer"
    lateness.observe(-5)
    assert lateness.allow(1000) < 1000 + SAMPLE_MS_MAX
