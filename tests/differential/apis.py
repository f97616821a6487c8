"""What is drawn: the APIs that Apache Kafka 4.4 and minikafka both serve, their versions, and what each of their fields may hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from differential.known import Known

if TYPE_CHECKING:
    from differential.drawing import Drawing

TOPIC, BROKER, GROUP = 2, 4, 32


class Drawn(NamedTuple):
    """How often an API is drawn, and its oldest and newest version."""

    weight: int
    oldest: int
    newest: int


#: Most sequences are about one of these, so that one request meets what another left. API key -> weight, oldest and newest version.
THEMES: Mapping[str, Mapping[int, Drawn]] = {
    "records": {
        0: Drawn(5, 3, 13), 1: Drawn(4, 4, 18), 2: Drawn(3, 1, 11), 21: Drawn(2, 0, 2), 23: Drawn(2, 2, 4), 35: Drawn(1, 1, 5),
        34: Drawn(1, 1, 2), 61: Drawn(2, 0, 0),
    },
    "topics": {
        19: Drawn(3, 2, 7), 20: Drawn(1, 1, 6), 37: Drawn(2, 0, 3), 3: Drawn(2, 0, 13), 75: Drawn(2, 0, 0), 45: Drawn(2, 0, 1),
        46: Drawn(1, 0, 0), 43: Drawn(1, 0, 2), 32: Drawn(2, 1, 4), 44: Drawn(2, 0, 1), 33: Drawn(1, 0, 2), 74: Drawn(1, 0, 1),
    },
    "transactions": {
        22: Drawn(4, 0, 5), 24: Drawn(4, 0, 5), 25: Drawn(3, 0, 4), 26: Drawn(3, 0, 5), 28: Drawn(3, 0, 6), 65: Drawn(2, 0, 0),
        66: Drawn(1, 0, 2), 27: Drawn(1, 1, 2),
    },
    "groups": {
        8: Drawn(4, 2, 10), 9: Drawn(4, 1, 10), 11: Drawn(3, 1, 9), 12: Drawn(2, 0, 4), 13: Drawn(1, 0, 5), 14: Drawn(3, 0, 5),
        15: Drawn(2, 0, 6), 16: Drawn(1, 0, 5), 42: Drawn(1, 0, 3), 47: Drawn(2, 0, 0), 68: Drawn(3, 0, 1), 69: Drawn(2, 0, 1),
        10: Drawn(1, 0, 6),
    },
    "share groups": {
        76: Drawn(3, 1, 1), 77: Drawn(2, 1, 1), 78: Drawn(3, 1, 2), 79: Drawn(2, 1, 2), 83: Drawn(1, 0, 0), 84: Drawn(1, 0, 0),
        85: Drawn(1, 0, 1), 86: Drawn(1, 0, 0), 87: Drawn(1, 0, 1), 90: Drawn(2, 0, 1), 91: Drawn(1, 0, 0), 92: Drawn(1, 0, 0),
    },
    "streams groups": {88: Drawn(4, 0, 1), 89: Drawn(2, 0, 1), 93: Drawn(1, 0, 0)},
    "security": {
        29: Drawn(3, 1, 3), 30: Drawn(3, 1, 3), 31: Drawn(2, 1, 3), 48: Drawn(2, 0, 1), 49: Drawn(2, 0, 1), 50: Drawn(2, 0, 0),
        51: Drawn(2, 0, 0), 38: Drawn(1, 1, 3), 39: Drawn(1, 1, 2), 40: Drawn(1, 1, 2), 41: Drawn(1, 1, 3), 17: Drawn(1, 0, 1),
        36: Drawn(1, 0, 2),
    },
    "cluster": {
        18: Drawn(1, 0, 5), 55: Drawn(1, 0, 2), 57: Drawn(2, 1, 2), 60: Drawn(2, 0, 2), 64: Drawn(1, 0, 0), 80: Drawn(1, 0, 1),
        81: Drawn(1, 0, 0), 94: Drawn(1, 0, 0),
        # Of controllers, or of other brokers alone: a broker closes the connection.
        52: Drawn(1, 0, 2), 54: Drawn(1, 0, 1), 56: Drawn(1, 2, 3), 58: Drawn(1, 0, 0), 59: Drawn(1, 0, 1), 63: Drawn(1, 0, 1),
        67: Drawn(1, 0, 0), 70: Drawn(1, 0, 0), 71: Drawn(1, 0, 0), 72: Drawn(1, 0, 0), 73: Drawn(1, 0, 0), 82: Drawn(1, 0, 0),
    },
}  # fmt: skip
APIS: Mapping[int, Drawn] = {key: drawn for theme in THEMES.values() for key, drawn in theme.items()}
TOPIC_CONFIGS = ("retention.ms", "cleanup.policy", "max.message.bytes", "min.insync.replicas", "compression.type", "no.such.config")
VALUES = ("1000", "-1", "-2", "compact", "delete", "compact,delete", "lz4", "x", "", "1", None)
#: Arrays and structs that are null now and then: (API key, field).
NULLS = frozenset(
    {
        (3, "topics"), (9, "topics"), (35, "topics"), (41, "owners"), (43, "topic_partitions"), (45, "replicas"), (46, "topics"),
        (50, "users"), (68, "subscribed_topic_names"), (76, "subscribed_topic_names"), (78, "member_id"), (88, "topology"),
        (90, "topics"), (75, "cursor"),
    }
)  # fmt: skip
#: Arrays that are empty: their elements would have to fit to each other.
EMPTY = frozenset(
    {
        (78, "forgotten_topics_data"), (88, "source_topic_regex"), (88, "copartition_groups"), (88, "state_changelog_topics"),
        (88, "repartition_source_topics"), (88, "repartition_sink_topics"), (88, "task_offsets"), (88, "task_end_offsets"),
        (88, "warmup_tasks"), (88, "standby_tasks"), (93, "global_stores"),
    }
)  # fmt: skip
#: Arrays that are mostly empty, since most requests are wrong with them.
OFTEN_EMPTY = frozenset(
    {
        (1, "forgotten_topics_data"), (16, "states_filter"), (16, "types_filter"), (19, "assignments"), (19, "configs"),
        (37, "assignments"), (66, "producer_id_filters"), (66, "state_filters"), (68, "topic_partitions"),
        (78, "acknowledgement_batches"), (88, "active_tasks"),
    }
)  # fmt: skip
#: Arrays of one element.
SINGLE = frozenset({"transactions", "resources", "subtopologies", "markers", "dirs", "feature_updates"})
#: APIs in which nothing is named twice: Apache Kafka puts what belongs together into one part of the answer (docs/compatibility.md).
WITHOUT_REPETITION = frozenset({27, 34, 78, 79, 83, 84, 85, 86, 87, 90, 91})
MEMBERS = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg")


def _of(*values: Any, wrong: tuple[Any, ...] = ()) -> Callable[[Drawing], Any]:
    return lambda drawing: drawing.one(*values, wrong=wrong)


def _producer(drawing: Drawing) -> Known:
    return Known("producer", drawing.draw.randrange(3))


def _share_group(drawing: Drawing) -> str:
    return str(drawing.one("~s", "~s", "~s", "~g", wrong=("", "~none")))


def _streams_group(drawing: Drawing) -> str:
    return str(drawing.one("~t", "~t", "~t", "~g", wrong=("", "~none")))


def _altered_group(drawing: Drawing) -> str:
    """One that no member joins: its epochs are others when its offsets have been altered."""
    return str(drawing.one("~w", wrong=("",)))


def _any_group(drawing: Drawing) -> str:
    return str(drawing.one("~g", "~g", "~g", "~h", "~s", "~t", wrong=("", "~none")))


_USERS = _of("~u", "~v", wrong=("", "~none"))
_PRINCIPALS = _of("User:~u", "User:~v", wrong=("~u", "Group:~u"))
_EPOCHS = _of(0, 0, 1, 2, -1, wrong=(-2, 9))
_DELIVERY = {
    (None, "first_offset"): _of(0, 0, 1, wrong=(-1, 50)), (None, "last_offset"): _of(0, 1, 2, wrong=(-1, 50)),
    (None, "delivery_state"): _of(0, 2, 4, wrong=(1, 9)), (None, "delivery_count"): _of(1, 2, wrong=(-1,)),
    (None, "acknowledge_types"): _of(1, 2, 3, wrong=(0, 4, 9)),
}  # fmt: skip
_RECORDS = {
    (0, "transactional_id"): _of(None, None, "~x", "~y"),
    (None, "acks"): _of(-1, 1, wrong=(2,)),
    (None, "records"): lambda drawing: drawing.batch(),
    (1, "max_wait_ms"): _of(0),
    (None, "min_bytes"): _of(0, 1),
    (None, "max_bytes"): _of(1 << 20, wrong=(1, 0)),
    (None, "partition_max_bytes"): _of(1 << 20, 1 << 20, 1, 150, wrong=(0,)),
    (1, "session_id"): _of(0, wrong=(424242,)),
    (1, "session_epoch"): _of(-1, -1, 0, wrong=(1, -2)),
    (1, "replica_id"): _of(-1, wrong=(-2,)),
    (1, "replica_epoch"): _of(-1),
    (1, "cluster_id"): _of(None, wrong=("x",)),
    (1, "replica_directory_id"): _of(bytes(16)),
    (1, "high_watermark"): _of((1 << 63) - 1),
    (None, "rack_id"): _of("", "", "r"),
    (None, "fetch_offset"): _of(0, 0, 1, 2, wrong=(-1, 50)),
    (None, "last_fetched_epoch"): _of(-1, -1, 0, wrong=(5,)),
    (None, "log_start_offset"): _of(-1, 0),
    (None, "replica_id"): _of(-1),
    (None, "isolation_level"): _of(0, 1),
    (None, "timestamp"): _of(-1, -2, -3, 0, 1000, wrong=(-4, -5, -6, -9, 1001, 1 << 60)),
    (None, "offset"): _of(0, 1, 2, -1, wrong=(100, -2)),
    (None, "current_leader_epoch"): _of(-1, -1, 0, wrong=(5,)),
    (None, "leader_epoch"): _of(0, 0, wrong=(-1, 5)),
    (34, "path"): _of("/nowhere", wrong=("", "relative")),
}  # fmt: skip
_TOPICS = {
    (None, "name"): lambda drawing: drawing.topic(),
    (None, "topic"): lambda drawing: drawing.topic(),
    (None, "topic_name"): lambda drawing: drawing.topic(),
    (None, "topic_id"): lambda drawing: Known("topic", drawing.topic()),
    (None, "topics"): lambda drawing: drawing.topic(),
    (None, "topic_names"): lambda drawing: drawing.topic(),
    (None, "subscribed_topic_names"): lambda drawing: drawing.topic(),
    (None, "source_topics"): lambda drawing: drawing.topic(),
    (None, "subscribed_topic_regex"): _of(None, None, "", wrong=("~a|~b", "(")),
    **dict.fromkeys(((None, name) for name in ("partition_index", "partition_indexes", "partition")), _of(0, 0, 1, wrong=(2, 9, -1))),
    (None, "partitions"): _of(0, 0, 1, wrong=(2, 9, -1)),
    (None, "index"): _of(0, 0, 1, wrong=(2, -1)),
    (None, "num_partitions"): _of(1, 2, -1, wrong=(0, -2)),
    (None, "replication_factor"): _of(1, -1, wrong=(0, 3)),
    (None, "count"): _of(3, 4, wrong=(1, 0, -1)),
    (None, "allow_auto_topic_creation"): _of(False),
    (None, "response_partition_limit"): _of(2000, 1, 2, wrong=(0, -1)),
    (45, "replicas"): _of(1, wrong=(7, -1)),
    (43, "election_type"): _of(0, 1, wrong=(2,)),
    (None, "resource_type"): lambda drawing: drawing.resource_type(),
    (None, "resource_name"): lambda drawing: drawing.resource_name(),
    (74, "resource_types"): _of(TOPIC, GROUP, 16, wrong=(0, 8, 99)),
    (None, "configuration_keys"): _of(*TOPIC_CONFIGS),
    (19, "configs.name"): _of(*TOPIC_CONFIGS[:5], wrong=("no.such.config",)),
    (None, "broker_ids"): _of(1, wrong=(7, -1)),
    (44, "name"): _of(*TOPIC_CONFIGS, wrong=("consumer.session.timeout.ms",)),
    (33, "name"): _of(*TOPIC_CONFIGS, wrong=("consumer.session.timeout.ms",)),
    (44, "config_operation"): _of(0, 0, 1, 2, 3, wrong=(9,)),
    (None, "value"): _of(*VALUES),
    (None, "include_documentation"): _of(False),
    (None, "include_synonyms"): _of(False),
}  # fmt: skip
_TRANSACTIONS = {
    (None, "transactional_id"): _of("~x", "~x", "~y", wrong=("", "~none")),
    (None, "transactional_ids"): _of("~x", "~y", wrong=("~none", "")),
    (None, "transactional_id_pattern"): _of(None, None, "", wrong=("(", "nothing")),
    (22, "transactional_id"): _of("~x", "~y", None, wrong=("",)),
    (None, "transaction_timeout_ms"): _of(60_000, wrong=(0, -1, 2_000_000_000)),
    (None, "producer_id"): _producer,
    (22, "producer_id"): lambda drawing: drawing.one(-1, -1, _producer(drawing)),
    (22, "producer_epoch"): _of(-1, -1, 0, wrong=(1,)),
    (None, "producer_epoch"): _of(0, 0, 0, 1, wrong=(-1, 9)),
    (None, "producer_id_filters"): _producer,
    (None, "duration_filter"): _of(-1, -1, wrong=(0, 1 << 40)),
    (None, "state_filters"): _of("Ongoing", "Empty", "CompleteCommit", wrong=("None", "")),
    (27, "producer_epoch"): _of(0, 0, 0, 1, wrong=(9,)),
    (27, "coordinator_epoch"): _of(0, 0, wrong=(-1, 5)),
    (27, "transaction_version"): _of(0, 2, wrong=(9,)),
    (22, "enable2_pc"): _of(False),
    (22, "keep_prepared_txn"): _of(False),
    (24, "v3_and_below_transactional_id"): _of("~x", "~x", "~y", wrong=("", "~none")),
    (24, "v3_and_below_producer_id"): _producer,
    (24, "v3_and_below_producer_epoch"): _of(0, 0, 0, 1, wrong=(-1, 9)),
}
_GROUPS = {
    (None, "group_id"): lambda drawing: drawing.group(),
    (None, "group_ids"): lambda drawing: drawing.group(),
    (None, "groups"): lambda drawing: drawing.group(),
    (None, "groups_names"): _any_group,
    (15, "groups"): _any_group,
    (69, "group_ids"): _any_group,
    (None, "member_id"): lambda drawing: Known("member", drawing.draw.randrange(3)),
    (68, "member_id"): _of("m1", "m2", wrong=("",)),
    (68, "server_assignor"): _of(None, "uniform", "range", wrong=("none",)),
    (68, "member_epoch"): _EPOCHS,
    (None, "member_epoch"): _of(-1, 1, 2, wrong=(7,)),
    (None, "group_instance_id"): _of(None, None, None, "i"),
    (None, "instance_id"): _of(None, None, None, "i"),
    (None, "generation_id"): _of(1, 1, 1, 2, 3, wrong=(-1, 0, 9)),
    (None, "generation_id_or_member_epoch"): _of(-1, -1, 1, 1, 2, 3, wrong=(0, 9)),
    (None, "protocol_type"): _of("consumer", wrong=("connect", "")),
    (None, "protocol_name"): _of("range", wrong=("x",)),
    (11, "name"): _of("range", "range", "x"),
    (None, "session_timeout_ms"): _of(30_000, wrong=(1, 10_000_000)),
    (None, "rebalance_timeout_ms"): _of(2_000),
    (None, "committed_offset"): _of(0, 5, 10, wrong=(-1, -5)),
    (None, "committed_leader_epoch"): _of(-1, 0),
    (None, "committed_metadata"): _of("", "m", None, wrong=("x" * 30,)),
    (None, "metadata"): _of(b"", b"meta"),
    (None, "assignment"): _of(b"", b"mine"),
    (None, "verify_only"): _of(False, True),
    (None, "states_filter"): _of("Stable", "Empty", wrong=("x",)),
    (None, "types_filter"): _of("classic", "consumer", "share", wrong=("x",)),
    (None, "key_type"): _of(0, 1, 2, wrong=(5,)),
    (None, "key"): _of("~g", "~x", wrong=("",)),
    (None, "coordinator_keys"): _of("~g", "~x", "~s:AAAAAAAAAAAAAAAAAAAAAQ:0", wrong=("", "~s:x:0")),
}
_SHARE_GROUPS = {
    **dict.fromkeys(((key, "group_id") for key in (76, 78, 79, 83, 84, 85, 86)), _share_group),
    (91, "group_id"): _altered_group,
    **dict.fromkeys(
        ((77, "group_ids"), (87, "group_id"), (92, "group_id")),
        lambda drawing: drawing.one(_share_group(drawing), _altered_group(drawing)),
    ),
    **dict.fromkeys(((key, "member_id") for key in (76, 78, 79)), _of(*MEMBERS, wrong=("", "x"))),
    (76, "member_epoch"): _EPOCHS,
    (None, "share_session_epoch"): _of(0, 0, 1, 2, -1, wrong=(9,)),
    (78, "max_wait_ms"): _of(600),
    (78, "min_bytes"): _of(0, 1),
    (None, "max_records"): _of(500, 1),
    (78, "max_bytes"): _of(1 << 20, wrong=(1,)),
    (None, "batch_size"): _of(500, 1, wrong=(0,)),
    (None, "share_acquire_mode"): _of(0, 1),
    (None, "is_renew_ack"): _of(False, False, True),
    (None, "state_epoch"): _of(0, 0, 1, wrong=(-1,)),
    (None, "start_offset"): _of(0, 1, -1, wrong=(50, -2)),
    (None, "delivery_complete_count"): _of(0, 1, -1),
    (90, "partitions"): _of(0, 0, 1),
    (91, "partition_index"): _of(0, 0, 1, wrong=(2, 9)),
    (91, "start_offset"): _of(0, 1, 2, wrong=(-1, 50)),
    (90, "group_id"): lambda drawing: drawing.one("~s", "~w", "~w", "~g", wrong=("~none",)),
    **_DELIVERY,
}  # fmt: skip
_STREAMS_GROUPS = {
    **dict.fromkeys(((key, "group_id") for key in (88, 93)), _streams_group),
    (89, "group_ids"): _streams_group,
    (88, "member_id"): _of("m1", "m2", wrong=("",)),
    (93, "member_id"): _of("m1", "m2", wrong=("",)),
    (88, "member_epoch"): _EPOCHS,
    (88, "epoch"): _of(0, 0, 1),
    (93, "topology_epoch"): _of(0, 0, 1, wrong=(-1,)),
    (88, "endpoint_information_epoch"): _of(-1, 0),
    (None, "subtopology_id"): _of("0", "0", wrong=("1",)),
    (None, "process_id"): _of("p", "q"),
    (88, "host"): _of("h"),
    (88, "port"): _of(1000, wrong=(0,)),
    (88, "shutdown_application"): _of(False, False, False, True),
    (88, "key"): _of("zone"),
    (88, "value"): _of("a", "b"),
    (93, "name"): _of("n1", "n2"),
    (93, "node_type"): _of(1, 2, 3, wrong=(9,)),
    (93, "sink_topic"): _of(None, "~b"),
    (93, "stores"): _of("store"),
    (93, "successors"): _of("n2"),
}
_SECURITY = {
    **dict.fromkeys(((key, "resource_type_filter") for key in (29, 31)), _of(1, 2, 2, 3, 4, wrong=(99,))),
    **dict.fromkeys(((key, "resource_name_filter") for key in (29, 31)), _of("~a", "~", None, wrong=("", "~none"))),
    **dict.fromkeys(((key, "pattern_type_filter") for key in (29, 31)), _of(1, 2, 3, 4, wrong=(99,))),
    (29, "principal_filter"): lambda drawing: drawing.one(None, _PRINCIPALS(drawing)),
    # Without a principal it would delete what other sequences have made.
    (31, "principal_filter"): _PRINCIPALS,
    **dict.fromkeys(((key, "host_filter") for key in (29, 31)), _of(None, None, "*", wrong=("10.0.0.1", ""))),
    **dict.fromkeys(((key, "operation") for key in (29, 31)), _of(1, 1, 2, 3, 4, wrong=(99,))),
    **dict.fromkeys(((key, "permission_type") for key in (29, 31)), _of(1, 1, 2, 3, wrong=(99,))),
    # Others' numbers: see differences.toml.
    (30, "resource_type"): _of(2, 2, 3, 5, wrong=(4, 6, 7)),
    (30, "resource_name"): _of("~a", "~b", "~", wrong=("", "kafka-cluster")),
    (30, "resource_pattern_type"): _of(3, 3, 4),
    (30, "principal"): _PRINCIPALS,
    (30, "host"): _of("*", "10.0.0.1", wrong=("",)),
    (30, "operation"): _of(2, 3, 4, 8),
    (30, "permission_type"): _of(2, 3),
    **dict.fromkeys(((key, "entity_type") for key in (48, 49)), _of("user", "user", "client-id", wrong=("ip", "x", ""))),
    (49, "entity_name"): _USERS,
    (49, "key"): _of("producer_byte_rate", "consumer_byte_rate", "request_percentage", wrong=("x", "connection_creation_rate")),
    (49, "value"): _of(1e6, 50.0, wrong=(0.0, -1.0, 0.5)),
    (49, "remove"): _of(False, False, True),
    (48, "match_type"): _of(0, 0, 1, 2, wrong=(9,)),
    (48, "match"): lambda drawing: drawing.one(None, _USERS(drawing)),
    (50, "name"): _USERS,
    (51, "name"): _USERS,
    (51, "mechanism"): _of(1, 2, wrong=(0, 9)),
    (51, "iterations"): _of(4096, 8192, wrong=(0, 100, 16385)),
    (51, "salt"): _of(b"salt"),
    (51, "salted_password"): _of(b"p" * 32),
    (17, "mechanism"): _of("PLAIN", "SCRAM-SHA-256", wrong=("x", "")),
    (36, "auth_bytes"): _of(b"", b"\0u\0p"),
    (None, "hmac"): _of(b"h" * 32, wrong=(b"",)),
    (38, "max_lifetime_ms"): _of(-1, 60_000, wrong=(-2,)),
    **dict.fromkeys(((None, name) for name in ("principal_type", "owner_principal_type")), _of("User", wrong=("x", ""))),
    **dict.fromkeys(((None, name) for name in ("principal_name", "owner_principal_name")), _USERS),
}  # fmt: skip
_CLUSTER = {
    (None, "timeout_ms"): _of(10_000),
    (None, "validate_only"): _of(False, False, False, True),
    (18, "client_software_name"): _of("client", wrong=("", "bad name!")),
    (18, "client_software_version"): _of("1.0", wrong=("", "bad version!")),
    (18, "cluster_id"): _of(None, wrong=("x",)),
    (18, "node_id"): _of(-1, wrong=(7,)),
    (55, "topic_name"): _of("__cluster_metadata", "__cluster_metadata", "~a"),
    (60, "endpoint_type"): _of(1, wrong=(0, 2, 9)),
    # A feature's change would be one for all sequences; the oldest version of the API makes it in any case.
    (57, "feature"): _of("kraft.version", "metadata.version", "group.version", "transaction.version", wrong=("x", "")),
    (57, "max_version_level"): _of(1, 2, 25, 30, wrong=(0, -1, 999)),
    (57, "upgrade_type"): _of(1, 2, 3, wrong=(0, 9)),
    (57, "validate_only"): _of(True),
    (57, "allow_downgrade"): _of(False, True),
    # No such node, so that nothing is changed.
    **dict.fromkeys(((None, name) for name in ("broker_id", "controller_id", "voter_id")), _of(7, wrong=(-1,))),
    (None, "voter_directory_id"): _of(b"\7" * 16),
    (80, "cluster_id"): _of(None, wrong=("x",)),
    (81, "cluster_id"): _of(None, wrong=("x",)),
    (80, "host"): _of("127.0.0.1"),
    (80, "port"): _of(1),
    (80, "name"): _of("CONTROLLER", wrong=("x",)),
}
#: (API key or None, field) -> how to draw it.
POOLS: Mapping[tuple[int | None, str], Callable[[Drawing], Any]] = {
    **_RECORDS, **_TOPICS, **_TRANSACTIONS, **_GROUPS, **_SHARE_GROUPS, **_STREAMS_GROUPS, **_SECURITY, **_CLUSTER,
}  # fmt: skip
