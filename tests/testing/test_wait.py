"""How long the test kit waits: seconds of a machine that keeps up."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.testing.errors import ClusterError
from minikafka.testing.wait import PATIENCE_MAX, Patience, available_cores, wait_until


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def wait(self, patience: Patience) -> float:
        """Seconds until it is over, asked a hundred times a second."""
        while not patience.is_over:
            self.now_s += 0.01
        return self.now_s


@pytest.mark.parametrize(("crowding", "expected_s"), [(0.1, 30), (1.0, 30), (10.0, 300), (1e6, 30 * PATIENCE_MAX)])
def test_seconds_count_as_far_as_there_are_cores(crowding: float, expected_s: float) -> None:
    clock = Clock()
    patience = Patience(30, crowding=lambda: crowding, now_s=lambda: clock.now_s)
    assert clock.wait(patience) == pytest.approx(expected_s, rel=0.01)


def test_whoever_gives_up_says_how_crowded_the_machine_was() -> None:
    clock = Clock()
    patience = Patience(1, crowding=lambda: 30.0, now_s=lambda: clock.now_s)
    clock.wait(patience)
    assert str(patience) == "waited 20 s on a machine where 30 tasks want each core"
    assert "for the moon (last: no)\nbrokers: none" in str(_given_up())


def _given_up() -> ClusterError:
    def refused() -> bool:
        raise ConnectionRefusedError("no")

    with pytest.raises(ClusterError) as raised:
        wait_until(refused, "the moon", 0.0, lambda: "brokers: none")
    return raised.value


@pytest.mark.parametrize(("text", "cores"), [("10000 100000\n", 0.1), ("50000 100000\n", 0.5)])
def test_a_quota_of_the_cgroup_counts(tmp_path: Path, text: str, cores: float) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert available_cores(tmp_path / "cpu.max") == cores


@pytest.mark.parametrize("text", ["max 100000\n", "", "x y\n"])
def test_without_a_quota_all_cores_count(tmp_path: Path, text: str) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert available_cores(tmp_path / "cpu.max") == available_cores(tmp_path / "missing") >= 1
