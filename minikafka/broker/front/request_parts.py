"""Splits a long request into short ones: which lists may be split, and how the answers to the parts become one answer.

If an API decides on each entry separately, splitting its entries over several consecutive requests changes nothing. An API without a
rule here is served whole, and so may not have many entries. If an API refuses entries that are named twice, entries of
the same name go into one part.

A short request can have a long answer, too. So each entry weighs what its answer costs, and duplicates are answered once.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Any

from minikafka.broker.front.named_twice import STEP_ENTRIES, asked, emptied, last_of_each, name_of, two_of_each, with_values
from minikafka.late_dataclass import dataclass
from minikafka.wire.declaration import Struct
from minikafka.wire.errors import WireError
from minikafka.wire.lazy_list import LazyList
from minikafka.wire.message import Request
from minikafka.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from minikafka.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from minikafka.wire.messages.alter_configs import AlterConfigsRequest
from minikafka.wire.messages.alter_partition import AlterPartitionRequest
from minikafka.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from minikafka.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from minikafka.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from minikafka.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from minikafka.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.create_partitions import CreatePartitionsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.delete_acls import DeleteAclsRequest
from minikafka.wire.messages.delete_groups import DeleteGroupsRequest
from minikafka.wire.messages.delete_records import DeleteRecordsRequest
from minikafka.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from minikafka.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest
from minikafka.wire.messages.describe_configs import DescribeConfigsRequest
from minikafka.wire.messages.describe_groups import DescribeGroupsRequest
from minikafka.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from minikafka.wire.messages.describe_producers import DescribeProducersRequest
from minikafka.wire.messages.describe_quorum import DescribeQuorumRequest
from minikafka.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from minikafka.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from minikafka.wire.messages.describe_transactions import DescribeTransactionsRequest
from minikafka.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from minikafka.wire.messages.elect_leaders import ElectLeadersRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from minikafka.wire.messages.leave_group import LeaveGroupRequest
from minikafka.wire.messages.list_offsets import ListOffsetsRequest
from minikafka.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from minikafka.wire.messages.metadata import MetadataRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.offset_delete import OffsetDeleteRequest
from minikafka.wire.messages.offset_fetch import OffsetFetchRequest
from minikafka.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from minikafka.wire.messages.produce import ProduceRequest
from minikafka.wire.messages.read_share_group_state import ReadShareGroupStateRequest
from minikafka.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from minikafka.wire.messages.share_group_describe import ShareGroupDescribeRequest
from minikafka.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from minikafka.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from minikafka.wire.messages.write_share_group_state import WriteShareGroupStateRequest
from minikafka.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from minikafka.wire.types import Array, Fixed, Variable

#: Entries of a part, and the most entries of a request that cannot be split.
PART_ENTRIES = 512
WHOLE_ENTRIES_MAX = 10_000
#: The most entries of a request that changes the cluster (Kafka: QuorumController.MAX_RECORDS_PER_USER_OP).
USER_OPERATION_ENTRIES_MAX = 10_000
#: Batches in a write of the state of a share partition. A leader of Apache Kafka writes one for each of 10,000 locked records, and for
#: those of the last batch in the log, which it does not divide. Ours writes them in parts (`share/leader.py`).
STATE_BATCHES_MAX = 12_000

#: Weight of an entry whose answer holds everything the broker knows of an object. A part holds fewer of them, and none twice.
HEAVY = 64
#: Weight of a batch of records.
BATCH = 4
#: Weight of a group that is deleted: a batch is written for each.
GROUP = 8
#: Weight of a change of the cluster. The controller decides on and writes all changes of a part in one turn.
CHANGE = 4
LAST, TWO = "last", "two"


@dataclass(frozen=True, slots=True)
class Cut:
    """How to split one list of a request.

    `entries`: the names of the nested lists from the request down to the list to split. `answers`: the corresponding lists of the response.
    `weights`: the weight of an entry of each list if it holds no nested entries; 1 by default. `names`: the fields that name an entry;
    entries of one name are decided together; empty if the entry itself is the name. `is_begun_at_once`: no part waits for the answer to
    another. `beside`: a list of the response to which each part may add nodes. `repeated`: how to treat repeated names: only the LAST
    entry counts, or TWO entries are enough for a refusal. `held_max`: how much an entry may hold that is not divided.
    """

    entries: tuple[str, ...]
    answers: tuple[str, ...]
    entries_max: int | None = None
    weights: tuple[int, ...] = ()
    names: tuple[str, ...] | None = None
    is_begun_at_once: bool = False
    beside: str = ""
    repeated: str = ""
    held_max: int = WHOLE_ENTRIES_MAX


def _same(*lists: str) -> list[Cut]:
    return [Cut(lists, lists)]


def _described(entries: tuple[str, ...], answers: tuple[str, ...]) -> list[Cut]:
    return [Cut(entries, answers, weights=(*(1 for _ in entries[1:]), HEAVY))]


def _operation(entries: str, answers: str, *names: str) -> list[Cut]:
    return [Cut((entries,), (answers,), USER_OPERATION_ENTRIES_MAX, (CHANGE,), names or None)]


_TOPICS = ("topics", "partitions")
_SHARE_STATE = Cut(("topics", "partitions"), ("results", "partitions"))

CUTS: dict[type[Request], list[Cut]] = {
    ListOffsetsRequest: [Cut(_TOPICS, _TOPICS, names=("partition_index",), repeated=TWO)],
    OffsetForLeaderEpochRequest: _same("topics", "partitions"),
    DeleteRecordsRequest: [Cut(_TOPICS, _TOPICS, names=("partition_index",), repeated=LAST)],
    MetadataRequest: [Cut(("topics",), ("topics",), names=("topic_id", "name"), repeated=LAST)],
    OffsetCommitRequest: _same("topics", "partitions"),
    OffsetDeleteRequest: _same("topics", "partitions"),
    TxnOffsetCommitRequest: _same("topics", "partitions"),
    AlterPartitionRequest: _same("topics", "partitions"),
    AssignReplicasToDirsRequest: _same("directories", "topics", "partitions"),
    DescribeGroupsRequest: _described(("groups",), ("groups",)),
    ConsumerGroupDescribeRequest: _described(("group_ids",), ("groups",)),
    ProduceRequest: [
        Cut(
            ("topic_data", "partition_data"),
            ("responses", "partition_responses"),
            weights=(1, BATCH),
            is_begun_at_once=True,
            beside="node_endpoints",
            names=("index",),
            repeated=LAST,
        ),
    ],
    LeaveGroupRequest: _same("members"),
    ListPartitionReassignmentsRequest: [Cut(("topics", "partition_indexes"), ("topics", "partitions"))],
    OffsetFetchRequest: [
        Cut(("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions"), weights=(HEAVY, 1, 1)),
        Cut(("topics", "partition_indexes"), ("topics", "partitions")),
    ],
    ShareGroupDescribeRequest: _described(("group_ids",), ("groups",)),
    StreamsGroupDescribeRequest: _described(("group_ids",), ("groups",)),
    DescribeShareGroupOffsetsRequest: [
        Cut(("groups", "topics", "partitions"), ("groups", "topics", "partitions"), weights=(HEAVY, 1, 1)),
    ],
    AlterShareGroupOffsetsRequest: [Cut(("topics", "partitions"), ("responses", "partitions"))],
    DeleteShareGroupOffsetsRequest: [Cut(("topics",), ("responses",))],
    InitializeShareGroupStateRequest: [_SHARE_STATE],
    ReadShareGroupStateRequest: [_SHARE_STATE],
    ReadShareGroupStateSummaryRequest: [_SHARE_STATE],
    WriteShareGroupStateRequest: [replace(_SHARE_STATE, held_max=STATE_BATCHES_MAX + 2)],
    DeleteShareGroupStateRequest: [_SHARE_STATE],
    FindCoordinatorRequest: [Cut(("coordinator_keys",), ("coordinators",))],
    DeleteGroupsRequest: [Cut(("groups_names",), ("results",), weights=(GROUP,), names=(), repeated=LAST)],
    DescribeProducersRequest: _described(("topics", "partition_indexes"), ("topics", "partitions")),
    DescribeTransactionsRequest: _described(("transactional_ids",), ("transaction_states",)),
    DescribeUserScramCredentialsRequest: [Cut(("users",), ("results",), names=("name",), repeated=TWO)],
    AlterUserScramCredentialsRequest: [
        Cut(("deletions",), ("results",), USER_OPERATION_ENTRIES_MAX, (CHANGE,), ("name",)),
        Cut(("upsertions",), ("results",), USER_OPERATION_ENTRIES_MAX, (CHANGE,), ("name",)),
    ],
    DescribeQuorumRequest: _same("topics", "partitions"),
    DescribeConfigsRequest: _described(("resources",), ("results",)),
    DescribeLogDirsRequest: [Cut(_TOPICS, ("results", "topics", "partitions"), names=(), repeated=LAST)],
    AlterReplicaLogDirsRequest: [Cut(("dirs", "topics", "partitions"), ("results", "partitions"))],
    # The partitions of a transaction are added all or none.
    AddPartitionsToTxnRequest: [Cut(("transactions",), ("results_by_transaction",))],
    WriteTxnMarkersRequest: [Cut(("markers", "topics", "partition_indexes"), ("markers", "topics", "partitions"))],
    ElectLeadersRequest: [Cut(("topic_partitions", "partitions"), ("replica_election_results", "partition_result"))],
    AlterPartitionReassignmentsRequest: [Cut(("topics", "partitions"), ("responses", "partitions"))],
    IncrementalAlterConfigsRequest: _operation("resources", "responses", "resource_type", "resource_name"),
    AlterConfigsRequest: _operation("resources", "responses", "resource_type", "resource_name"),
    CreateTopicsRequest: _operation("topics", "topics", "name"),
    DeleteTopicsRequest: [
        Cut(("topics",), ("responses",), USER_OPERATION_ENTRIES_MAX, (CHANGE,), ("name", "topic_id")),
        Cut(("topic_names",), ("responses",), USER_OPERATION_ENTRIES_MAX, (CHANGE,), ()),
    ],
    CreatePartitionsRequest: _operation("topics", "results", "name"),
    AlterClientQuotasRequest: _operation("entries", "entries", "entity"),
    CreateAclsRequest: _operation("creations", "results"),
    DeleteAclsRequest: _operation("filters", "filter_results"),
}


def cuts_of(request: Request) -> list[Cut]:
    """The lists by which a request may be split; empty if it must be served whole."""
    return [cut for cut in CUTS.get(type(request), ()) if getattr(request, cut.entries[0])]


def entries_of(request: Request, cuts: list[Cut]) -> int:
    """The number of entries in these lists."""
    return sum(len(getattr(request, cut.entries[0])) for cut in cuts)


def is_much(request: Request) -> bool:
    """Whether a request makes more than one part, and so is served in parts even if its frame is short."""
    for cut in CUTS.get(type(request), ()):
        entries = getattr(request, cut.entries[0])
        if entries and _weight_below(request, cut.entries, cut.weights) > PART_ENTRIES:
            return True
    return False


def _weight_below(owner: Any, lists: tuple[str, ...], weights: tuple[int, ...]) -> int:
    entries = getattr(owner, lists[0]) or ()
    weight = weights[0] if weights else 1
    if len(lists) == 1:
        return len(entries) * weight
    below, weights_below, total = lists[1:], weights[1:], 0
    if len(below) == 1:
        (name,), weight_below = below, weights_below[0] if weights_below else 1
        for entry in entries:
            total += len(getattr(entry, name) or ()) * weight_below or weight
        return total
    for entry in entries:
        total += _weight_below(entry, below, weights_below) or weight
    return total


def all_parts(request: Request, cuts: list[Cut], *, are_named: bool = True) -> Iterator[Any]:
    """The parts of all lists, one list after the other; None after a step in which no part was completed. Parts with entries that share
    a name come first, unless `are_named` is False because no entry needs an answer of its own. See `parts`."""
    alone = request
    for cut in cuts:
        alone = with_values(alone, cut.entries[0], [])
    for cut in cuts if are_named else []:
        if cut.repeated:
            yield from _settled(request, cut)
    if are_named and not cuts[0].repeated and all(cut.names is not None for cut in cuts):
        request = copy.copy(request)
        yield from _parts_of_one_name(alone, request, cuts)
    for cut in cuts:
        whole = with_values(alone, cut.entries[0], getattr(request, cut.entries[0]))
        yield from parts(whole, cut.entries, weights=cut.weights, held_max=cut.held_max)


def _settled(request: Request, cut: Cut) -> Iterator[Any]:
    """Handle repeated names: yields parts, and None between steps."""
    if cut.repeated == LAST:
        yield from last_of_each(request, cut.entries, cut.names or ())
    else:
        yield from two_of_each(request, cut.entries, cut.names or (), PART_ENTRIES // 2)


def _parts_of_one_name(alone: Request, request: Request, cuts: list[Cut]) -> Iterator[Any]:
    """Take entries that share a name out of the request, all entries of a name into one part."""
    lists: list[list[tuple[Hashable, Any]]] = [[] for _ in cuts]
    counts: Counter[Hashable] = Counter()
    for cut, named in zip(cuts, lists, strict=True):
        for number, entry in enumerate(getattr(request, cut.entries[0]), 1):
            name = name_of(entry, cut.names or ())
            named.append((name, entry))
            counts[name] += 1
            if number % STEP_ENTRIES == 0:
                yield None
    yield None
    shared: dict[Hashable, list[list[Any]]] = {}
    for number, (name, count) in enumerate(counts.items(), 1):
        if count > 1:
            shared[name] = [[] for _ in cuts]
        if number % STEP_ENTRIES == 0:
            yield None
    yield from emptied(counts)
    for number, (cut, named) in enumerate(zip(cuts, lists, strict=True)):
        if shared:
            yield from _taken_out(request, cut, named, number, shared)
        while named:
            del named[-STEP_ENTRIES:]
            yield None
    if not shared:
        return
    taken: list[list[Any]] = [[] for _ in cuts]
    for number, name in enumerate(shared):
        for into, more in zip(taken, shared[name], strict=True):
            into += more
        weight = sum(len(entries) * (*cut.weights, 1)[0] for cut, entries in zip(cuts, taken, strict=True))
        if weight >= PART_ENTRIES or number == len(shared) - 1:
            part = alone
            for cut, entries in zip(cuts, taken, strict=True):
                part = with_values(part, cut.entries[0], entries)
            yield part
            taken = [[] for _ in cuts]


def _taken_out(
    request: Request, cut: Cut, named: list[tuple[Hashable, Any]], number: int, shared: dict[Hashable, list[list[Any]]]
) -> Iterator[None]:
    """Take the entries of shared names out of one list of the request, in steps."""
    others: list[Any] = []
    for at, (name, entry) in enumerate(named, 1):
        (shared[name][number] if name in shared else others).append(entry)
        if at % STEP_ENTRIES == 0:
            yield None
    setattr(request, cut.entries[0], others)


def parts(
    request: Any,
    lists: tuple[str, ...],
    entries_max: int = PART_ENTRIES,
    *,
    weights: tuple[int, ...] = (),
    is_answer: bool = False,
    held_max: int = WHOLE_ENTRIES_MAX,
) -> Iterator[Any]:
    """Split a request into parts of `entries_max` entries, in order; None after a step in which no part was completed, because many entries
    had been named before. The entries are taken out of the request, so that its memory is not freed all at once. `weights`, `held_max`: see
    Cut. `is_answer`: one of our own responses, whose entries may hold any number of nested entries.

    Raises WireError if an entry of a request holds too many nested entries and cannot be split.
    """
    seen: set[Hashable] = set()
    for part, _ in _weighed_parts(request, lists, entries_max, weights, seen, (), None if is_answer else held_max):
        yield part
    while seen:
        for _ in range(min(STEP_ENTRIES, len(seen))):
            seen.pop()
        yield None


def _weighed_parts(
    request: Any,
    lists: tuple[str, ...],
    entries_max: int,
    weights: tuple[int, ...],
    seen: set[Hashable],
    place: tuple[Any, ...],
    held_max: int | None,
) -> Iterator[tuple[Any, int]]:
    """The parts, each with its weight, or None with 0, see `parts`. `seen`: heavy entries so far; `place`: the names on the path from the
    request to here."""
    taken: list[Any] = []
    weight = number = 0
    entries = getattr(request, lists[0])
    if type(entries) is LazyList:
        return  # of an answer: what was made of it was freed when it was encoded
    entries.reverse()
    while entries:
        entry = entries.pop()
        number += 1
        if number % STEP_ENTRIES == 0:
            yield None, 0
        inner = getattr(entry, lists[1], None) if len(lists) > 1 else None
        pieces: Iterator[tuple[Any, int]] = iter(())
        if inner:
            pieces = _weighed_parts(entry, lists[1:], entries_max, weights[1:], seen, (*place, *asked(entry)), held_max)
        elif not weights or weights[0] != HEAVY or _is_news((*place, *asked(entry)), seen):
            pieces = iter([(entry, weights[0] if weights else 1)])
        for piece, own in pieces:
            if piece is None:
                yield None, 0
                continue
            held = weight_of(piece, held_max or WHOLE_ENTRIES_MAX)
            if held_max is not None and held > held_max:
                raise WireError(f"an entry of {lists[0]} holds more than {held_max} others")
            own = max(own, held)
            if weight + own > entries_max and taken:
                yield with_values(request, lists[0], taken), weight + 1
                taken, weight = [], 0
            taken.append(piece)
            weight += own
    if taken:
        yield with_values(request, lists[0], taken), weight + 1


def _is_news(name: tuple[Any, ...], seen: set[Hashable]) -> bool:
    is_new = name not in seen
    seen.add(name)
    return is_new


def weight_of(entry: Any, most: int) -> int:
    """The number of entries within `entry`, itself included; counting stops beyond `most`."""
    lists, structs = _inside(type(entry))
    weight = 1
    for name in structs:
        held = getattr(entry, name)
        if held is not None:
            weight += weight_of(held, most - weight) - 1
            if weight > most:
                return weight
    for name, holds_structs in lists:
        held = getattr(entry, name)
        if type(held) is LazyList:
            return most + 1
        if not held:
            continue
        if not holds_structs or len(held) > most or not any(_inside(type(held[0]))):
            weight += len(held)
            continue
        for inner in held:
            weight += weight_of(inner, most - weight)
            if weight > most:
                return weight
    return weight


_Inside = tuple[tuple[tuple[str, bool], ...], tuple[str, ...]]
_INSIDE: dict[Any, _Inside] = {}


def _inside(kind: Any) -> _Inside:
    """The list fields of a struct and whether each holds structs; its struct fields that hold lists."""
    found = _INSIDE.get(kind)
    if found is None:
        fields = kind.FIELDS if issubclass(kind, Struct) else ()
        lists = [(field.name, field.type) for field in fields if isinstance(field.type, Array)]
        structs = [field.name for field in fields if field.struct is not None and field.type is None and any(_inside(field.struct))]
        found = _INSIDE[kind] = tuple((name, not isinstance(held.element, Fixed | Variable)) for name, held in lists), tuple(structs)
    return found


def first_topics(request: DescribeTopicPartitionsRequest) -> str | None:
    """Keep only the first topics by name, from the cursor on, as many as fit into a part. Returns the name of the next topic, if any.

    A response may end before the last topic; its cursor says where to continue."""
    cursor = request.cursor
    if not request.topics:
        return None
    names = sorted({topic.name for topic in request.topics if cursor is None or topic.name >= cursor.topic_name})
    if names:
        request.topics = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names[:PART_ENTRIES]]
    return names[PART_ENTRIES] if len(names) > PART_ENTRIES else None


class Answers:
    """Combines the answers to the parts."""

    def __init__(self, lists: tuple[str, ...], beside: str = "") -> None:
        """`beside`: see Cut."""
        self._lists = lists
        self._beside = beside
        self._places: dict[Any, Any] = {}
        #: The combined answer so far.
        self.merged: Any = None

    def add(self, answer: Any) -> bool:
        """Add an answer. Returns whether to serve the next part; False if this answer fails the whole request."""
        if getattr(answer, "error_code", 0):
            self.merged = answer
            return False
        if self.merged is None:
            self.merged = copy.copy(answer)
            setattr(self.merged, self._lists[0], [])
            if self._beside:
                setattr(self.merged, self._beside, [])
        elif hasattr(answer, "throttle_time_ms"):
            self.merged.throttle_time_ms = max(self.merged.throttle_time_ms, answer.throttle_time_ms)
        if self._beside:
            nodes = getattr(self.merged, self._beside)
            node_ids = {node.node_id for node in nodes}
            nodes += [node for node in getattr(answer, self._beside) if node.node_id not in node_ids]
        self._extend((), getattr(self.merged, self._lists[0]), getattr(answer, self._lists[0]), self._lists[1:])
        return True

    def _extend(self, place: tuple[Any, ...], into: list[Any], more: list[Any], lists: tuple[str, ...]) -> None:
        if not lists:
            into += more
            return
        for entry in more:
            key = (*place, *_name_of(entry))
            earlier = self._places.get(key)
            if earlier is None:
                earlier = self._places[key] = copy.copy(entry)
                setattr(earlier, lists[0], [])
                into.append(earlier)
            self._extend_one(key, earlier, getattr(entry, lists[0]) or [], lists)

    def _extend_one(self, key: tuple[Any, ...], earlier: Any, more: Any, lists: tuple[str, ...]) -> None:
        into = getattr(earlier, lists[0])
        if type(more) is LazyList and len(lists) == 1 and not into:
            setattr(earlier, lists[0], more)  # its elements are made when they are encoded
            return
        if type(into) is LazyList:
            into = list(into)
            setattr(earlier, lists[0], into)
        self._extend(key, into, more, lists[1:])


def _name_of(entry: Any) -> tuple[Any, ...]:
    """Identifies an entry with nested entries: all its fields but the nested lists and values that are measured anew each time."""
    lists = {name for name, _ in _inside(type(entry))[0]}
    values = [getattr(entry, field.name) for field in entry.FIELDS if field.name not in lists]
    return (*(value for value in values if not isinstance(value, int)), *_id_of(entry))


def _id_of(entry: Any) -> tuple[Any, ...]:
    return tuple(getattr(entry, name) for name in ("producer_id", "error_code") if hasattr(entry, name))
