"""Of several faults of a change of configurations, the one is named that Apache Kafka 4.4 names (it was asked)."""

from __future__ import annotations

import pytest
from helpers.controller_core import ControllerDriver

from minikafka.core.controller.configs import APPEND, DELETE, SET, SUBTRACT
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_configs import AlterConfigsRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32
NULL = [("retention.ms", SET, None)]
NO_LIST_EITHER = [("segment.bytes", 9, "1"), ("retention.ms", APPEND, "5")]
TWICE = [("retention.ms", SUBTRACT, "1"), ("retention.ms", SET, "2")]
NO_LIST = [("retention.ms", APPEND, "5")]
BAD = [("retention.ms", SET, "x")]
UNKNOWN = [("no.such", SET, "1")]
GOOD = [("retention.ms", SET, "5")]
GONE = [("retention.ms", DELETE, None)]
FAULTS = [
    (TOPIC, "t", NULL, "INVALID_REQUEST"), (TOPIC, "t", TWICE, "INVALID_REQUEST"), (TOPIC, "t", NO_LIST, "INVALID_CONFIG"),
    (TOPIC, "missing", NULL, "INVALID_REQUEST"), (TOPIC, "missing", TWICE, "INVALID_REQUEST"), (TOPIC, "missing", BAD, "INVALID_CONFIG"),
    (TOPIC, "missing", NO_LIST, "INVALID_CONFIG"), (TOPIC, "missing", UNKNOWN, "INVALID_CONFIG"),
    (TOPIC, "missing", GOOD, "UNKNOWN_TOPIC_OR_PARTITION"), (TOPIC, "missing", GONE, "UNKNOWN_TOPIC_OR_PARTITION"),
    (TOPIC, "missing", [], "UNKNOWN_TOPIC_OR_PARTITION"), (TOPIC, "", NO_LIST, "INVALID_CONFIG"), (TOPIC, "", BAD, "INVALID_REQUEST"),
    (TOPIC, "bad name", NULL, "INVALID_REQUEST"), (TOPIC, "bad name", NO_LIST, "INVALID_CONFIG"),
    (TOPIC, "bad name", BAD, "INVALID_TOPIC_EXCEPTION"), (TOPIC, "bad name", [], "INVALID_TOPIC_EXCEPTION"),
    (GROUP, "g", NULL, "INVALID_REQUEST"), (GROUP, "g", [*UNKNOWN, *NULL], "INVALID_REQUEST"), (GROUP, "", NO_LIST, "INVALID_CONFIG"),
    (GROUP, "", GOOD, "INVALID_REQUEST"), (METRICS, "m", TWICE, "INVALID_REQUEST"), (METRICS, "", NO_LIST, "INVALID_CONFIG"),
    (TOPIC, "missing", NO_LIST_EITHER, "INVALID_CONFIG"),
    (BROKER, "", NULL, "INVALID_REQUEST"), (BROKER, "", TWICE, "INVALID_REQUEST"), (BROKER, "x", NO_LIST, "INVALID_REQUEST"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "changes", "code"), FAULTS)
def test_one_fault_is_named(kind: int, name: str, changes: list[tuple[str, int, str | None]], code: str) -> None:
    driver = ControllerDriver()
    driver.start(1)
    driver.create("t")
    request = IncrementalAlterConfigsRequest
    configs = [request.AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    answer = driver.do(request(resources=[resource]))
    assert (ErrorCode(answer.responses[0].error_code).name, driver.last_records) == (code, [])


@pytest.mark.parametrize(("kind", "name", "changes", "code"), [row for row in FAULTS if all(change[1] == SET for change in row[2])])
def test_one_fault_is_named_by_the_older_api(kind: int, name: str, changes: list[tuple[str, int, str | None]], code: str) -> None:
    driver = ControllerDriver()
    driver.start(1)
    driver.create("t")
    request = AlterConfigsRequest
    configs = [request.AlterableConfig(name=key, value=value) for key, _, value in changes]
    resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    answer = driver.do(request(resources=[resource]))
    assert (ErrorCode(answer.responses[0].error_code).name, driver.last_records) == (code, [])


def test_directly_at_the_controller_directories_are_only_taken_out_of_cordons() -> None:
    """As Apache Kafka 4.3's CordonedLogDirsIntegrationTest wants: only the broker, which knows its directories, adds one."""
    driver = ControllerDriver()
    driver.start(1)
    request = IncrementalAlterConfigsRequest

    def alter(value: str | None, operation: int = SET, is_direct: bool = True) -> tuple[str, int]:
        configs = [request.AlterableConfig(name="cordoned.log.dirs", config_operation=operation, value=value)]
        resource = request.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=configs)
        answer = driver.do(request(resources=[resource]), is_direct=is_direct)
        return ErrorCode(answer.responses[0].error_code).name, len(driver.last_records)

    assert alter("/a") == ("INVALID_CONFIG", 0)
    assert alter("") == ("NONE", 1)
    assert alter("/a,/b", is_direct=False) == ("NONE", 1)
    assert alter("/b , /a") == ("NONE", 1)
    assert alter("/a") == ("NONE", 1)
    assert alter("/b", APPEND) == ("INVALID_CONFIG", 0)
    assert alter(None, DELETE) == ("NONE", 1)
    assert alter("/a") == ("INVALID_CONFIG", 0)
