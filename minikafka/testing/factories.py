"""Functions that make pytest fixtures, for suites that need other clusters than the plugin's.

from minikafka.testing import factories

big_proc = factories.kafka_proc(brokers=5, config={"min.insync.replicas": 2}, mode="process")
big = factories.kafka("big_proc")
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

BROKERS_DEFAULT = 3


def kafka_proc(
    brokers: int | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    mode: str | None = None,
    scope: Any = "session",
    **options: Any,
) -> Any:
    """A fixture with an EmbeddedCluster; the command line gives the defaults (--kafka-brokers, --kafka-mode)."""

    @pytest.fixture(scope=scope)
    def cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
        from minikafka.testing.embedded import EmbeddedCluster

        settings = request.config
        keep = settings.getoption("kafka_keep_logs")
        directory = Path(tempfile.mkdtemp(prefix="minikafka-", dir=_make_directory(keep))) if keep else None
        made = EmbeddedCluster(
            brokers or settings.getoption("kafka_brokers") or BROKERS_DEFAULT,
            config=config,
            mode=mode or settings.getoption("kafka_mode") or "thread",  # type: ignore[arg-type]
            log_level=settings.getoption("kafka_log_level"),
            directory=directory,
            **options,
        )
        with made:
            yield made
        if directory is not None:
            for data in directory.glob("broker-*/data"):
                shutil.rmtree(data, ignore_errors=True)

    return cluster


def _make_directory(path: str) -> str:
    Path(path).mkdir(parents=True, exist_ok=True)
    return path


def kafka_noproc(bootstrap_servers: str | None = None, *, scope: Any = "session") -> Any:
    """A fixture with an ExternalCluster at this address, or at --kafka-bootstrap-servers."""

    @pytest.fixture(scope=scope)
    def external(request: pytest.FixtureRequest) -> Iterator[Any]:
        from minikafka.client.errors import ClientError
        from minikafka.testing.handle import ExternalCluster

        address = bootstrap_servers or request.config.getoption("kafka_bootstrap_servers")
        if not address:
            pytest.fail("kafka_noproc needs --kafka-bootstrap-servers HOST:PORT", pytrace=False)
        made, reason = ExternalCluster(address), ""
        try:
            made.check()
        except (ClientError, OSError, TimeoutError) as error:
            made.close()
            reason = str(error)
        if reason:
            pytest.fail(f"the cluster of --kafka-bootstrap-servers cannot be used: {reason}", pytrace=False)
        yield made
        made.close()

    return external


def kafka(process: str) -> Any:
    """A fixture for one test: a KafkaHandle on the cluster of the fixture `process`, or on the external one if
    --kafka-bootstrap-servers is given. It first repairs a cluster that the last test broke."""

    @pytest.fixture
    def handle(request: pytest.FixtureRequest) -> Iterator[Any]:
        from minikafka.testing.handle import KafkaHandle

        external = request.config.getoption("kafka_bootstrap_servers")
        cluster = request.getfixturevalue("kafka_noproc" if external else process)
        if hasattr(cluster, "repair"):
            cluster.repair()
        made = KafkaHandle(cluster)
        yield made
        made.close()

    return handle


def kafka_topic(
    handle: str = "kafka", *, partitions: int = 1, replication_factor: int = -1, configs: Mapping[str, Any] | None = None
) -> Any:
    """A fixture that creates a topic for one test; its value is the topic's name."""

    @pytest.fixture
    def topic(request: pytest.FixtureRequest) -> str:
        made: str = request.getfixturevalue(handle).topic("topic", partitions, replication_factor, configs)
        return made

    return topic
