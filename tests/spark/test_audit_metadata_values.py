"""Values in metadata records that no controller writes, control records and snapshots that no node loads, metadata that contradicts itself:
the same on all nodes."""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.audited_clusters import BROKERS, TOPIC, audit, messages_of, registered_topic
from helpers.log_clusters import (
    CONTROL,
    TIME_MS,
    Batch,
    MetadataLog,
    Partition,
    directory_id,
    plain,
    unsigned,
    uuid_text,
    write_broker,
)

from minikafka.broker.config.topic_config import TOPIC_PROPERTIES
from minikafka.core.controller.config import SUPPORTED_FEATURES
from minikafka.spark.audit import AuditResult
from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_controls import KRAFT_VERSION, KRAFT_VOTERS, LEADER_CHANGE, Controls, check_control
from minikafka.spark.metadata_fields import UnknownRecordError
from minikafka.spark.metadata_log import VERSIONS_MAX, read_image
from minikafka.spark.metadata_settings import TOPIC_SETTINGS, check_value
from minikafka.spark.metadata_values import FEATURES
from minikafka.wire.records import metadata_records

METADATA, OTHER = "__cluster_metadata-0", bytes(range(50, 66))


def text(value: str) -> bytes:
    return unsigned(len(value) + 1) + value.encode()


def with_record(kind: int, body: bytes) -> MetadataLog:
    return registered_topic().other(kind, body)


def feature(name: str, level: int) -> MetadataLog:
    return with_record(12, text(name) + struct.pack(">h", level) + b"\0")


def rule(
    resource: int = 2, pattern: int = 3, principal: str = "User:u", operation: int = 3, permission: int = 3, name: str = "t"
) -> bytes:  # fmt: skip
    about = OTHER + bytes([resource]) + text(name) + bytes([pattern]) + text(principal) + text("*")
    return about + bytes([operation, permission]) + b"\0"


def credential(mechanism: int = 1, iterations: int = 4096, user: str = "u", stored: int = 32, server: int = 32) -> bytes:
    keys = text("s" * stored) + text("s" * server)
    return text(user) + bytes([mechanism]) + text("salt") + keys + struct.pack(">i", iterations) + b"\0"


def quota(*kinds: str, key: str = "producer_byte_rate", is_removed: bool = False, value: float = 5.0, name: str = "x") -> bytes:
    entity = b"".join(text(kind) + text(name) + b"\0" for kind in kinds)
    return unsigned(len(kinds) + 1) + entity + text(key) + struct.pack(">d?", value, is_removed) + b"\0"


def token(owner: str = "User:u", renewer: str = "User:v", times: tuple[int, ...] = (5, 9, 8), name: str = "i") -> bytes:
    return text(owner) * 2 + b"\2" + text(renewer) + struct.pack(">qqq", *times) + text(name) + b"\0"


def described(protocol: int = 0, levels: tuple[int, int] = (0, 1)) -> MetadataLog:
    """A registration with a listener and a feature."""
    listener = b"\2" + text("L") + text("h") + struct.pack(">Hh", 9, protocol) + b"\0"
    supported = b"\2" + text("group.version") + struct.pack(">hh", *levels) + b"\0"
    body = struct.pack(">i?", 4, False) + OTHER + struct.pack(">q", 4) + listener + supported + b"\0" * 4
    return registered_topic().other(0, body, version=3)


def registered(node: int, epoch: int, *directories: bytes) -> MetadataLog:
    tagged = unsigned(1) + b"\0" + unsigned(1 + 16 * len(directories)) + unsigned(len(directories) + 1) + b"".join(directories)
    body = struct.pack(">i?", node, False) + OTHER + struct.pack(">q", epoch) + b"\1\1\0\0\0" + tagged
    return registered_topic().other(0, body, version=3)


def setting(resource: int, name: str, option: str, value: str) -> MetadataLog:
    return with_record(4, bytes([resource]) + text(name) + text(option) + text(value) + b"\0")


def producer_ids(node: int, epoch: int, following: int) -> MetadataLog:
    return with_record(15, struct.pack(">iqq", node, epoch, following) + b"\0")


RULE, CREDENTIAL = rule(), credential()


