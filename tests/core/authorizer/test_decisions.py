"""The authorizer against a twin that is as dumb as it is readable, and single rules of StandardAuthorizer by name."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.core.authorizer.acl import (
    OPERATIONS,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    operation_bits,
)
from minikafka.core.authorizer.authorizer import AclAuthorizer

T, Op, L, P = ResourceType.TOPIC, Operation, PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
NAMES = st.sampled_from(["a", "ab", "abc", "b", "ba", "*", "a*"])
ACLS = st.builds(
    Acl,
    st.sampled_from([T, ResourceType.GROUP]),
    NAMES,
    st.sampled_from([L, P]),
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", "10.0.0.1"]),
    st.sampled_from([Op.ALL, Op.READ, Op.WRITE, Op.DESCRIBE, Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS]),
    st.sampled_from([ALLOW, DENY]),
)
ASKED = st.tuples(
    st.sampled_from(["User:alice", "User:bob", "User:root"]),
    st.sampled_from(["10.0.0.1", "10.0.0.2"]),
    st.sampled_from([Op.READ, Op.WRITE, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS]),
    st.sampled_from([T, ResourceType.GROUP]),
    NAMES,
)


def twin(acls: Sequence[Acl], allow_everyone: bool, who: str, host: str, op: Operation, kind: ResourceType, name: str) -> bool:
    """The rules, one after the other."""
    if who == "User:root":
        return True
    about = [
        acl
        for acl in acls
        if acl.resource_type == kind
        and (acl.resource_name in (name, "*") if acl.pattern_type == L else name.startswith(acl.resource_name))
    ]
    mine = [acl for acl in about if acl.principal in (who, "User:*") and acl.host in (host, "*")]
    if any(acl.permission == DENY and acl.operation in (op, Op.ALL) for acl in mine):
        return False
    implying = {op, Op.ALL}
    if op == Op.DESCRIBE:
        implying |= {Op.READ, Op.WRITE, Op.DELETE, Op.ALTER}
    if op == Op.DESCRIBE_CONFIGS:
        implying |= {Op.ALTER_CONFIGS}
    if any(acl.permission == ALLOW and acl.operation in implying for acl in mine):
        return True
    return allow_everyone and not about


def authorizer(acls: Sequence[Acl], *, allow_everyone: bool = False) -> AclAuthorizer:
    made = AclAuthorizer(["User:root"], allow_everyone=allow_everyone)
    made.replace({bytes([number]) * 16: acl.to_record(bytes([number]) * 16) for number, acl in enumerate(acls)})
    return made


@settings(max_examples=100, deadline=None)
@given(st.lists(ACLS, max_size=8), st.booleans(), st.lists(ASKED, min_size=1, max_size=8))
def test_decides_as_its_twin(acls: list[Acl], allow_everyone: bool, asked: list[tuple[str, str, Operation, ResourceType, str]]) -> None:
    made = authorizer(acls, allow_everyone=allow_everyone)
    for question in asked + asked:  # the second time from what is remembered
        assert made.decide(*question).is_allowed == twin(acls, allow_everyone, *question)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), ACLS), max_size=8), st.lists(st.tuples(st.integers(0, 9), ACLS), max_size=8), ASKED)
def test_one_change_after_the_other_is_as_good_as_all_at_once(
    before: list[tuple[int, Acl]], after: list[tuple[int, Acl]], asked: tuple[str, str, Operation, ResourceType, str]
) -> None:
    def records(pairs: list[tuple[int, Acl]], salt: int) -> dict[bytes, Acl]:
        return {bytes([number, salt]): acl for number, acl in pairs}

    kept = {key: acl for key, acl in records(before, 0).items() if key[0] % 2}
    final = kept | records(after, 1)
    made = AclAuthorizer(["User:root"])
    for image in (records(before, 0), kept, final):
        generation = made.generation
        acls_before = set(made.acls)
        made.replace({key: acl.to_record(key) for key, acl in image.items()})
        assert made.generation > generation or acls_before == set(made.acls)
        made.decide(*asked)
    assert sorted(made.acls) == sorted(final.values())
    assert made.decide(*asked).is_allowed == twin(list(final.values()), False, *asked)


@settings(max_examples=60, deadline=None)
@given(st.lists(ACLS, max_size=6), st.sampled_from([Op.READ, Op.WRITE]))
def test_a_resource_that_may_be_used_is_a_resource_of_the_type_that_may_be_used(acls: list[Acl], operation: Operation) -> None:
    """authorizeByResourceType says yes when some name that ACLs speak of would be allowed, and no when none would."""
    made = authorizer(acls)
    names = [acl.resource_name for acl in acls if acl.pattern_type == P or acl.resource_name != "*"] + ["never-heard-of"]
    names += [f"{acl.resource_name}~" for acl in acls if acl.pattern_type == P]
    some = any(twin(acls, False, "User:alice", "10.0.0.1", operation, T, name) for name in names)
    assert made.allows_some("User:alice", "10.0.0.1", operation, T) == some


def test_deny_stands_before_allow_and_forbids_only_what_it_names() -> None:
    made = authorizer([Acl(T, "t", L, "User:a", "*", Op.READ, ALLOW), Acl(T, "t", L, "User:a", "*", Op.DESCRIBE, DENY)])
    assert made.decide("User:a", "h", Op.READ, T, "t").is_allowed
    assert not made.decide("User:a", "h", Op.DESCRIBE, T, "t").is_allowed
    made = authorizer([Acl(T, "t", L, "User:a", "*", Op.ALL, ALLOW), Acl(T, "t", L, "User:a", "*", Op.READ, DENY)])
    assert made.decide("User:a", "h", Op.DESCRIBE, T, "t").is_allowed
    assert not made.decide("User:a", "h", Op.READ, T, "t").is_allowed


def test_a_resource_that_an_acl_is_about_is_closed_to_all_others() -> None:
    made = authorizer([Acl(T, "t", P, "User:a", "*", Op.READ, ALLOW)], allow_everyone=True)
    assert made.decide("User:b", "h", Op.READ, T, "other").is_allowed
    assert not made.decide("User:b", "h", Op.READ, T, "t-1").is_allowed
    assert made.decide("User:b", "h", Op.READ, T, "t-1").rule == "no ACL allows it"


def test_a_decision_names_the_acl_that_made_it() -> None:
    acl = Acl(T, "t", L, "User:a", "10.0.0.1", Op.WRITE, DENY)
    decision = authorizer([acl]).decide("User:a", "10.0.0.1", Op.WRITE, T, "t")
    assert (decision.is_allowed, decision.acl) == (False, acl)
    assert str(decision.acl) == "DENY Write on Topic LITERAL 't' for User:a from 10.0.0.1"


def test_operations_as_bits_are_kafkas() -> None:
    assert operation_bits(OPERATIONS[T]) == 3576
    assert operation_bits(OPERATIONS[ResourceType.CLUSTER]) == 8096
    made = authorizer([Acl(T, "t", L, "User:a", "*", Op.WRITE, ALLOW)])
    assert made.operations("User:a", "h", T, "t") == [Op.WRITE, Op.DESCRIBE]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(), "abcd"),
        (AclFilter(T, "orders", L), "a"),
        (AclFilter(T, "orders", PatternType.ANY), "a"),
        (AclFilter(T, "ord", PatternType.ANY), "b"),
        (AclFilter(T, "orders", PatternType.MATCH), "abc"),
        (AclFilter(T, "other", PatternType.MATCH), "c"),
        (AclFilter(ResourceType.ANY, None, PatternType.ANY, "User:b"), "bd"),
        (AclFilter(operation=Op.READ, permission=DENY), "d"),
        (AclFilter(host="10.0.0.1"), "d"),
    ],
)
def test_filters(wanted: AclFilter, found: str) -> None:
    acls = {
        "a": Acl(T, "orders", L, "User:a", "*", Op.READ, ALLOW),
        "b": Acl(T, "ord", P, "User:b", "*", Op.WRITE, ALLOW),
        "c": Acl(T, "*", L, "User:*", "*", Op.DESCRIBE, ALLOW),
        "d": Acl(ResourceType.GROUP, "g", L, "User:b", "10.0.0.1", Op.READ, DENY),
    }
    assert "".join(name for name, acl in acls.items() if wanted.matches(acl)) == found
    assert wanted.select(acls.values()) == [acls[name] for name in found]


def test_names_of_the_tools() -> None:
    assert Operation.parse("IdempotentWrite") is Operation.parse("idempotent_write") is Op.IDEMPOTENT_WRITE
    assert ResourceType.parse("TransactionalId").label == "TransactionalId"
    with pytest.raises(ValueError, match="must be one of"):
        Operation.parse("Frobnicate")
