"""Waiting on a condition, for as long as the machine lets it come true."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from minikafka.client.errors import ClientError
from minikafka.testing.errors import ClusterError
from minikafka.wire.errors import WireError

POLL_S = 0.01
#: However starved the machine is, nobody waits longer than this many times the given seconds.
PATIENCE_MAX = 20.0
CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIPS = Path("/proc/self/cgroup")


class Patience:
    """A deadline in seconds of a machine that keeps up: on one whose cores are taken ten times over, ten seconds count as one."""

    def __init__(
        self, timeout_s: float, *, crowding: Callable[[], float] | None = None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._timeout_s = timeout_s
        self._crowding = crowding or crowding_of_cores
        self._now_s = now_s
        self._began_s = self._last_s = now_s()
        self._spent_s = 0.0

    @property
    def is_over(self) -> bool:
        """Whether the time is up. Ask often: the time since the last question counts as crowded as the machine is now."""
        now_s = self._now_s()
        self._spent_s += (now_s - self._last_s) / min(max(self._crowding(), 1.0), PATIENCE_MAX)
        self._last_s = now_s
        return self._spent_s > self._timeout_s

    def __str__(self) -> str:
        text = f"waited {self._last_s - self._began_s:.0f} s"
        crowding = self._crowding()
        return text if crowding < 2 else f"{text} on a machine where {crowding:.0f} tasks want each core"


def crowding_of_cores() -> float:
    """How many tasks want each core that this process may use: the load of the last minute, over cores and the quota of the cgroup."""
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):
        return 1.0
    # The load of a machine does not count those who wait for their quota; one wants it: this process.
    return max(load, 1.0) / available_cores()


def available_cores(cgroups: Path = CGROUPS, memberships: Path = MEMBERSHIPS) -> float:
    """Cores that this process may use; a fraction where a cgroup (of version 2 or 1) has less than one."""
    cores = float(os.cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        cores = float(len(os.sched_getaffinity(0)))
    return min([cores, *_quotas(cgroups, memberships)])


def _quotas(cgroups: Path, memberships: Path) -> Iterator[float]:
    """Those of this process's groups and of the groups around them. In a container the root shows the container's own."""
    try:
        lines = [line.split(":", 2) for line in memberships.read_text().splitlines()]
    except OSError:
        lines = []
    folders = {cgroups, cgroups / "cpu"}
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if not controllers or "cpu" in controllers.split(","):
            group = (cgroups / "cpu" if controllers else cgroups) / path.lstrip("/")
            folders |= {group, *(parent for parent in group.parents if cgroups in parent.parents)}
    for folder in folders:
        for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            try:
                quota, period = " ".join((folder / file).read_text() for file in files).split()
                if int(quota) > 0:
                    yield int(quota) / int(period)
            except (OSError, ValueError):
                continue


def wait_until(condition: Callable[[], object], what: str, timeout_s: float, state: Callable[[], str] | None = None) -> None:
    """Ask again until `condition()` is true; connection and protocol errors count as not yet. Raises ClusterError, with `state()` in it."""
    patience = Patience(timeout_s)
    last = ""
    while True:
        try:
            if condition():
                return
            last = ""
        except (OSError, WireError, ClientError) as error:
            last = f" (last: {error})"
        if patience.is_over:
            raise ClusterError(f"{patience} for {what}{last}" + (f"\n{state()}" if state is not None else ""))
        time.sleep(POLL_S)