@pytest.mark.parametrize(("log", "said"), [
    (feature("metadata.version", 0), "metadata.version has level 0"), (feature("metadata.version", 1), ""),
    (feature("metadata.version", 33), ""), (feature("metadata.version", 99), "?metadata.version has the unknown level 99"),
    (feature("group.version", 0), ""), (feature("group.version", 2), "?unknown level 2"), (feature("odd", 1), "?odd has the unknown level"),
    (feature("odd", 0), ""), (feature("odd", -1), "odd has level -1"),
    (setting(2, "u", "retention.ms", "1"), "retention.ms is set for the unknown topic u"), (setting(2, "t", "own", "1"), ""),
    (setting(2, "t", "cleanup.policy", "compact, delete"), ""), (setting(2, "t", "cleanup.policy", ""), ""),
    (setting(2, "t", "cleanup.policy", "compacted"), "'compacted', with the unknown policy"),
    (setting(4, "", "log.cleanup.policy", "del"), "unknown policy 'del'"), (setting(32, "g", "share.auto.offset.reset", "latest"), ""),
    (setting(8, "1", "root", "INFO"), "unknown type of resource 8"), (setting(77, "1", "x", "1"), "?unknown type of resource 77"),
    (producer_ids(1, 0, -5), "the next producer id is -5"), (producer_ids(-1, -1, 1000), ""), (producer_ids(1, 0, 1000), ""),
    (producer_ids(9, 1, 1000), "given to broker 9 of epoch 1"), (producer_ids(1, 7, 1000), "given to broker 1 of epoch 7"),
    (with_record(18, RULE), ""), (with_record(18, RULE[:-3]), "ends too early"), (with_record(18, RULE + b"x"), "1 bytes behind"),
    (with_record(18, RULE).other(18, RULE), "is made a second time"), (with_record(18, bytes(16) + RULE[16:]), "the id of none"),
    (with_record(18, rule(resource=1)), "resource 1"), (with_record(18, rule(resource=8)), "?resource 8"),
    (with_record(18, rule(pattern=2)), "pattern 2"), (with_record(18, rule(pattern=5)), "?pattern 5"),
    (with_record(18, rule(operation=1)), "operation 1"), (with_record(18, rule(operation=16)), "?operation 16"),
    (with_record(18, rule(permission=1)), "permission 1"), (with_record(18, rule(permission=4)), "?permission 4"),
    (with_record(18, rule(principal="u")), "principal has no type"),
    (with_record(11, CREDENTIAL), ""), (with_record(11, CREDENTIAL[:-4]), "ends too early"), (with_record(11, CREDENTIAL + b"x"), "behind"),
    (with_record(11, credential(0)), "mechanism 0"), (with_record(11, credential(3)), "?mechanism 3"),
    (with_record(11, credential(iterations=4095)), "4095 iterations"), (with_record(11, credential(iterations=16385)), "16385 iterations"),
    (with_record(14, quota("user")), ""), (with_record(14, quota("user", "client-id")), ""),
    (with_record(14, quota("ip", key="connection_creation_rate")), ""),
    (with_record(11, credential(user="")), "a credential of ''"), (with_record(11, credential(stored=31)), "keys of 31 and 32 bytes"),
    (with_record(11, credential(2)), "keys of 32 and 32 bytes"), (with_record(11, credential(2, stored=64, server=64)), ""),
    (with_record(18, rule(name="")), "for the resource ''"), (with_record(18, rule(4)), "for the resource 't' of type 4"),
    (with_record(18, rule(4, name="kafka-cluster")), ""),
    (with_record(14, quota("user", value=0.0)), "to 0.0"), (with_record(14, quota("user", value=float("nan"))), "to nan"),
    (with_record(14, quota("user", value=1.5)), "producer_byte_rate to 1.5"), (with_record(14, quota("user", name="")), "is for user"),
    (with_record(14, quota("user", key="request_percentage", value=1.5)), ""), (with_record(14, quota("user", value=1e18)), ""),
    (with_record(14, quota("user", key="connection_creation_rate")), "limits connection_creation_rate of user"),
    (with_record(14, quota("ip")), "limits producer_byte_rate of ip"), (with_record(14, quota("ip", value=-1.0, is_removed=True)), ""),
    (with_record(10, token()), ""), (with_record(10, token(name="")), "the token ''"),
    (with_record(10, token(owner="u")), "for 'u', which"),
    (with_record(10, token(renewer="v")), "for 'v', which has no type"), (with_record(10, token(times=(5, 9, 10))), "expires at 10"),
    (with_record(10, token(times=(5, 4, 4))), "at the latest at 4"), (with_record(10, token(times=(-1, 4, 4))), "of -1 expires at 4"),
    (described(), ""), (described(protocol=4), "?unknown security protocol 4"), (described(protocol=-1), "security protocol -1"),
    (described(levels=(2, 1)), "the levels 2 to 1 of group.version"), (described(levels=(-1, 1)), "the levels -1 to 1"),
    (setting(2, "t", "retention.ms", "x"), "retention.ms of t is 'x'"), (setting(2, "t", "retention.ms", " +5 "), ""),
    (setting(4, "", "log.retention.ms", "x"), "log.retention.ms of all brokers is 'x'"), (setting(4, "7", "log.cleaner.threads", "2"), ""),
    (setting(4, "x", "odd", "1"), "set for the broker 'x'"), (setting(4, "-1", "odd", "1"), "set for the broker '-1'"),
    (setting(32, "", "odd", "1"), "a group without a name"), (setting(16, "", "odd", "1"), "a subscription without a name"),
    (setting(32, "g", "share.auto.offset.reset", "by_duration:PT1H"), ""),
    (setting(32, "g", "share.auto.offset.reset", "no"), "is 'no'"),
    (setting(16, "m", "interval.ms", "99"), "interval.ms of m is '99'"),
    (setting(16, "m", "match", "client_id=a.*,client_source_port=9"), ""),
    (setting(16, "m", "match", "id=a"), "match of m is 'id=a'"),
    (with_record(14, quota()), "is for nobody"), (with_record(14, quota("user", "user")), "is for user and user"),
    (with_record(14, quota("ip", "user")), "is for ip and user"), (with_record(14, quota("planet")), "is for planet"),
    (with_record(14, quota("user", key="speed")), "?limits the unknown speed"),
    (with_record(14, quota("planet", key="speed", is_removed=True)), ""),
    (registered(-2, 4), "broker -2 is registered in epoch 4"), (registered(3, 1), "broker 3 is registered in epoch 1, after epoch 2"),
    (registered(3, 3, directory_id(3)), ""), (registered(4, 4, directory_id(4)), ""),
    (registered(4, 4, directory_id(1)), "which broker 1 has already"),
    (registered(4, 5, OTHER), ""), (registered(4, 6, OTHER), "registered at 5 in epoch 6, which is the offset of a later record"),
    *((registered(4, 4, bytes(15) + bytes([number])), "whose id is reserved" if number < 100 else "") for number in (0, 1, 2, 99, 100)),
    (registered(4, 4, directory_id(4), directory_id(4)), "which broker 4 has already"),
])  # fmt: skip
def test_values_that_no_controller_writes(tmp_path: Path, log: MetadataLog, said: str) -> None:
    """A question mark: of a later release it may be sound, so that nothing is proven."""
    (tmp_path / f"{0:020d}.log").write_bytes(log.encode())
    kind = UnknownRecordError if said.startswith("?") else FormatError
    with pytest.raises(kind, match=re.escape(said.lstrip("?"))) if said else contextlib.nullcontext() as caught:
        read_image(str(tmp_path), "1")
    if caught is not None and not said.startswith("?"):
        assert not isinstance(caught.value, UnknownRecordError)


