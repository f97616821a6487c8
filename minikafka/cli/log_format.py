"""The broker's log: lines for people, or one JSON object a line with what machines look for."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime

from minikafka.broker.config.properties import ConfigurationError

CONSOLE = "%(asctime)s %(levelname)-5s %(name)s: %(message)s"
_PARTITION = re.compile(r"^([\w.-]+-\d+): ")
_EPOCH = re.compile(r"\bepoch (\d+)\b")

#: What log4j has besides Python's names.
LOG4J_LEVELS = {"ALL": "DEBUG", "TRACE": "DEBUG", "WARN": "WARNING", "FATAL": "CRITICAL", "OFF": "CRITICAL"}


def log_level(name: str) -> str:
    """The level of Python's logging that is called so there or in log4j, in any case. Raises ConfigurationError."""
    level = LOG4J_LEVELS.get(name.upper(), name.upper())
    if level not in logging.getLevelNamesMapping():
        raise ConfigurationError([f"log level {name}: must be debug, info, warning or error"])
    return level


class JsonFormatter(logging.Formatter):
    """timestamp (ISO 8601, UTC), level, logger, node, message; partition and epoch where the message names them; exception."""

    def __init__(self, node_id: int) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        message = record.getMessage()
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        entry: dict[str, object] = {"timestamp": when, "level": record.levelname, "logger": record.name, "node": self._node_id}
        partition, epoch = _PARTITION.match(message), _EPOCH.search(message)
        if partition is not None:
            entry["partition"] = partition[1]
        if epoch is not None:
            entry["epoch"] = int(epoch[1])
        entry["message"] = message
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def use_json(node_id: int) -> None:
    """From now on the root logger writes JSON to the standard output."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter(node_id))
    logging.getLogger().handlers[:] = [handler]
