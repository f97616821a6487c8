"""Tests marked `java` run a real Apache Kafka, those marked `browser` a headless Chromium; where one is missing they are deselected, and
the summary says why."""

from __future__ import annotations

import compileall
import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from helpers import apache_kafka, prometheus
from helpers import browser as chromium
from helpers.coverage_pause import coverage_at_first
from helpers.patience import pytest_timeout_set_timer

import minikafka.core.group.coordinator  # noqa: F401 - the first group in a process waits no longer than the others

__all__ = ["pytest_timeout_set_timer"]

_REASONS = pytest.StashKey[list[str]]()
_NEEDS = {
    "java": ("a real Apache Kafka", apache_kafka.missing),
    "browser": ("a browser", chromium.missing),
    "prometheus": ("a real Prometheus", prometheus.missing),
}

#: Spark's two JVMs, the one that finds the command and the driver: they live too short for the second compiler and parallel collectors.
_OF_SPARK = ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS")

# Files with few, long tests begin first, so that no worker is left with one of them when the other has nothing more to do.
_BEGIN_FIRST = ("chaos", "sim", "interop", "kafka_suite", "kafkatest", "spark", "system")


def _begins(item: pytest.Item) -> int:
    folder = item.path.relative_to(item.config.rootpath / "tests").parts[0]
    return _BEGIN_FIRST.index(folder) if folder in _BEGIN_FIRST else len(_BEGIN_FIRST)


def pytest_configure(config: pytest.Config) -> None:
    for name in _OF_SPARK:
        os.environ.setdefault(name, "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    if not hasattr(config, "workerinput"):
        compile_the_package(config.rootpath)
    config.addinivalue_line("markers", "java: runs a real Apache Kafka (needs Java 17 or newer and Maven)")
    config.addinivalue_line("markers", "browser: runs a headless Chromium (needs chromium and chromedriver)")
    config.addinivalue_line("markers", "prometheus: runs a real Prometheus (Debian's package), only by `pytest -m prometheus`")
    config.addinivalue_line("markers", "interop: longer tests of mixed clusters, only run by `pytest -m interop`")
    config.addinivalue_line("markers", "kafkatest: longer scenarios of Apache Kafka's system tests, only run by `pytest -m kafkatest`")
    config.addinivalue_line("markers", "security: longer tests of TLS and SASL, only run by `pytest -m security tests/security`")


def compile_the_package(root: Path) -> None:
    """Hundreds of processes import it from here; where Python is told to write no bytecode, each would compile all of it for a second."""
    for folder in ("minikafka", "wire", "storage"):
        compileall.compile_dir(root / folder, quiet=2)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for marker, (what, missing) in _NEEDS.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = missing() if marked else None
        if reason is not None:
            config.stash.setdefault(_REASONS, []).append(f"{len(marked)} tests with {what} deselected: {reason}")
            config.hook.pytest_deselected(items=marked)
            items[:] = [item for item in items if item not in marked]
        elif marked and marker == "java":
            apache_kafka.prepare()
    items.sort(key=_begins)


def pytest_collection_finish() -> None:
    """What there is now stays until the end. Every full collection of garbage would walk through it, and the simulator makes one a seed."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    with coverage_at_first():
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for reason in config.stash.get(_REASONS, []):
        terminalreporter.write_line(reason)