def test_the_levels_are_those_of_this_release() -> None:
    """The audit has a table of its own."""
    assert {name: highest for name, (_, highest) in FEATURES.items()} == {name: levels[1] for name, levels in SUPPORTED_FEATURES.items()}


@pytest.mark.parametrize("name", sorted(TOPIC_SETTINGS))
def test_settings_that_brokers_refuse_and_take(name: str) -> None:
    """The audit's bounds are as wide as any release's, and none is narrower than those of this one."""
    entry = next(one for one in TOPIC_PROPERTIES if one.name == name)
    numbers = ["", "x", "1.5", "-3", "-2", "-1", "0", "1", "4", "13", "17", "18", "22", "23", str(1 << 20), str(1 << 31), str(1 << 63)]
    words = ["true", "False", "gzip", "zip", "producer", "CreateTime", "createtime", "1:2", "1:2,3:4", "*", "1:", "none", "0.5", "1.01"]
    taken = {value for value in numbers + words if TOPIC_PROPERTIES.problem(name, value) is None}
    passed = {value for value in numbers + words if is_passed(name, value)}
    assert taken <= passed < {*numbers, *words} and entry


def is_passed(name: str, value: str) -> bool:
    try:
        check_value(2, "t", name, value)
    except FormatError:
        return False
    return True


