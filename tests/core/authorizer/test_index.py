"""Look-ups of very many ACLs against the plain way, and copies that do not change each other."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.core.authorizer.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from minikafka.core.authorizer.index import AclIndex

TYPES = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
NAMES, PRINCIPALS, HOSTS = st.sampled_from(["a", "ab", "*", "b"]), st.sampled_from(["User:a", "User:*"]), st.sampled_from(["*", "10.0.0.1"])
ACLS = st.builds(
    Acl, TYPES, NAMES, st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]), PRINCIPALS, HOSTS,
    st.sampled_from([Operation.READ, Operation.ALL]), st.sampled_from([Permission.ALLOW, Permission.DENY]),
)  # fmt: skip
FILTERS = st.builds(
    AclFilter, TYPES | st.just(ResourceType.ANY), NAMES | st.none(), st.sampled_from(list(PatternType)[1:]), PRINCIPALS | st.none(),
    HOSTS | st.none(), st.sampled_from([Operation.READ, Operation.ANY]), st.sampled_from([Permission.ALLOW, Permission.ANY]),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), ACLS | st.none(), st.booleans()), max_size=20), FILTERS)
def test_finds_what_is_there(changes: list[tuple[int, Acl | None, bool]], wanted: AclFilter) -> None:
    index, held, older = AclIndex(), dict[bytes, Acl](), list[tuple[AclIndex, dict[bytes, Acl]]]()
    for number, acl, is_copied in changes:
        if is_copied:
            older.append((index, dict(held)))
            index = index.copy()
        acl_id = bytes([number])
        if acl_id in held:
            index.remove(acl_id, held.pop(acl_id))
        if acl is not None:
            index.add(acl_id, acl)
            held[acl_id] = acl
    for one, acls in [*older, (index, held)]:
        assert one.count == len(acls) and set(one) == set(acls.values())
        assert {(acl_id, acl) for acl in one for acl_id in one.ids(acl)} == set(acls.items())
        assert all(acl in one for acl in acls.values())
        matching = {acl for acl in acls.values() if wanted.matches(acl)}
        found = wanted.select(one.candidates(wanted))
        assert len(found) == len(matching) and set(found) == matching == set(wanted.select(acls.values()))
