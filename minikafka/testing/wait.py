"""Waits for a condition, longer on a machine that is overloaded."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from minikafka.client.errors import ClientError
from minikafka.testing.errors import ClusterError
from minikafka.wire.errors import WireError

POLL_S = 0.01
#: A wait lasts at most this many times the given seconds, however overloaded the machine is.
LOAD_FACTOR_MAX = 20.0
WEIGHT_PER_NICE = 1.25
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


class LoadAdjustedDeadline:
    """A deadline that is extended on an overloaded machine: if ten tasks compete for each core, ten seconds count as one. A process that
    has given precedence to others (nice) waits longer still."""

    def __init__(
        self, timeout_s: float, *, load_factor: Callable[[], float] | None = None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._timeout_s = timeout_s
        self._load_factor = load_factor or slowdown
        self._competing = load_factor or tasks_per_core
        self._now_s = now_s
        self._began_s = self._last_s = now_s()
        self._spent_s = 0.0

    @property
    def is_over(self) -> bool:
        """Whether the time is up. Call it often: it weights the time since the last call by the current load."""
        now_s = self._now_s()
        self._spent_s += (now_s - self._last_s) / min(max(self._load_factor(), 1.0), LOAD_FACTOR_MAX)
        self._last_s = now_s
        return self._spent_s > self._timeout_s

    def __str__(self) -> str:
        text = f"waited {self._last_s - self._began_s:.0f} s"
        competing, precedence = self._competing(), "" if niceness() <= 0 else f" and this one is at nice {niceness()}"
        return text if competing < 2 else f"{text} on a machine where {competing:.0f} tasks compete for each core{precedence}"


def tasks_per_core() -> float:
    """Tasks per core that this process may use: the load average of one minute, divided by the available cores."""
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):
        return 1.0
    # The load average leaves out tasks that wait for their cgroup's quota. At least one task needs it: this process.
    return max(load, 1.0) / available_cores()


def niceness() -> int:
    """How much this process and those that it starts give precedence to others, from -20 to 19; 0 where systems do not tell."""
    return os.getpriority(os.PRIO_PROCESS, 0) if hasattr(os, "getpriority") else 0


def slowdown() -> float:
    """How many times as long work takes as alone. A kernel gives a task a quarter more time for each step of nice that it is ahead."""
    competing = tasks_per_core()
    return competing if competing <= 1 else 1 + (competing - 1) * WEIGHT_PER_NICE ** max(niceness(), 0)


def available_cores(cgroups: Path = CGROUPS, memberships: Path = OWN_CGROUPS) -> float:
    """Cores that this process may use; a fraction if a cgroup (version 2 or 1) limits it to less than one."""
    cores = float(os.cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        cores = float(len(os.sched_getaffinity(0)))
    return min([cores, *_quotas(cgroups, memberships)])


def _quotas(cgroups: Path, memberships: Path) -> Iterator[float]:
    """The CPU quotas, in cores, of this process's cgroups and their parents. In a container the root is the container's own cgroup."""
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
    """Poll until `condition()` is true; connection and protocol errors count as not yet. Raises ClusterError, whose text has `state()`."""
    deadline = LoadAdjustedDeadline(timeout_s)
    last = ""
    while True:
        try:
            if condition():
                return
            last = ""
        except (OSError, WireError, ClientError) as error:
            last = f" (last: {error})"
        if deadline.is_over:
            raise ClusterError(f"{deadline} for {what}{last}" + (f"\n{state()}" if state is not None else ""))
        time.sleep(POLL_S)