def test_every_record_that_minikafka_writes_is_known() -> None:
    """In each of its versions: a cluster with another one would never pass."""
    kinds = [one for one in vars(metadata_records).values() if isinstance(one, type) and getattr(one, "RECORD_TYPE", -1) >= 0]
    written = {one.RECORD_TYPE: one.MAX_VERSION for one in kinds}
    assert written == VERSIONS_MAX


def test_a_controller_that_was_unregistered_is_gone(tmp_path: Path) -> None:
    """From Apache Kafka 4.4 on an operator may remove a controller that is gone (KIP-1312)."""
    controller = struct.pack(">i", 7) + OTHER + b"\0\1\1\0"
    log = registered_topic().other(27, controller).other(27, controller.replace(b"\7", b"\x09", 1))
    assert audited(tmp_path / "both", log).outcome == "PASS"
    assert audited(tmp_path / "one", log.other(29, struct.pack(">i", 7) + b"\0")).outcome == "PASS"
    image = read_image(str(tmp_path / "one" / "b1" / METADATA), "1")
    assert [name for name in image.state if name[0] == "controller"] == [("controller", "9")]


def audited(path: Path, log: MetadataLog, change: Callable[[Path], None] = lambda root: None) -> AuditResult:
    for broker in BROKERS:
        root = write_broker(path / f"b{broker}", broker, [Partition("t-0", [plain(at) for at in range(10)])], log.encode())
        change(root / METADATA)
    return audit(path)


@pytest.mark.parametrize(("log", "code"), [(feature("metadata.version", 0), 1), (feature("metadata.version", 99), 3)])
def test_the_audit_does_not_pass(tmp_path: Path, log: MetadataLog, code: int) -> None:
    assert audited(tmp_path, log).exit_code == code


def supporting(lowest: int, highest: int, level: int) -> MetadataLog:
    """A broker that supports these levels of a feature, and the feature's level."""
    return described(levels=(lowest, highest)).other(12, text("group.version") + struct.pack(">h", level) + b"\0")


def in_directories(*owners: int) -> MetadataLog:
    """The replicas are in directories of these brokers; those of 8 and 9 are gone."""
    log = MetadataLog()
    for broker in BROKERS:
        log.broker(broker)
    return log.topic("t", TOPIC).partition(TOPIC, BROKERS, BROKERS, 1, directories=[directory_id(owner) for owner in owners])


@pytest.mark.parametrize(("log", "said"), [
    (registered_topic().topic("u", OTHER), "topic u has no partitions"),
    (registered_topic().topic("u", OTHER).partition(OTHER, BROKERS, BROKERS, 1, number=1), "topic u has the partitions 1: not all from 0"),
    (registered_topic(leader=9, isr=(9,)), "the leader of t-0 is broker 9, which is not registered"),
    (registered_topic().other(1, struct.pack(">iq", 1, 0) + b"\0"), "the leader of t-0 is broker 1, which is not registered"),
    (in_directories(1, 1, 3), f"t-0 on broker 2 is in {uuid_text(directory_id(1))}, which is a directory of broker 1"),
    (in_directories(1, 2, 3), ""), (in_directories(8, 8, 9), ""),
    (registered_topic(leader=-1, isr=(), elr=BROKERS).other(1, struct.pack(">iq", 1, 0) + b"\0"), ""),
    (supporting(0, 1, 1), ""), (supporting(0, 0, 0), ""), (supporting(0, 0, 1), "has level 1, and broker 4 supports 0 to 0"),
])  # fmt: skip
def test_metadata_that_contradicts_itself(tmp_path: Path, log: MetadataLog, said: str) -> None:
    result = audited(tmp_path, log)
    found = messages_of(result, "metadata-log")
    assert (result.exit_code == 1) == bool(said)
    assert len(found) == bool(said) and all(said in one for one in found)


# ---- control records -----------------------------------------------------------------------------------------------------------------


def control(kind: int, value: bytes) -> MetadataLog:
    log = registered_topic()
    log.controls[len(log.values)] = struct.pack(">hh", 0, kind)
    log.values.append(value)
    return log


