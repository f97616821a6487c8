"""Waiting on a condition, for as long as the machine lets it come true."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from minikafka.client.errors import ClientError
from minikafka.testing.errors import ClusterError
from minikafka.wire.errors import WireError

POLL_S = 0.01
#: However starved the machine is, nobody waits longer than this many times the given seconds.
PATIENCE_MAX = 20.0
CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


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
    return load / available_cores()


def available_cores(cpu_max: Path = CPU_MAX) -> float:
    """Cores that this process may use; a fraction where a cgroup has less than one."""
    cores = float(os.cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        cores = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = cpu_max.read_text().split()
        return min(cores, int(quota) / int(period))
    except (OSError, ValueError):
        return cores


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
