"""Bounds on what peers can make many: a test crosses each, and a new one needs a test that names it.

A bound is a constant of a module whose name ends in _MAX, _KEPT or _AT_ONCE, or is PART_ENTRIES. Some are crossed here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.broker.admin import tokens
from minikafka.broker.admin.metadata import PARTITIONS_PER_RESPONSE_MAX, MetadataHandlers
from minikafka.broker.observe.timeline import EVENTS_MAX, Timeline
from minikafka.broker.partitions import fast_path, fetch_fast_path, produce_fast_path
from minikafka.broker.quorum.raft_figures import UNCOMMITTED_KEPT, RaftFigures
from minikafka.broker.security.authorization.authority import REMEMBERED_MAX, Authority
from minikafka.core.authorizer import authorizer
from minikafka.core.authorizer.acl import Operation, ResourceType
from minikafka.core.group.consumer.turns import WAITING_MAX, Turns
from minikafka.core.metadata.image import PartitionRegistration, TopicImage, empty_image
from minikafka.core.scram import ScramCredential
from minikafka.core.topic_name import NAME_LENGTH_MAX, topic_name_fault
from minikafka.net.server import HELD_MAX, SocketListener
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest

ROOT = Path(__file__).parents[2]
ROOMS = ("minikafka/broker", "minikafka/core", "minikafka/net", "minikafka/security", "minikafka/spark", "wire", "storage")
BOUND = re.compile(r"_MAX$|_KEPT$|_AT_ONCE$|^PART_ENTRIES$")
#: Constants that no test names: numbers of formats and versions; times; how much is shown or done at once; what a node makes itself; and
#: defaults of parameters that tests cross with smaller numbers.
NAMED_BY_NO_TEST = {
    "minikafka/broker/admin/metadata.py": "TOPICS_AT_ONCE",
    "minikafka/broker/client_metrics/otlp.py": "ATTRIBUTES_MAX",
    "minikafka/broker/config/properties.py": "INT16_MAX INT32_MAX INT64_MAX",
    "minikafka/broker/coordinators/coordinator_topic.py": "TOPIC_WAIT_MS_MAX",
    "minikafka/broker/coordinators/transaction_coordinator.py": "RETRY_MS_MAX",
    "minikafka/broker/front/controller_channel.py": "RETRY_BACKOFF_MS_MAX TIMEOUT_GROWTH_MAX",
    "minikafka/broker/front/forwarding.py": "RESENDS_MAX",
    "minikafka/broker/observe/audits.py": "OUTPUT_BYTES_MAX",
    "minikafka/broker/observe/clients_view.py": "CLIENTS_MAX",
    "minikafka/broker/observe/cluster_view.py": "GROUPS_MAX AGE_S_MAX",
    "minikafka/broker/observe/shown_records.py": "SCHEMAS_MAX",
    "minikafka/broker/observe/topic_view.py": "RECORDS_MAX FETCH_VERSION_MAX",
    "minikafka/broker/partitions/fetch_fast_path.py": "PARTITIONS_MAX TEMPLATE_BYTES_MAX",
    "minikafka/broker/partitions/fast_path.py": "TEMPLATE_BYTES_MAX ELEMENTS_MAX",
    "minikafka/broker/partitions/produce_fast_path.py": "VARINT_BYTES_MAX",
    "minikafka/broker/quorum/controller_host.py": "CONNECT_MS_MAX",
    "minikafka/broker/quorum/controller_registration.py": "BACKOFF_MS_MAX",
    "minikafka/broker/quorum/snapshots.py": "BATCH_BYTES_MAX",
    "minikafka/broker/security/authorization/topics.py": "METADATA_CLUSTER_OPERATIONS_VERSION_MAX",
    "minikafka/broker/share/group_requests.py": "MEMBER_ID_MAX",
    "minikafka/broker/share/persister.py": "RETRY_MS_MAX BACKOFF_MS_MAX",
    "minikafka/broker/streams/internal_topics.py": "FAILURES_MAX CREATIONS_MAX FAILURES_NAMED_MAX",
    "minikafka/core/authorizer/ranges.py": "ADDRESS_CHARACTERS_MAX",
    "minikafka/core/client_metrics/instances.py": "COMPRESSION_TYPE_MAX",
    "minikafka/core/client_metrics/subscriptions.py": "INTERVAL_MS_MAX MATCH_CHARACTERS_MAX PATTERN_BYTES_MAX",
    "minikafka/core/controller/acls.py": "COMPARISONS_MAX",
    "minikafka/core/controller/config.py": "RECORDS_PER_REQUEST_MAX PARTITIONS_PER_REQUEST_MAX",
    "minikafka/core/fetch_session.py": "EPOCH_MAX",
    "minikafka/core/group/consumer/describe.py": "MEMBERS_AT_ONCE",
    "minikafka/core/group/consumer/uniform_assignor.py": "ROUNDS_MAX",
    "minikafka/core/group/share/describe.py": "MEMBERS_AT_ONCE",
    "minikafka/core/group/streams/topology.py": "NAMES_SHOWN_MAX",
    "minikafka/core/metadata/image.py": "DIRECTORY_RESERVED_MAX",
    "minikafka/core/partition/follower.py": "IN_FLIGHT_MAX SESSION_EPOCH_MAX",
    "minikafka/core/pattern.py": "BYTES_MAX",
    "minikafka/core/raft/membership.py": "CHANGE_MS_MAX KRAFT_VERSION_MAX",
    "minikafka/core/raft/quorum.py": "EPOCH_STEP_MAX",
    "minikafka/core/scram.py": "ITERATIONS_MAX",
    "minikafka/core/share/sessions.py": "_EPOCH_MAX PARTITIONS_OF_ALL_MAX",
    "minikafka/core/share/state_batches.py": "LAST_OFFSET_MAX DELIVERY_COUNT_MAX",
    "minikafka/net/socket_writer.py": "JOINED_BYTES_MAX",
    "minikafka/net/thread_stack.py": "FRAMES_MAX",
    "minikafka/security/client.py": "ROUNDS_MAX",
    "minikafka/security/scram.py": "CLIENT_ITERATIONS_MAX",
    "minikafka/spark/cluster_segments.py": "INT32_MAX",
    "minikafka/spark/framing.py": "_WORD_BYTES_MAX",
    "minikafka/spark/job_ledger.py": "RESUME_MS_MAX",
    "minikafka/spark/metadata_log.py": "VERSIONS_MAX",
    "minikafka/spark/records.py": "ZSTD_HEADER_BYTES_MAX",
    "wire/batch.py": "DECOMPRESSED_RATIO_MAX",
    "wire/compiler.py": "ARRAY_TABLE_MAX",
    "wire/compression.py": "_ZSTD_HEADER_BYTES_MAX SNAPPY_RATIO_MAX _GZIP_RATIO_MAX",
    "wire/record_scan.py": "VARINT_BITS_MAX VARLONG_BITS_MAX VARLONG_BYTES_MAX",
    "wire/types.py": "EVERY_VERSION_MAX",
    "storage/batch_scan.py": "INT32_MAX",
    "storage/config.py": "INT64_MAX",
    "storage/log_dir.py": "NAME_MAX _PARTITION_MAX",
    "storage/open_files.py": "OPEN_FILES_MAX INDEX_PAGES_MAX _LOOKS_MAX",
    "storage/producer_copies.py": "_BATCHES_MAX",
    "storage/producer_state.py": "BATCHES_KEPT INT64_MAX",
    "storage/recovery.py": "_OFFSET_MAX",
    "storage/segment.py": "_RECENT_MAX",
    "storage/validation.py": "_RATIO_MAX TIMESTAMP_MAX _BLOCKS_MAX",
}


def bounds() -> Iterator[tuple[Path, str]]:
    """Every bound, with its file."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.parse(path.read_text()).body if path.parent.name not in ("messages", "records") else ():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
                for target in targets:
                    for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                        if isinstance(name, ast.Name) and BOUND.search(name.id):
                            yield path, name.id


