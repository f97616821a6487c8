"""Values of client quotas are taken and refused as by Apache Kafka 4.4 (it was asked)."""

from __future__ import annotations

import pytest
from helpers.controller_core import ControllerDriver

from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_client_quotas import AlterClientQuotasRequest

USER, ADDRESS = ("user", "u"), ("ip", "1.2.3.4")
RATE, CONNECTIONS, PERCENTAGE = "producer_byte_rate", "connection_creation_rate", "request_percentage"


def altered(entity: tuple[str, str], key: str, value: float, *, remove: bool = False) -> str | None:
    driver = ControllerDriver()
    driver.start(1)
    kind = AlterClientQuotasRequest
    operation = kind.OpData(key=key, value=value, remove=remove)
    entry = kind.EntryData(entity=[kind.EntityData(entity_type=entity[0], entity_name=entity[1])], ops=[operation])
    answer = driver.do(kind(entries=[entry])).entries[0]
    assert answer.error_code == (ErrorCode.NONE if answer.error_message is None else ErrorCode.INVALID_REQUEST)
    return answer.error_message


@pytest.mark.parametrize(
    ("entity", "key", "value", "fault"),
    [
        (USER, RATE, 0.0, f"Quota {RATE} must be greater than 0"),
        (USER, RATE, float("nan"), f"Quota {RATE} must be a finite number"),
        (USER, RATE, 1.5, f"{RATE} cannot be a fractional value."),
        (USER, RATE, 9.3e18, f"Proposed value for {RATE} is too large for a LONG."),
        (USER, RATE, 2147483648.0, None),
        (USER, PERCENTAGE, 1e308, None),
        (USER, PERCENTAGE, float("inf"), f"Quota {PERCENTAGE} must be a finite number"),
        (ADDRESS, CONNECTIONS, 2147483648.0, f"Proposed value for {CONNECTIONS} is too large for an INT."),
        (ADDRESS, CONNECTIONS, 100.0, None),
    ],
)
def test_values(entity: tuple[str, str], key: str, value: float, fault: str | None) -> None:
    assert altered(entity, key, value) == fault


@pytest.mark.parametrize("key", [RATE, CONNECTIONS, "nope"])
def test_whatever_is_not_there_can_be_removed(key: str) -> None:
    assert altered(USER, key, 1.0, remove=True) is None


def test_a_key_that_is_named_twice_changes_nothing_and_a_type_counts_with_its_last_name() -> None:
    driver = ControllerDriver()
    driver.start(1)
    kind = AlterClientQuotasRequest

    def alter(entity: list[tuple[str, str]], *operations: tuple[str, float, bool]) -> tuple[int, list[tuple[str, str | None]]]:
        named = [kind.EntityData(entity_type=type_, entity_name=name) for type_, name in entity]
        made = [kind.OpData(key=key, value=value, remove=is_removal) for key, value, is_removal in operations]
        answer = driver.do(kind(entries=[kind.EntryData(entity=named, ops=made)])).entries[0]
        return answer.error_code, [(part.entity_type, part.entity_name) for part in answer.entity]

    assert alter([USER], (RATE, 1.0, True), (RATE, 50.0, False)) == (ErrorCode.INVALID_REQUEST, [USER])
    assert not driver.image.client_quotas
    assert alter([("user", "v"), USER], (RATE, 50.0, False)) == (ErrorCode.NONE, [USER])
    assert dict(driver.image.client_quotas) == {(USER,): {RATE: 50.0}}
