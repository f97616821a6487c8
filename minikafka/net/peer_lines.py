"""Lines of the log that a peer can cause: so many of a kind and a peer in a minute, and then a number."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from time import monotonic

LINES_A_MINUTE = 10
WINDOW_S = 60.0
PEERS_MAX = 1024
TEXT_MAX = 400


class PeerLines:
    """Writes lines to a log. Peers are addresses: of the ports of one there are many."""

    def __init__(self, logger: logging.Logger, now_s: Callable[[], float] = monotonic) -> None:
        self._logger = logger
        self._now_s = now_s
        #: (kind, peer) -> (when its minute began, lines in it).
        self._told: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        #: By kind, lines that were not written.
        self.left_out: Counter[str] = Counter()

    def warning(self, kind: str, peer: str, text: str, *arguments: object) -> None:
        """A line about a peer, cut to TEXT_MAX characters; "closed", "refused", … is its kind."""
        self.log(logging.WARNING, kind, peer, text, *arguments)

    def log(self, level: int, kind: str, peer: str, text: str, *arguments: object, error: BaseException | None = None) -> None:
        """The same at a level, with the traceback of an error."""
        now_s, key = self._now_s(), (kind, peer)
        began_s, lines = self._told.pop(key, (now_s, 0))
        if now_s - began_s >= WINDOW_S:
            if lines > LINES_A_MINUTE:
                self._logger.log(level, "%d more such lines (%s) about %s were left out", lines - LINES_A_MINUTE, kind, peer)
            began_s, lines = now_s, 0
        self._told[key] = (began_s, lines + 1)
        if len(self._told) > PEERS_MAX:
            self._told.popitem(last=False)
        if lines >= LINES_A_MINUTE:
            self.left_out[kind] += 1
            return
        line = text % arguments
        self._logger.log(level, "%s", line if len(line) <= TEXT_MAX else f"{line[:TEXT_MAX]}…", exc_info=error)
