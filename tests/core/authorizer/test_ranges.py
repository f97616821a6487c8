"""Ranges of addresses in ACLs: read as Apache Kafka 4.4.0 reads them, and what is in them."""

from __future__ import annotations

import pytest
from helpers.controller_core import ControllerDriver

from minikafka.core.authorizer import ranges
from minikafka.core.authorizer.acl import Acl, Operation, PatternType, Permission, ResourceType
from minikafka.core.authorizer.authorizer import AclAuthorizer
from minikafka.core.authorizer.ranges import Peer, Place
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
        ("::/0", ["::1", "fe80::1%eth0"], ["1.2.3.4"]),
        ("0:0:0:0:0:0:0:1", ["::1"], ["::2", "0.0.0.1"]),
        ("2001:DB8:0:0:0:0:0:1", ["2001:db8::1"], ["2001:db8::2"]),
        ("fe80:0:0:0:0:0:0:1%eth0", ["fe80::1%eth0"], ["fe80::1%eth1", "fe80::1"]),
        ("fe80::1", ["fe80::1%eth0", "fe80::1"], ["fe80::2%eth0"]),
        ("::ffff:10.0.0.1", [], ["10.0.0.1"]),
        ("somehost", [], ["somehost"]),
    ],
)
def test_membership_of_ranges(text: str, inside: list[str], outside: list[str]) -> None:
    place = Place.of(text)
    assert all(place is not None and place.holds(Peer.of(host)) for host in inside)
    assert not any(place is not None and place.holds(Peer.of(host)) for host in outside)


def test_a_deny_for_an_address_holds_however_the_address_is_written() -> None:
    """Kafka writes all groups: such an ACL comes with its metadata, and was not heeded."""
    authorizer = AclAuthorizer()
    acls = [
        Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", host, Operation.READ, permission)
        for host, permission in (("*", Permission.ALLOW), ("2001:db8:0:0:0:0:0:1", Permission.DENY), ("name", Permission.DENY))
    ]
    authorizer.replace({bytes([number]) * 16: acl.to_record(bytes([number]) * 16) for number, acl in enumerate(acls)})
    hosts = ("2001:db8::1", "2001:db8::2", "name", "x" * 5000)
    assert [authorizer.decide("User:a", host, Operation.READ, ResourceType.TOPIC, "t").is_allowed for host in hosts] == [
        False, True, False, True,
    ]  # fmt: skip
    assert not authorizer.allows_some("User:b", hosts[0], Operation.READ, ResourceType.TOPIC)


def test_ranges_are_read_once_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were read again for each decision when there were more of them than a cache had room for."""
    authorizer, count = AclAuthorizer(), 5000
    acls = [
        Acl(ResourceType.TOPIC, "*", PatternType.LITERAL, "User:*", f"10.{n >> 8}.{n & 255}.0/24", Operation.ALL, Permission.DENY)
        for n in range(count)
    ]
    authorizer.replace({number.to_bytes(16): acl.to_record(number.to_bytes(16)) for number, acl in enumerate(acls)})
    monkeypatch.setattr(ranges, "parsed", None)
    asked: list[str] = []
    read = Peer.of
    monkeypatch.setattr(Peer, "of", lambda host: asked.append(host) or read(host))
    for name in ("t", "u"):
        assert authorizer.decide("User:a", "11.0.0.1", Operation.READ, ResourceType.TOPIC, name).rule
        assert authorizer.decide("User:a", "10.1.2.3", Operation.READ, ResourceType.TOPIC, name).acl is not None
    assert len(asked) == 4


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