VOTERS = MetadataLog().voters(BROKERS).values[0]
LEADER = struct.pack(">hi", 0, 1) + b"\3" + b"".join(struct.pack(">i", node) + b"\0" for node in (1, 2))


def elected(*nodes: int) -> bytes:
    """Those that voted, and the end of the record."""
    return unsigned(len(nodes) + 1) + b"".join(struct.pack(">i", node) + b"\0" for node in nodes) + b"\0"


def voters(node: int, lowest: int = 0, highest: int = 1, place: bytes = OTHER) -> bytes:
    return struct.pack(">h", 0) + b"\2" + struct.pack(">i", node) + place + b"\1" + struct.pack(">hh", lowest, highest) + b"\0\0\0"


@pytest.mark.parametrize(("kind", "value", "said"), [
    (KRAFT_VOTERS, voters(1), ""), (KRAFT_VOTERS, voters(-1), "voter -1 supports"), (KRAFT_VOTERS, voters(1, 2, 1), "levels 2 to 1"),
    (KRAFT_VOTERS, voters(1, -1), "levels -1 to 1"), (KRAFT_VOTERS, voters(1, place=bytes(16)), ""),
    (KRAFT_VOTERS, voters(1, place=bytes(15) + b"\2"), "AAAAAAAAAAAAAAAAAAAAAg, whose id is reserved"),
    (LEADER_CHANGE, LEADER + elected(1, 2), ""), (LEADER_CHANGE, struct.pack(">hi", 0, 1) + b"\1\1\0", ""),
    (LEADER_CHANGE, struct.pack(">hi", 0, 9) + LEADER[6:] + elected(1, 2), "node 9 leads"), (LEADER_CHANGE, LEADER, "too early"),
    (LEADER_CHANGE, LEADER + elected(7), "elected by [7]"), (LEADER_CHANGE, LEADER + elected(1), "elected by [1] of the voters [1, 2]"),
    (LEADER_CHANGE, LEADER + elected(1, 1), "elected by [1, 1]"), (LEADER_CHANGE, LEADER + elected(2), "elected by [2]"),
    (LEADER_CHANGE, struct.pack(">hi", 0, 1) + elected(1, 1)[:-1] + elected(1), "of the voters [1, 1]"),
    (LEADER_CHANGE, struct.pack(">hi", 0, 1) + b"\1" + elected(1), "elected by [1] of the voters []"),
    (LEADER_CHANGE, struct.pack(">h", 2), "?the unknown version 2"),
    (LEADER_CHANGE, struct.pack(">hi", 1, 1) + b"\2\0\0\0\1" + OTHER + b"\0\2\0\0\0\1" + OTHER + b"\0\0", ""),
    (KRAFT_VERSION, b"\0\0\0\1\0", ""), (KRAFT_VERSION, b"\0\0\0\2\0", "?kraft.version is 2"), (KRAFT_VERSION, b"\0\0", "too early"),
    (KRAFT_VERSION, b"\0\0\xff\xff\0", "kraft.version is -1"), (KRAFT_VERSION, b"\xff\xff\0\1\0", "the unknown version -1"),
    (KRAFT_VOTERS, VOTERS, ""), (KRAFT_VOTERS, b"\0\0\1\0", "the set of voters is empty"), (KRAFT_VOTERS, VOTERS[:-9], "too early"),
    (KRAFT_VOTERS, MetadataLog().voters((1, 1)).values[0], "voter 1 stands twice"),
    (0, b"\0\0\0\0\0\1", "of type 0"), (3, struct.pack(">hq", 0, TIME_MS) + b"\0", "of type 3"), (77, b"", "?of type 77"),
])  # fmt: skip
def test_control_records_at_which_a_node_ends(kind: int, value: bytes, said: str) -> None:
    error = UnknownRecordError if said.startswith("?") else FormatError
    with pytest.raises(error, match=re.escape(said.lstrip("?"))) if said else contextlib.nullcontext():
        check_control(struct.pack(">hh", 0, kind), value)


def leads(epoch: int, node: int = 1) -> tuple[int, bytes, int]:
    return LEADER_CHANGE, struct.pack(">hi", 0, node) + LEADER[6:] + elected(1, 2), epoch


def level(number: int) -> tuple[int, bytes, int]:
    return KRAFT_VERSION, struct.pack(">hh", 0, number) + b"\0", 1


def vote(*nodes: int) -> tuple[int, bytes, int]:
    return KRAFT_VOTERS, MetadataLog().voters(nodes).values[0], 1


