"""Requests with very many entries take time in proportion: one that took its square held every controller for a minute.

There is no clock here: with a search through a list for each entry none of these would end within the time limit of a test.
"""

from __future__ import annotations

import pytest
from helpers.controller_core import ControllerDriver

from minikafka.core.controller.configs import APPEND, SET, SUBTRACT, ConfigControl
from minikafka.core.group.classic import ClassicGroup
from minikafka.core.group.member import Member
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.delete_acls import DeleteAclsRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.types import STRING_BYTES_MAX

MANY = 200_000


class AnyList:
    def is_list(self, kind: int, key: str) -> bool:
        return True


def test_changes_of_many_users() -> None:
    driver = ControllerDriver()
    kind = AlterUserScramCredentialsRequest
    request = kind(deletions=[kind.ScramCredentialDeletion(name=f"u{number}", mechanism=1) for number in range(MANY)])
    results = driver.do(request).results
    assert len(results) == MANY and {one.error_code for one in results} == {ErrorCode.RESOURCE_NOT_FOUND}


def test_acls_beyond_what_a_request_may_make() -> None:
    driver = ControllerDriver()
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=2, resource_name=f"t{number}", resource_pattern_type=3, principal="User:a", host="*", operation=3,
            permission_type=3,
        )
        for number in range(MANY)
    ]
    with pytest.raises(ApiError) as raised:
        driver.do(CreateAclsRequest(creations=creations))
    assert raised.value.code is ErrorCode.POLICY_VIOLATION
    assert len(driver.do(CreateAclsRequest(creations=creations[:10_000])).results) == 10_000


def test_a_list_to_which_much_is_appended() -> None:
    control = ConfigControl.__new__(ConfigControl)
    control.rules = AnyList()  # type: ignore[assignment]
    values = {"k": ",".join(f"{number}:1" for number in range(MANY))}
    more = ",".join(f"{number}:1" for number in range(MANY // 2, 2 * MANY))
    control._operate(2, "k", APPEND, more, values)
    assert values["k"].split(",") == [f"{number}:1" for number in range(2 * MANY)]
    control._operate(2, "k", SUBTRACT, more, values)
    assert values["k"].split(",") == [f"{number}:1" for number in range(MANY // 2)]


def test_members_with_many_protocols() -> None:
    names = [f"p{number}" for number in range(MANY)]
    group = ClassicGroup("g", 0)
    first = Member("m", None, "c", "h", 1000, 1000, "consumer", [(name, b"") for name in names])
    group.protocol_type = "consumer"
    group.members["m"] = first
    assert group.supports("consumer", ["other", *reversed(names)])
    assert not group.supports("consumer", [f"q{number}" for number in range(MANY)])
    group.members["n"] = Member("n", None, "c", "h", 1000, 1000, "consumer", [(name, b"") for name in reversed(names)])
    assert group.select_protocol() in ("p0", names[-1])


def test_a_value_that_grows_beyond_what_a_record_takes_is_refused() -> None:
    driver = ControllerDriver()
    kind = IncrementalAlterConfigsRequest

    def append(value: str) -> int:
        config = kind.AlterableConfig(name="cleanup.policy", config_operation=SET, value=value)
        resource = kind.AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
        return int(driver.do(kind(resources=[resource])).responses[0].error_code)

    assert append("compact") == ErrorCode.NONE
    assert append("x" * (STRING_BYTES_MAX + 1)) == ErrorCode.INVALID_CONFIG


def acl_filter(**fields: object) -> DeleteAclsRequest.DeleteAclsFilter:
    kinds = dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), 1)
    names = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    return DeleteAclsRequest.DeleteAclsFilter(**{**kinds, **names, **fields})


def test_many_filters_of_many_acls() -> None:
    driver = ControllerDriver()
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=2, resource_name=f"t{number}", resource_pattern_type=3, principal=f"User:{number}", host="*", operation=3,
            permission_type=3,
        )
        for number in range(10_000)
    ]
    driver.do(CreateAclsRequest(creations=creations))
    # By name, by principal, and the same filter time and again: no look at every ACL for each.
    filters = [acl_filter(resource_name_filter=f"t{number}") for number in range(4_000)]
    filters += [acl_filter(principal_filter=f"User:{number}") for number in range(4_000, 8_000)]
    answer = driver.do(DeleteAclsRequest(filters=[*filters, *[acl_filter(host_filter="1.2.3.4")] * 8_000]))
    assert sum(len(one.matching_acls) for one in answer.filter_results) == 8_000
    # What has to be looked for among all of them, with ever another filter, has an end.
    few = [acl_filter(host_filter=f"host{number}") for number in range(20)]
    assert len(driver.do(DeleteAclsRequest(filters=few)).filter_results) == 20
    with pytest.raises(ApiError) as raised:
        driver.do(DeleteAclsRequest(filters=[acl_filter(host_filter=f"host{number}") for number in range(4_000)]))
    assert raised.value.code is ErrorCode.POLICY_VIOLATION
    # And what is named for several filters counts for each.
    with pytest.raises(ApiError):
        driver.do(DeleteAclsRequest(filters=[acl_filter()] * 6))
    assert len(driver.do(DeleteAclsRequest(filters=[acl_filter()] * 5)).filter_results[4].matching_acls) == 2_000
