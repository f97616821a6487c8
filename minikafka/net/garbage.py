"""Keeps garbage collections short. A full collection stops the event loop for a time that grows with the number of live objects, and a
coordinator of large groups holds millions.

Python runs a full collection whenever the number of objects has grown by a quarter, and by some ten thousand. After a long one, the
survivors are frozen (`gc.freeze`), so that later collections skip them; reference counting still frees them. Only garbage in cycles stays,
until the frozen objects have doubled and stay: then all are unfrozen for one more full collection. What a large request holds while it is
served does not count, or any client could cause one. Measured while a million objects were created: the longest pause fell from 150 ms
to 4 ms.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

#: After a full collection longer than this, the survivors are frozen.
LONG_S = 0.002
#: Python's defaults have ten instead of five and two. After ten collections of the second generation there are 70,000 new objects; after so
#: few some 12,000, which take two milliseconds, and on a machine without a core to spare four times as long. The more frequent ones cost
#: nothing: what survives a long one is frozen.
THRESHOLDS = (700, 5, 2)
#: This many blocks of memory are in use before everything is collected again (a third of them are objects that collections look at); after
#: that, twice as many as were left. The frozen objects themselves cannot be counted: Python walks over all of them, 45 ms for a million.
BLOCKS_MIN = 3_000_000
#: ... once they have been as many for this long.
STAYED_S = 60.0
EVERYTHING = 2


def collect_young() -> None:
    """Collect what is new. Python does so when more objects were made than freed: work in steps that frees old ones while it makes new ones
    would leave hundreds of thousands to one collection, 50 ms and more."""
    if gc.isenabled():
        gc.collect(1)


class GarbagePauses:
    """One per process. Call `start` when the objects that exist will live as long as the process."""

    def __init__(
        self, now_s: Callable[[], float] = time.perf_counter, collector: Any = gc, blocks: Callable[[], int] = sys.getallocatedblocks
    ) -> None:
        self._now_s = now_s
        self._gc = collector
        self._blocks = blocks
        self._began_s = 0.0
        self._is_full_round = False
        self._full_round_from = BLOCKS_MIN
        self._much_since_s: float | None = None
        #: The longest full collection so far, in seconds, and how often the frozen objects were collected again.
        self.longest_s = 0.0
        self.full_rounds = 0

    def start(self) -> None:
        """Collect once, freeze the survivors, and observe collections from now on."""
        self._gc.collect()
        self._gc.freeze()
        # Python compares growth with what its last full collection left, frozen or not: now with nothing.
        self._gc.collect()
        self._gc.set_threshold(*THRESHOLDS)
        self._gc.callbacks.append(self._on_collection)

    def keep(self) -> None:
        """Freeze what is there now, such as what the start of a node has made, without looking at it: its clients wait."""
        self._gc.freeze()

    def stop(self) -> None:
        """Stop observing collections."""
        self._gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != EVERYTHING:
            return
        if phase == "start":
            self._began_s = self._now_s()
            return
        took_s = self._now_s() - self._began_s
        self.longest_s = max(self.longest_s, took_s)
        if self._blocks() < self._full_round_from:
            self._much_since_s = None
        elif self._much_since_s is None:
            self._much_since_s = self._now_s()
        if self._is_full_round:
            self._is_full_round = False
            self._gc.freeze()
            self._full_round_from = max(BLOCKS_MIN, 2 * self._blocks())
            self._much_since_s = None
        elif took_s > LONG_S:
            if self._much_since_s is not None and self._now_s() - self._much_since_s >= STAYED_S:
                # The next full collection includes the unfrozen objects.
                self._is_full_round = True
                self.full_rounds += 1
                self._gc.unfreeze()
            else:
                self._gc.freeze()