@pytest.mark.parametrize(("rows", "said"), [
    ([leads(1), leads(2), leads(4)], ""), ([leads(1), leads(1)], "a second record says who leads epoch 1"),
    ([leads(1), leads(1, 2)], "a second record"), ([level(0), level(1), level(1)], ""), ([level(1), level(0)], "falls from 1 to 0"),
    ([vote(1, 2), vote(1, 2, 3), vote(1, 2, 3), vote(2, 3), vote(2, 4)], ""), ([vote(1, 2, 3), vote(1)], "change from 1 2 3 to 1 at once"),
    ([vote(1, 2), vote(1, 2, 3, 4)], "from 1 2 to 1 2 3 4"),
])  # fmt: skip
def test_control_records_that_do_not_follow_each_other(rows: list[tuple[int, bytes, int]], said: str) -> None:
    controls = Controls()
    with pytest.raises(FormatError, match=said) if said else contextlib.nullcontext():
        for kind, value, epoch in rows:
            controls.check(struct.pack(">hh", 0, kind), value, epoch)


@pytest.mark.parametrize(("log", "code"), [
    (registered_topic().voters((1, 2, 3)).voters((1, 2, 3)), 0), (registered_topic().voters((1,)).voters(BROKERS), 1),
])  # fmt: skip
def test_the_audit_reads_control_records_in_their_order(tmp_path: Path, log: MetadataLog, code: int) -> None:
    assert audited(tmp_path, log).exit_code == code


@pytest.mark.parametrize(("kind", "value", "code"), [
    (0, b"\0\0\0\0\0\1", 1), (77, b"", 3), (KRAFT_VOTERS, b"\0\0\1\0", 1), (KRAFT_VERSION, b"\0\0\0\1\0", 0),
])  # fmt: skip
def test_the_audit_reads_control_records(tmp_path: Path, kind: int, value: bytes, code: int) -> None:
    assert audited(tmp_path, control(kind, value)).exit_code == code


# ---- snapshots -----------------------------------------------------------------------------------------------------------------------


def snapshot(log: MetadataLog, *more: bytes, middle: int | None = None) -> bytes:
    """A snapshot of the whole log with more records, or with a control record of this type in its midst."""
    whole = log.snapshot([*(value for at, value in enumerate(log.values) if at not in log.controls), *more])
    if middle is None:
        return whole
    head = whole.index(struct.pack(">hh", 0, 3))  # the key of the header, in the first batch
    end = 12 + int.from_bytes(whole[8:12], "big")
    assert head < end
    base, following = 1 + whole[23 + 3], whole[end:]
    inserted = Batch(base, [(0, struct.pack(">hh", 0, middle), struct.pack(">hq", 0, 5) + b"\0")], 1, attributes=CONTROL)
    moved = b""
    while following:
        size = 12 + int.from_bytes(following[8:12], "big")
        moved += struct.pack(">q", int.from_bytes(following[:8], "big") + 1) + following[8:size]
        following = following[size:]
    return whole[:end] + inserted.encode() + moved


FENCE, CHANGE = MetadataLog().other(7, struct.pack(">iq", 1, 0) + b"\0"), MetadataLog().change(TOPIC, isr=BROKERS)
SETTING = MetadataLog().config("t", "retention.ms", "7")


@pytest.mark.parametrize(("more", "middle", "said"), [
    ((), None, ""), (tuple(FENCE.values), None, "a record of type 7, which changes what others say"),
    (tuple(CHANGE.values), None, "a record of type 5"), (tuple(MetadataLog().other(20, b"\0").values), None, "a record of type 20"),
    (tuple(SETTING.values), None, "say again what others say"), ((), 3, "a control record of type 3 in its midst"),
    ((), 4, "a control record of type 4 in its midst"), ((), 2, "a control record of type 2 in its midst"),
    ((), 77, "a control record of type 77 in its midst"),
])  # fmt: skip
def test_snapshots_that_no_controller_writes(tmp_path: Path, more: tuple[bytes, ...], middle: int | None, said: str) -> None:
    """Each record of a snapshot says something of its own (MetadataImage.write), between a header and a footer."""
    log = registered_topic().config("t", "retention.ms", "7")
    content = snapshot(log, *more, middle=middle)
    result = audited(tmp_path, log, lambda path: (path / f"{len(log.values):020d}-0000000001.checkpoint").write_bytes(content) and None)
    found = messages_of(result, "metadata-snapshot")
    assert result.exit_code == (1 if said else 0), found
    assert all(said in one for one in found) and len(found) == (3 if said else 0)


