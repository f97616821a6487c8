"""CreateAcls and DeleteAcls in the controller's core: what is written, what is refused and in which words."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.controller_core import ControllerDriver

from minikafka.core.metadata.records import image_records
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.delete_acls import DeleteAclsRequest
from minikafka.wire.records.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord

TOPIC, CLUSTER, LITERAL, MATCH, PREFIXED, READ, DENY, ALLOW = 2, 4, 3, 2, 4, 3, 2, 3
ANY = 1


def creation(**changes: Any) -> CreateAclsRequest.AclCreation:
    fields: dict[str, Any] = {
        "resource_type": TOPIC, "resource_name": "orders", "resource_pattern_type": LITERAL, "principal": "User:alice", "host": "*",
        "operation": READ, "permission_type": ALLOW,
    }  # fmt: skip
    return CreateAclsRequest.AclCreation(**{**fields, **changes})


def wanted(**changes: Any) -> DeleteAclsRequest.DeleteAclsFilter:
    fields: dict[str, Any] = {
        "resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY, "principal_filter": None,
        "host_filter": None, "operation": ANY, "permission_type": ANY,
    }  # fmt: skip
    return DeleteAclsRequest.DeleteAclsFilter(**{**fields, **changes})


@pytest.fixture
def driver() -> ControllerDriver:
    made = ControllerDriver()
    return made


def records(driver: ControllerDriver, kind: type) -> list[Any]:
    return [record for record in driver.log if type(record) is kind]


def test_each_acl_is_one_record_and_the_same_one_is_none(driver: ControllerDriver) -> None:
    driver.do(CreateAclsRequest(creations=[creation(), creation(), creation(operation=4)]))
    driver.do(CreateAclsRequest(creations=[creation()]))
    written = records(driver, AccessControlEntryRecord)
    assert [(r.principal, r.operation) for r in written] == [("User:alice", 3), ("User:alice", 4)]
    assert len({r.id for r in written}) == 2
    assert [r for r in image_records(driver.image) if type(r) is AccessControlEntryRecord] == written


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resource_type": CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": ANY}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": MATCH}, "Invalid patternType MATCH"),
        ({"operation": ANY}, "Invalid operation ANY"),
        ({"operation": 77}, "Invalid operation UNKNOWN"),
        ({"permission_type": ANY}, "Invalid permissionType ANY"),
        (
            {"principal": "alice"},
            "Could not parse principal from `alice` (no colon is present separating the principal type from the principal name)",
        ),
    ],
)
def test_an_invalid_acl_is_refused_alone(driver: ControllerDriver, changes: dict[str, Any], message: str) -> None:
    response = driver.do(CreateAclsRequest(creations=[creation(**changes), creation(principal="User:bob")]))
    assert [(r.error_code, r.error_message) for r in response.results] == [(ErrorCode.INVALID_REQUEST, message), (0, "")]
    assert [r.principal for r in records(driver, AccessControlEntryRecord)] == ["User:bob"]


def test_each_filter_lists_its_matches_and_they_are_removed_once(driver: ControllerDriver) -> None:
    driver.do(
        CreateAclsRequest(
            creations=[
                creation(), creation(resource_name="ord", resource_pattern_type=PREFIXED), creation(resource_name="*"),
                creation(resource_name="payments", permission_type=DENY),
            ]
        )
    )  # fmt: skip
    response = driver.do(
        DeleteAclsRequest(
            filters=[
                wanted(resource_name_filter="orders", pattern_type_filter=MATCH),
                wanted(resource_name_filter="orders", pattern_type_filter=LITERAL),
                wanted(operation=0),
                wanted(pattern_type_filter=0),
            ]
        )
    )
    names = [sorted(acl.resource_name for acl in result.matching_acls) for result in response.filter_results]
    assert names == [["*", "ord", "orders"], ["orders"], [], []]
    assert [(r.error_code, r.error_message) for r in response.filter_results[2:]] == [
        (ErrorCode.INVALID_REQUEST, "Unknown entryFilter."),
        (ErrorCode.INVALID_REQUEST, "Unknown patternFilter."),
    ]
    assert len(records(driver, RemoveAccessControlEntryRecord)) == 3
    assert [record.resource_name for record in driver.image.acls.values()] == ["payments"]
