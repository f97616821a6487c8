"""Ranges of addresses in ACLs: read as Apache Kafka 4.4.0 reads them, and what is in them."""

from __future__ import annotations

import pytest
from helpers.controller_core import ControllerDriver

from minikafka.core.authorizer.acl import Acl, Operation, PatternType, Permission, ResourceType
from minikafka.core.authorizer.authorizer import AclAuthorizer
from minikafka.core.authorizer.ranges import contains
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.update_features import UpdateFeaturesRequest

TOO_OLD = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
MAPPED = "0:0:0:0:0:ffff:0a00:0"


def created(driver: ControllerDriver, host: str) -> tuple[int, str | None]:
    acl = CreateAclsRequest.AclCreation(
        resource_type=ResourceType.TOPIC, resource_name="x", resource_pattern_type=PatternType.LITERAL, principal="User:a", host=host,
        operation=Operation.READ, permission_type=Permission.ALLOW,
    )  # fmt: skip
    (result,) = driver.do(CreateAclsRequest(creations=[acl])).results
    return result.error_code, result.error_message


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("10.0.0.0/8", None), ("10.0.0.1/8", None), ("10.0.0.0/0", None), ("10.0.0.0/08", None), ("fe80::/10", None), ("::1/128", None),
        ("1.2.3.4", None), ("*", None), ("somehost", None),
        ("10.0.0.0/33", "Value [33] not in range [0,32]"), ("10.0.0.0/", "Could not parse [10.0.0.0/]"),
        ("10.0.0/8", "Could not parse [10.0.0/8]"), ("10.0.0.0/-1", "Could not parse [10.0.0.0/-1]"), ("a/8", "Could not parse [a/8]"),
        ("10.0.0.0/8/8", "Could not parse [10.0.0.0/8/8]"), (f"{MAPPED}/104", f"Could not parse [{MAPPED}] - not an IPv6 address"),
        ("10.0.0.256/8", "Value [256] not in range [0,255]"), ("fe80::/129", "Value [129] not in range [0,128]"),
        (":::/1", "Could not parse [:::]"), ("a" * 5000 + "/8", f"Could not parse [{'a' * 5000}/8]"),
    ],
)  # fmt: skip
def test_ranges_are_taken_from_metadata_version_32_on(host: str, why: str | None) -> None:
    driver = ControllerDriver()
    code, message = created(driver, host)
    assert (code, message or None) == ((ErrorCode.UNSUPPORTED_VERSION, TOO_OLD) if "/" in host else (0, None))
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="metadata.version", max_version_level=32)
    driver.do(UpdateFeaturesRequest(feature_updates=[update]))
    code, message = created(driver, host)
    assert (code, message or None) == ((0, None) if why is None else (ErrorCode.INVALID_REQUEST, f"Invalid CIDR notation '{host}': {why}"))


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("10.0.0.1/8", ["10.0.0.0", "10.255.255.255"], ["11.0.0.0", "fe80::1", "local", ""]),
        ("10.1.2.3/32", ["10.1.2.3"], ["10.1.2.2"]),
        ("0.0.0.0/0", ["1.2.3.4"], ["::1"]),
        ("fe80::/10", ["fe80::1", "febf::"], ["fec0::", "10.0.0.1"]),
        ("10.0.0.0/99", [], ["10.0.0.0"]),
    ],
)
def test_what_is_in_a_range(text: str, inside: list[str], outside: list[str]) -> None:
    assert all(contains(text, host) for host in inside) and not any(contains(text, host) for host in outside)


def test_a_deny_for_a_range_outweighs_an_allow() -> None:
    authorizer = AclAuthorizer()
    made = [
        Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", host, Operation.READ, permission)
        for host, permission in (("10.0.0.0/8", Permission.ALLOW), ("10.9.0.0/16", Permission.DENY))
    ]
    authorizer.replace({bytes([number]) * 16: acl.to_record(bytes([number]) * 16) for number, acl in enumerate(made)})
    decide, hosts = authorizer.decide, ("10.1.1.1", "10.9.1.1", "9.1.1.1")
    allowed = {host: decide("User:a", host, Operation.READ, ResourceType.TOPIC, "t").is_allowed for host in hosts}
    assert allowed == {"10.1.1.1": True, "10.9.1.1": False, "9.1.1.1": False}
