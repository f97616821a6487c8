"""Tests marked `java` run a real Apache Kafka; where Java or Maven is missing they are deselected, and the summary
says why."""

from __future__ import annotations

import pytest
from helpers import apache_kafka

_REASON = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "java: runs a real Apache Kafka (needs Java 17 or newer and Maven)")
    config.addinivalue_line("markers", "interop: longer tests of mixed clusters, only run by `pytest -m interop`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("java")]
    reason = apache_kafka.missing() if marked else None
    if reason is not None:
        config.stash[_REASON] = f"{len(marked)} tests with a real Apache Kafka deselected: {reason}"
        config.hook.pytest_deselected(items=marked)
        items[:] = [item for item in items if item not in marked]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reason = config.stash.get(_REASON, None)
    if reason is not None:
        terminalreporter.write_line(reason)