def test_every_bound_is_named_by_a_test() -> None:
    table = re.compile(r"(?s)\nNAMED_BY_NO_TEST = .*?\n}")
    words = [set(re.findall(r"\w+", table.sub("", path.read_text()))) for path in (ROOT / "tests").rglob("*.py")]
    unnamed: dict[str, list[str]] = {}
    for path, name in bounds():
        if not any(name in found and path.stem in found for found in words):
            unnamed.setdefault(str(path.relative_to(ROOT)), []).append(name)
    excused = {path: names.split() for path, names in NAMED_BY_NO_TEST.items()}
    new = {path: sorted(set(names) - set(excused.get(path, ()))) for path, names in unnamed.items()}
    assert not any(new.values()), f"write a test that crosses it and names it: {new}"


# -- crossed here -------------------------------------------------------------------------------------------------------------


def test_decisions_of_the_authorizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer, "DECISIONS_KEPT", 10)
    acls = authorizer.AclAuthorizer()
    for number in range(25):
        acls.decide("User:a", "10.0.0.1", Operation.READ, ResourceType.TOPIC, f"t{number}")
        acls.allows_some(f"User:{number}", "10.0.0.1", Operation.READ, ResourceType.TOPIC)
        assert len(acls._decided) <= 10 and len(acls._decided_by_type) <= 10


