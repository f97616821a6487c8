"""Collections of garbage that look at what has lived for long only once: a collection of everything stops the loop for as long as there is
much, and a coordinator of large groups holds millions of objects.

Python collects everything again whenever it has grown by a quarter. What a collection has found alive, and was long about, is set aside
(`gc.freeze`): counted references free it all the same. Only what dies in a cycle after that stays, until the objects set aside have
doubled; then everything is looked at once more. Measured with a million objects that are made one after the other: the longest pause is
10 ms, it was 150, and all of them together take a fifth.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

#: A collection of everything that takes longer sets aside what it leaves.
LONG_S = 0.004
#: So many objects are set aside before all of them are looked at again; after that twice as many as were left.
SET_ASIDE_MIN = 1_000_000
EVERYTHING = 2


class GarbagePauses:
    """One a process. `start` it when what exists lives as long as the process."""

    def __init__(self, now_s: Callable[[], float] = time.perf_counter, collector: Any = gc) -> None:
        self._now_s = now_s
        self._gc = collector
        self._began_s = 0.0
        self._is_looking_at_all = False
        self._look_at_all_from = SET_ASIDE_MIN
        #: The longest collection so far, in seconds, and how often everything was looked at again.
        self.longest_s = 0.0
        self.looks_at_all = 0

    def start(self) -> None:
        """Collect, and set aside what there is."""
        self._gc.collect()
        self._gc.freeze()
        self._gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """Leave collections alone."""
        self._gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != EVERYTHING:
            return
        if phase == "start":
            self._began_s = self._now_s()
            return
        took_s = self._now_s() - self._began_s
        self.longest_s = max(self.longest_s, took_s)
        if self._is_looking_at_all:
            self._is_looking_at_all = False
            self._gc.freeze()
            self._look_at_all_from = max(SET_ASIDE_MIN, 2 * self._gc.get_freeze_count())
        elif took_s > LONG_S:
            if self._gc.get_freeze_count() >= self._look_at_all_from:
                # The next collection, which is due when as much again has been made as is young now, is of everything.
                self._is_looking_at_all = True
                self.looks_at_all += 1
                self._gc.unfreeze()
            else:
                self._gc.freeze()
