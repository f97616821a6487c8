"""Format of the broker's log: plain lines for people, or one JSON object per line for machines."""

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

#: log4j's level names that Python does not have.
LOG4J_LEVELS = {"ALL": "DEBUG", "TRACE": "DEBUG", "WARN": "WARNING", "FATAL": "CRITICAL", "OFF": "CRITICAL"}


def log_level(name: str) -> str:
    """Python's name of a log level that is given as in Python or log4j, in any letter case. Raises ConfigurationError."""
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
        """The record as one line of JSON."""
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
    """Make the root logger write JSON to standard output."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter(node_id))
    logging.getLogger().handlers[:] = [handler]
