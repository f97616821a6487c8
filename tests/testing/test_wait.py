"""How long the test kit waits: seconds of a machine that keeps up."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.testing.errors import ClusterError
from minikafka.testing.wait import LOAD_FACTOR_MAX, LoadAdjustedDeadline, available_cores, slowdown, tasks_per_core, wait_until


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def wait(self, deadline: LoadAdjustedDeadline) -> float:
        """Seconds until it is over, asked a hundred times a second."""
        while not deadline.is_over:
            self.now_s += 0.01
        return self.now_s


@pytest.mark.parametrize(("load_factor", "expected_s"), [(0.1, 30), (1.0, 30), (10.0, 300), (1e6, 30 * LOAD_FACTOR_MAX)])
def test_seconds_count_as_far_as_there_are_cores(load_factor: float, expected_s: float) -> None:
    clock = Clock()
    deadline = LoadAdjustedDeadline(30, load_factor=lambda: load_factor, now_s=lambda: clock.now_s)
    assert clock.wait(deadline) == pytest.approx(expected_s, rel=0.01)


def test_a_timeout_reports_the_load_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    deadline = LoadAdjustedDeadline(1, load_factor=lambda: 30.0, now_s=lambda: clock.now_s)
    clock.wait(deadline)
    monkeypatch.setattr("minikafka.testing.wait.niceness", lambda: 0)
    assert str(deadline) == "waited 20 s on a machine where 30 tasks compete for each core"
    assert "for the moon (last: no)\nbrokers: none" in str(_given_up())


def test_who_gives_precedence_waits_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo at nice 10 gave up on brokers that had not had their first two seconds of processor time yet."""
    monkeypatch.setattr("os.getloadavg", lambda: (4.0, 0.0, 0.0))
    monkeypatch.setattr("minikafka.testing.wait.available_cores", lambda: 2.0)
    monkeypatch.setattr("minikafka.testing.wait.niceness", lambda: 10)
    assert slowdown() == pytest.approx(1 + 1.25**10)
    clock = Clock()
    deadline = LoadAdjustedDeadline(30, now_s=lambda: clock.now_s)
    assert clock.wait(deadline) == pytest.approx(30 * slowdown(), rel=0.01)
    assert str(deadline).endswith("a machine where 2 tasks compete for each core and this one is at nice 10")
    monkeypatch.setattr("os.getloadavg", lambda: (1.0, 0.0, 0.0))
    assert slowdown() <= 1, "nobody else wants the cores"


def _given_up() -> ClusterError:
    def refused() -> bool:
        raise ConnectionRefusedError("no")

    with pytest.raises(ClusterError) as raised:
        wait_until(refused, "the moon", 0.0, lambda: "brokers: none")
    return raised.value


@pytest.mark.parametrize(
    ("membership", "files", "cores"),
    [
        ("0::/", {"cpu.max": "10000 100000\n"}, 0.1),
        ("0::/ci/job", {"ci/cpu.max": "50000 100000\n", "ci/job/cpu.max": "max 100000\n"}, 0.5),
        ("2:cpuacct,cpu:/job", {"cpu/job/cpu.cfs_quota_us": "20000\n", "cpu/job/cpu.cfs_period_us": "100000\n"}, 0.2),
    ],
)
def test_a_quota_of_the_cgroup_counts(tmp_path: Path, membership: str, files: dict[str, str], cores: float) -> None:
    memberships = _cgroups(tmp_path, membership, files)
    assert available_cores(tmp_path, memberships) == cores


@pytest.mark.parametrize(
    ("membership", "files"),
    [
        ("0::/", {"cpu.max": "max 100000\n"}),
        ("0::/job", {"other/cpu.max": "10000 100000\n"}),
        ("", {"cpu.max": ""}),
        ("x", {"cpu.max": "x y\n"}),
        ("1:cpu:/", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}),
    ],
)
def test_without_a_quota_all_cores_count(tmp_path: Path, membership: str, files: dict[str, str]) -> None:
    memberships = _cgroups(tmp_path, membership, files)
    assert available_cores(tmp_path, memberships) == available_cores(tmp_path / "missing", tmp_path / "missing") >= 1


def _cgroups(folder: Path, membership: str, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "memberships").write_text(membership + "\n")
    return folder / "memberships"


def test_a_fraction_of_a_core_is_crowded_however_little_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr("minikafka.testing.wait.available_cores", lambda: 0.1)
    assert tasks_per_core() == 10