@pytest.mark.parametrize("nodes", [(1,), (1, 2)])
def test_snapshots_of_one_name_have_the_same_voters(tmp_path: Path, nodes: tuple[int, ...]) -> None:
    """Where no log reaches back to them, nothing else tells."""
    log = registered_topic().voters(BROKERS).config("t", "retention.ms", "7")
    end = len(log.values) - 1
    for broker in BROKERS:
        root = write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", [plain(at) for at in range(10)])], log.encode())
        path, part = root / METADATA, MetadataLog(log.values[:end], {} if broker in nodes else log.controls)
        values = [value for at, value in enumerate(part.values) if at not in log.controls]
        (path / f"{end:020d}-0000000001.checkpoint").write_bytes(part.snapshot(values))
        (path / f"{0:020d}.log").unlink()
        (path / f"{end:020d}.log").write_bytes(b"".join(one.encode() for one in log.batches()[end:]))
        (path / "leader-epoch-checkpoint").write_text(f"0\n1\n1 {end}\n")
    result = audit(tmp_path)
    assert result.exit_code == 1
    odd = "1" if nodes == (1,) else "3"
    assert [one.partition(":")[0] for one in messages_of(result, "metadata-snapshot") if "has the voters" in one] == [odd]


@pytest.mark.parametrize("name", [
    "x.checkpoint", "5-1.checkpoint", "x.checkpoint.part", "x.checkpoint.deleted", f"{1 << 63:020d}-{1:010d}.checkpoint",
    f"{5:020d}-{1 << 31:010d}.checkpoint",
])  # fmt: skip
def test_names_at_which_apache_kafka_does_not_start(tmp_path: Path, name: str) -> None:
    """Snapshots.parse reads two numbers."""
    result = audited(tmp_path, registered_topic(), lambda path: (path / name).write_bytes(b"") and None)
    assert result.exit_code == 1 and len(messages_of(result, "foreign-file")) == 3


@pytest.mark.parametrize("name", [f"{5:020d}-{1:010d}-1234.checkpoint.part", f"{5:020d}-{1:010d}.checkpoint.deleted", "checkpoint"])
def test_names_of_unfinished_and_removed_snapshots_are_right(tmp_path: Path, name: str) -> None:
    assert audited(tmp_path, registered_topic(), lambda path: (path / name).write_bytes(b"") and None).outcome == "PASS"


LEVELS = MetadataLog().other(12, text("group.version") + b"\0\1\0"), feature("metadata.version", 25)


@pytest.mark.parametrize(("content", "said"), [
    (snapshot(LEVELS[1]), ""), (snapshot(LEVELS[1])[:-5], ""), (b"", "it is empty"), (b"rubbish" * 40, "it is empty"),
    (snapshot(LEVELS[0]), "it has no metadata.version"), (snapshot(feature("metadata.version", 0)), "metadata.version has level 0"),
    (snapshot(feature("metadata.version", 99)), ""),
])  # fmt: skip
def test_a_bootstrap_checkpoint_with_which_no_node_starts(tmp_path: Path, content: bytes, said: str) -> None:
    """Each start reads it (BootstrapDirectory.read), up to where it is cut."""
    audited(tmp_path, registered_topic())
    (tmp_path / "b2" / "bootstrap.checkpoint").write_bytes(content)
    result = audit(tmp_path)
    assert result.exit_code == (3 if said else 0)
    found = [one for one in messages_of(result, "unreadable") if "a node will not start with" in one]
    assert len(found) == bool(said) and all(said in one for one in found)


@pytest.mark.parametrize("entry", ["-1 0", "0 -1"])
def test_a_negative_leader_epoch_keeps_a_log_from_loading(tmp_path: Path, entry: str) -> None:
    audited(tmp_path, registered_topic())
    path = tmp_path / "b2" / "t-0" / "leader-epoch-checkpoint"
    path.write_text(f"0\n2\n{entry}\n0 0\n" if entry[0] == "-" else f"0\n1\n{entry}\n")
    result = audit(tmp_path)
    assert result.exit_code == 1 and messages_of(result, "epoch-checkpoint-format")
