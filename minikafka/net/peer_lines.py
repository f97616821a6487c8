"""Log lines that a peer can cause, rate-limited: a few per kind, peer and minute, and then only a count."""

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
    """Writes rate-limited lines to a log. A peer is an address without its port, because one host has many ports."""

    def __init__(self, logger: logging.Logger, now_s: Callable[[], float] = monotonic) -> None:
        self._logger = logger
        self._now_s = now_s
        #: (kind, peer) -> (start of its minute, lines in it); the least recently used first.
        self._lines: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        #: kind -> number of lines left out.
        self.left_out: Counter[str] = Counter()

    def warning(self, kind: str, peer: str, text: str, *arguments: object) -> None:
        """Log a line about a peer, cut to TEXT_MAX characters. `kind`: "closed", "refused", …"""
        self.log(logging.WARNING, kind, peer, text, *arguments)

    def log(self, level: int, kind: str, peer: str, text: str, *arguments: object, error: BaseException | None = None) -> None:
        """As `warning`, at any level and with the traceback of `error`."""
        now_s, key = self._now_s(), (kind, peer)
        began_s, lines = self._lines.pop(key, (now_s, 0))
        if now_s - began_s >= WINDOW_S:
            if lines > LINES_A_MINUTE:
                self._logger.log(level, "%d more such lines (%s) about %s were left out", lines - LINES_A_MINUTE, kind, peer)
            began_s, lines = now_s, 0
        self._lines[key] = (began_s, lines + 1)
        if len(self._lines) > PEERS_MAX:
            self._lines.popitem(last=False)
        if lines >= LINES_A_MINUTE:
            self.left_out[kind] += 1
            return
        line = text % arguments
        self._logger.log(level, "%s", line if len(line) <= TEXT_MAX else f"{line[:TEXT_MAX]}…", exc_info=error)
