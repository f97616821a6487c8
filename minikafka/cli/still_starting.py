"""What `cluster up` says while its brokers need long to start, as on a machine that does other things."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from types import TracebackType

import click

EVERY_S = 10.0


class StillStarting:
    """A context manager that prints a line to standard error every `every_s` seconds. `logs`: the last line of each broker's log."""

    def __init__(self, logs: Callable[[], str], *, every_s: float = EVERY_S, say: Callable[[str], object] | None = None) -> None:
        self._logs, self._every_s = logs, every_s
        self._say = say or (lambda text: click.echo(text, err=True))
        self._began_s = time.monotonic()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="still-starting", daemon=True)

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._began_s

    def __enter__(self) -> StillStarting:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """Say no more."""
        self._is_over.set()

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            self._say(progress(self.seconds, self._logs()))


def progress(seconds: float, logs: str) -> str:
    """The line, and what each broker's log says last."""
    try:
        wanting = round(os.getloadavg()[0])
    except (AttributeError, OSError):
        wanting = 0
    cores = os.cpu_count() or 1
    busy = f"; {wanting} programs want this machine's {cores} cores" if wanting > 2 * cores else ""
    return "\n".join([f"still starting after {seconds:.0f} s{busy}", *(f"  {line}" for line in logs.splitlines())])
