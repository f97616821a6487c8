"""Loggers as configurations (KIP-412): described, altered, refused, as Kafka's RuntimeLoggerManager does."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.broker.admin import broker_loggers
from minikafka.broker.admin.kafka_loggers import KAFKA_LOGGERS
from minikafka.client import Admin, BrokerError
from minikafka.wire.errors import ApiError, ErrorCode

LOGGERS = 8


@pytest.fixture(autouse=True)
def levels_as_before() -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in broker_loggers.levels()}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


async def test_levels_are_shown_and_changed_under_our_names_and_kafkas(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node, Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        await admin.alter_configs(LOGGERS, "1", [("set", "minikafka.raft", "DEBUG"), ("set", "kafka.controller.KafkaController", "ERROR")])
        found = {entry.name: (entry.value, entry.source) for entry in await admin.describe_configs(LOGGERS, "1")}
        assert found["minikafka.raft"] == found["org.apache.kafka.raft"] == ("DEBUG", 6)
        assert found["minikafka.controller"] == found["kafka.controller"] == ("ERROR", 6)
        assert logging.getLogger("minikafka.raft").isEnabledFor(logging.DEBUG)
        await admin.alter_configs(LOGGERS, "1", [("delete", "minikafka.raft", None)])
        [entry] = await admin.describe_configs(LOGGERS, "1", ["minikafka.raft"])
        assert entry.value == broker_loggers.levels()["minikafka"], "without a level of its own it has its parent's"


@pytest.mark.parametrize(
    ("broker", "change", "code", "text"),
    [
        ("2", ("set", "root", "INFO"), ErrorCode.INVALID_REQUEST, "Unexpected node id. Expected 1, but received 2"),
        ("x", ("set", "root", "INFO"), ErrorCode.INVALID_REQUEST, "must be an integer"),
        ("1", ("set", "no.such.logger", "INFO"), ErrorCode.INVALID_CONFIG, "Logger no.such.logger does not exist!"),
        ("1", ("set", "root", "LOUD"), ErrorCode.INVALID_CONFIG, "not a supported log level"),
        ("1", ("set", "root", None), ErrorCode.INVALID_REQUEST, "Null value not supported for : root"),
        ("1", ("delete", "minikafka.net", None), ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys"),
        ("1", ("delete", "root", None), ErrorCode.INVALID_REQUEST, "root logger is not allowed"),
        ("1", ("append", "root", "INFO"), ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed"),
    ],
)
async def test_what_is_refused_changes_nothing(
    tmp_path: Path, broker: str, change: tuple[str, str, str | None], code: ErrorCode, text: str
) -> None:
    async with live_node(tmp_path) as node, Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        before = broker_loggers.levels()
        # Beside a change that is fine: all of a resource or nothing. The client would look for broker 2, which there is not.
        admin._own_broker = lambda *_: 1  # type: ignore[method-assign]
        with pytest.raises(BrokerError, match=text) as raised:
            await admin.alter_configs(LOGGERS, broker, [("set", "minikafka.net", "TRACE"), change])
        assert raised.value.code == code
        assert broker_loggers.levels() == before


def test_nothing_is_changed_when_a_change_is_only_tried() -> None:
    before = broker_loggers.levels()
    broker_loggers.alter([("root", broker_loggers.SET, "TRACE")], validate_only=True)
    assert broker_loggers.levels() == before
    with pytest.raises(ApiError):
        broker_loggers.alter([("root", 9, "TRACE")], validate_only=True)


def test_every_logger_of_apache_kafka_is_one_that_this_package_writes_to() -> None:
    package = Path(broker_loggers.__file__).parents[2]
    written = {name for path in package.rglob("*.py") for name in re.findall(r'getLogger\("([\w.]+)"\)', path.read_text())}
    assert set(KAFKA_LOGGERS.values()) <= written | {"minikafka"}
    assert KAFKA_LOGGERS["kafka.log.LogCleaner"] == KAFKA_LOGGERS["org.apache.kafka.storage.internals.log.LogCleaner$CleanerThread"]
    assert KAFKA_LOGGERS["org.apache.kafka.server.quota.ClientQuotaManager$ThrottledChannelReaper"] == "minikafka.quotas"
    assert (KAFKA_LOGGERS["kafka"], KAFKA_LOGGERS["LogFutureTimestampLogger"]) == ("minikafka", "minikafka")


def test_what_has_no_level_of_its_own_has_its_parents_under_kafkas_names_too() -> None:
    broker_loggers.alter([("kafka", broker_loggers.SET, "TRACE")], validate_only=False)
    assert {broker_loggers.levels()[name] for name in ("kafka.server.ControllerServer", "kafka.log.LogCleaner")} == {"TRACE"}
    broker_loggers.alter([("kafka.log.LogCleaner", broker_loggers.SET, "ERROR")], validate_only=False)
    assert broker_loggers.levels()["kafka.server.ControllerServer"] == "TRACE"
    broker_loggers.alter([("kafka.log.LogCleaner", broker_loggers.DELETE, "")], validate_only=False)
    assert broker_loggers.levels()["kafka.log.LogCleaner"] == "TRACE"
