"""A fraction of a core for some processes: by a cgroup where this user may make one, else by stopping them most of the time."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from minikafka.testing.wait import LoadAdjustedDeadline

CGROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100_000


class CpuQuota:
    """All processes that were added share `cores` of a core, while the context lasts. They run unbounded after it."""

    def __init__(self, cores: float, *, cgroup: bool = True) -> None:
        self._cores = cores
        self.folder = _cgroup(cores) if cgroup else None
        self._duty = None if self.folder is not None else _DutyCycle(cores)

    @property
    def is_cgroup(self) -> bool:
        """Whether a cgroup bounds them; what they fork is bounded, too."""
        return self.folder is not None

    @property
    def kind(self) -> str:
        """For the failure's text."""
        return f"{self._cores} cores by " + ("signals" if self.folder is None else str(self.folder))

    def add(self, pids: Iterable[int]) -> None:
        """Bound these."""
        for pid in pids:
            if self.folder is not None:
                (self.folder / "cgroup.procs").write_text(str(pid))
            elif self._duty is not None:
                self._duty.pids.append(pid)

    def __enter__(self) -> CpuQuota:
        if self._duty is not None:
            self._duty.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._duty is not None:
            self._duty.stop()
        if self.folder is None:
            return
        for pid in (self.folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (self.folder.parent / "cgroup.procs").write_text(pid)
        deadline = LoadAdjustedDeadline(10)
        while not deadline.is_over:
            try:
                self.folder.rmdir()
                return
            except OSError:
                # One that ended is counted until the kernel has put it away.
                time.sleep(0.01)


def _cgroup(cores: float) -> Path | None:
    """A new group with a quota, version 2 or 1; None where there may be none."""
    name = f"minikafka-{os.getpid()}-{time.monotonic_ns()}"
    quota_us = int(cores * PERIOD_US)
    for parent, is_second in ((CGROUPS, True), (CGROUPS / "cpu", False)):
        folder = parent / name
        try:
            if is_second and "cpu" not in (parent / "cgroup.subtree_control").read_text().split():
                continue
            folder.mkdir()
            if is_second:
                (folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
            else:
                (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
            return folder
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
    return None


class _DutyCycle(threading.Thread):
    """One process at a time runs for a time slice; between two slices none runs."""

    def __init__(self, cores: float) -> None:
        super().__init__(name="duty cycle", daemon=True)
        self._running_s = 0.01
        self._resting_s = self._running_s / cores - self._running_s
        self._ended = threading.Event()
        self.pids: list[int] = []

    def run(self) -> None:
        turn = 0
        while not self._ended.is_set():
            for pid in list(self.pids):
                self._signal(pid, signal.SIGSTOP)
            if self._ended.wait(self._resting_s):
                break
            if self.pids:
                turn += 1
                self._signal(self.pids[turn % len(self.pids)], signal.SIGCONT)
            self._ended.wait(self._running_s)

    def stop(self) -> None:
        self._ended.set()
        self.join()
        for pid in self.pids:
            self._signal(pid, signal.SIGCONT)

    def _signal(self, pid: int, number: int) -> None:
        try:
            os.kill(pid, number)
        except OSError:
            if pid in self.pids:
                self.pids.remove(pid)