def test_names_of_topics() -> None:
    assert topic_name_fault("t" * NAME_LENGTH_MAX) is None
    assert "longer than" in str(topic_name_fault("t" * (NAME_LENGTH_MAX + 1)))


def test_remembered_denials_are_bounded() -> None:
    authority = Authority((), allow_everyone=False, creates_topics=False, now_ms=lambda: 0)
    authority.is_loaded = True
    context = SimpleNamespace(principal="User:a", client_host="10.0.0.1", api_key=3)
    for number in range(REMEMBERED_MAX + 50):
        assert not authority.allows(context, Operation.READ, ResourceType.TOPIC, f"t{number}")
        assert len(authority._logged) <= REMEMBERED_MAX


def test_events_and_figures_that_are_kept() -> None:
    timeline, figures = Timeline(lambda: 0), RaftFigures()
    for number in range(EVENTS_MAX + 10):
        timeline._note("topic", f"t{number}", -1, "it is new")
    for number in range(UNCOMMITTED_KEPT + 10):
        figures.note_appended(1, number, 0)
    assert len(timeline.events) == EVENTS_MAX and len(figures._uncommitted) == UNCOMMITTED_KEPT


def test_credentials_of_delegation_tokens_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(tokens, "CREDENTIALS_MAX", 3)

    def credential(*arguments: Any) -> Any:
        made.append(arguments[1])
        return SimpleNamespace()

    monkeypatch.setattr(ScramCredential, "of_password", credential)
    known = {name: SimpleNamespace(token_id=name, owner="User:a", expiration_timestamp=9) for name in "abcde"}
    ours = tokens.DelegationTokens("secret", lambda: SimpleNamespace(delegation_tokens=known))  # type: ignore[arg-type,return-value]
    mechanism: Any = SimpleNamespace(name="SCRAM-SHA-256")
    for name in "abcdeedca":
        assert ours.login(name, mechanism) is not None
    assert len(ours._credentials) == 3 and len(made) == 6, "c, d and e were kept"
    assert ours.login("z", mechanism) is None and len(made) == 6


def test_requests_that_wait_for_their_group() -> None:
    turns, refused = Turns(), list[ErrorCode]()
    for _ in range(WAITING_MAX + 3):
        turns.run("g", lambda now_ms: True, lambda code, now_ms: refused.append(code), 0)
    assert refused == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2


@pytest.mark.parametrize(
    "most", [fetch_fast_path.TEMPLATES_MAX, fetch_fast_path.LAYOUTS_MAX, produce_fast_path.TEMPLATES_MAX, produce_fast_path.LENGTHS_MAX]
)
def test_templates_of_the_short_ways(most: int) -> None:
    table: dict[int, int] = {}
    for number in range(2 * most + 1):
        fast_path.remember(table, number, number, most)
        assert len(table) <= most and table[number] == number


def test_connections_that_came_too_soon() -> None:
    closed: list[str] = []
    connection = SimpleNamespace(close=closed.append)
    loop = SimpleNamespace(call_later=lambda *_: None)
    held: Any = SimpleNamespace(refused_total=0, _held=_Bag(range(HELD_MAX - 1)), _loop=loop, _let_go=None)
    for _ in range(3):
        SocketListener._hold(held, connection, 1000)  # type: ignore[arg-type]
    assert len(held._held) == HELD_MAX and closed == ["too many connections"] * 2 and held.refused_total == 3


class _Bag(list[Any]):
    """A set of what has no hash."""

    def add(self, item: Any) -> None:
        self.append(item)


def test_partitions_of_one_answer_to_describe_topic_partitions() -> None:
    image, many = empty_image(), 2 * PARTITIONS_PER_RESPONSE_MAX + 10
    topic = TopicImage("t", bytes(16), {index: PartitionRegistration([1], [1], 1) for index in range(many)})
    image.topics_by_name["t"] = image.topics_by_id[bytes(16)] = topic
    metadata: Any = SimpleNamespace(image=image, subscribe=lambda _: None)
    anything: Any = SimpleNamespace()
    handlers = MetadataHandlers(anything, metadata, anything, "", anything, anything)
    kind, context = DescribeTopicPartitionsRequest, SimpleNamespace(listener="L")
    request, found = kind(topics=[kind.TopicRequest(name="t")], response_partition_limit=1 << 30), list[int]()
    for _ in range(3):
        answer = handlers.describe_topic_partitions(context, request)  # type: ignore[arg-type]
        found += [partition.partition_index for partition in answer.topics[0].partitions]
        assert len(answer.topics[0].partitions) <= PARTITIONS_PER_RESPONSE_MAX
        if answer.next_cursor is not None:
            request.cursor = kind.Cursor(topic_name="t", partition_index=answer.next_cursor.partition_index)
    assert found == [*range(many)]
