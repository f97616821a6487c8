"""Loggers as configurations (resource type 8, KIP-412): this process's loggers under their own names and under Kafka's.

Rules and texts are those of Kafka's RuntimeLoggerManager. Levels are not stored: a restart forgets them, as in Kafka. Brokers that are
threads of one process share them.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable

from minikafka.broker.admin.kafka_loggers import KAFKA_LOGGERS, OWN
from minikafka.core.node_id import parse_node_id
from minikafka.wire.errors import ApiError, ErrorCode

ROOT = "root"
TRACE = 5
LEVELS = {
    "DEBUG": logging.DEBUG, "ERROR": logging.ERROR, "FATAL": logging.CRITICAL, "INFO": logging.INFO, "TRACE": TRACE,
    "WARN": logging.WARNING,
}  # fmt: skip
SET, DELETE, APPEND, SUBTRACT = range(4)


def levels() -> dict[str, str]:
    """Kafka's level by logger name, sorted by name."""
    return {name: _level_name(_logger(name).getEffectiveLevel()) for name in sorted(_names())}


def _names() -> set[str]:
    own = {name for name in logging.Logger.manager.loggerDict if name == OWN or name.startswith(f"{OWN}.")}
    return {ROOT, *own, *KAFKA_LOGGERS}


def check_broker_id(name: str, node_id: int) -> None:
    """Raises ApiError INVALID_REQUEST if the resource is not this broker: loggers belong to the broker that gets the request."""
    number = parse_node_id(name)
    if number is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if number != node_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {name}")


def alter(changes: Iterable[tuple[str, int, str | None]], *, validate_only: bool) -> None:
    """Apply changes (logger, operation, level). Raises ApiError before it applies any."""
    changes, names = list(changes), _names()
    for name, operation, level in changes:
        _check(name, operation, level, names)
    for name, operation, level in () if validate_only else changes:
        _logger(name).setLevel(LEVELS[str(level)] if operation == SET else logging.NOTSET)


def _check(name: str, operation: int, level: str | None, names: Container[str]) -> None:
    if operation in (APPEND, SUBTRACT):
        word = "APPEND" if operation == APPEND else "SUBTRACT"
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{word} operation is not allowed for the BROKER_LOGGER resource")
    if operation not in (SET, DELETE):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation} is not allowed for the BROKER_LOGGER resource")
    if name not in names:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == DELETE and name == ROOT:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")
    if operation == SET and level not in LEVELS:
        text = f"Cannot set the log level of {name} to {level} as it is not a supported log level. Valid log levels are {','.join(LEVELS)}"
        raise ApiError(ErrorCode.INVALID_CONFIG, text)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else KAFKA_LOGGERS.get(name, name))


def _level_name(level: int) -> str:
    """Kafka's level that logs the same records."""
    return min(LEVELS, key=lambda name: (LEVELS[name] < level, LEVELS[name])) if level <= logging.CRITICAL else "FATAL"
