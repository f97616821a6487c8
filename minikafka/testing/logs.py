"""Writes the brokers' logs to one file per broker, even if the brokers are threads of one process."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

LOGGERS = ("minikafka", "storage")
FORMAT = "%(asctime)s %(levelname)-5s %(name)s: %(message)s"


class ThreadLogs:
    """Writes the log lines of the brokers' threads to the brokers' files and hides them from the test's own handlers."""

    def __init__(self, tag: str, paths: Mapping[int, Path], level: str) -> None:
        """`tag` is the prefix of the thread names: tag-1-loop, tag-1-blocking."""
        self._handlers = [_file_handler(f"{tag}-{node_id}-", path) for node_id, path in paths.items()]
        self._prefix = f"{tag}-"
        self._loggers = [logging.getLogger(name) for name in LOGGERS]
        self._levels = [logger.level for logger in self._loggers]
        self._own = _OtherThreads(self._prefix)
        for logger in self._loggers:
            logger.setLevel(level)
            for handler in self._handlers:
                logger.addHandler(handler)
        for handler in logging.getLogger().handlers:
            handler.addFilter(self._own)

    def close(self) -> None:
        """Restore the logging configuration."""
        for logger, level in zip(self._loggers, self._levels, strict=True):
            for handler in self._handlers:
                logger.removeHandler(handler)
            logger.setLevel(level)
        for handler in logging.getLogger().handlers:
            handler.removeFilter(self._own)
        for handler in self._handlers:
            handler.close()


class _OtherThreads:
    """A filter that passes only records from other threads than the brokers'."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def filter(self, record: logging.LogRecord) -> bool:
        """logging.Filter."""
        return not (record.threadName or "").startswith(self._prefix)


def _file_handler(prefix: str, path: Path) -> logging.Handler:
    handler = logging.FileHandler(path, delay=True)
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.addFilter(lambda record: (record.threadName or "").startswith(prefix))
    return handler


def tail(title: str, path: Path, lines_max: int) -> str:
    """The last lines of a log, under a title line."""
    lines = path.read_text(errors="replace").splitlines()[-lines_max:] if path.is_file() else []
    return "\n".join([f"--- {title}", *lines])
