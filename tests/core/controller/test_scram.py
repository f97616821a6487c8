"""AlterUserScramCredentials in the controller's core: the faults of Apache Kafka's ScramControlManager, in its order."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.controller_core import ControllerDriver

from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest

KIND = AlterUserScramCredentialsRequest
SHA_256, SHA_512 = 1, 2


def upsertion(name: str, mechanism: int = SHA_256) -> Any:
    return KIND.ScramCredentialUpsertion(name=name, mechanism=mechanism, iterations=4096, salt=b"salt", salted_password=b"p" * 32)


def deletion(name: str, mechanism: int = SHA_256) -> Any:
    return KIND.ScramCredentialDeletion(name=name, mechanism=mechanism)


@pytest.mark.parametrize(
    ("deletions", "upsertions", "codes"),
    [
        ([deletion("u")], [upsertion("u")], {"u": ErrorCode.RESOURCE_NOT_FOUND}),
        ([deletion("u"), deletion("u")], [], {"u": ErrorCode.RESOURCE_NOT_FOUND}),
        ([deletion("old")], [upsertion("old")], {"old": ErrorCode.DUPLICATE_RESOURCE}),
        ([], [upsertion("u"), upsertion("u"), upsertion("v")], {"u": ErrorCode.DUPLICATE_RESOURCE, "v": ErrorCode.NONE}),
        ([], [upsertion("u"), upsertion("u", SHA_512)], {"u": ErrorCode.NONE}),
    ],
)
def test_the_first_fault_of_a_user_is_named(deletions: list[Any], upsertions: list[Any], codes: dict[str, ErrorCode]) -> None:
    driver = ControllerDriver()
    driver.start(1)
    driver.do(KIND(upsertions=[upsertion("old")]))
    answer = driver.do(KIND(deletions=deletions, upsertions=upsertions))
    assert {result.user: result.error_code for result in answer.results} == codes
    changed = {name for name, _ in driver.image.scram}
    assert changed == {"old"} | {name for name, code in codes.items() if code is ErrorCode.NONE}
