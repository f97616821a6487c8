"""S26: a coordinator's state in memory equals the committed part of its log, which is evaluated here by independent code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.sim.replicas import segments_of
from minikafka.wire.batch import iterate_batches
from minikafka.wire.records.frame import decode_group_key, decode_group_value, decode_transaction_key, decode_transaction_value
from minikafka.wire.records.group_records import OffsetCommitKey

if TYPE_CHECKING:
    from minikafka.sim.node import SimNode
    from minikafka.sim.parts import Invariants

Place = tuple[str, str, int]
#: Key version and type of a marker that commits.
_COMMIT = b"\x00\x00\x00\x01"


def check_bounds(invariants: Invariants, node: SimNode) -> None:
    """Check that no shard acts on records that an election could still remove."""
    broker = None if node.node is None else node.node.broker
    for runtime in () if broker is None else (broker.groups.runtime, broker.transactions.runtime, broker.shares.states.runtime):
        for index, led in runtime._led.items():
            invariants.checked["S26"] += 1
            replayed, high_watermark = led.reader.next_offset, led.partition.log.high_watermark
            if led.partition.log.failure is None and replayed > max(high_watermark, led.partition.log.log_start_offset):
                text = f"has replayed {runtime.topic.name}-{index} up to {replayed}, but the high watermark is {high_watermark}"
                invariants.world.violate("S26", f"{node} {text}")
            if led.is_loaded and replayed < led.end_offset:
                text = f"serves {runtime.topic.name}-{index}, replayed up to {replayed}, but its log ends at {led.end_offset}"
                invariants.world.violate("S26", f"{node} {text}")


def check_all(invariants: Invariants) -> None:
    """Check the offsets, open commits and transactions of every leader, at rest."""
    for topic in invariants.image.topics_by_id.values():
        for index, registration in topic.partitions.items():
            node = invariants.world.nodes.get(registration.leader)
            broker = None if node is None or node.node is None else node.node.broker
            if node is None or broker is None or topic.name not in ("__consumer_offsets", "__transaction_state"):
                continue
            is_groups = topic.name == "__consumer_offsets"
            shards: dict[int, Any] = dict((broker.groups if is_groups else broker.transactions).runtime.loaded())
            name = f"{topic.name}-{index}"
            if index not in shards:
                invariants.world.violate("S26", f"{node} leads {name} but does not serve it")
            elif is_groups:
                _check_groups(invariants, node, name, shards[index])
            else:
                _check_transactions(invariants, node, name, shards[index])


def _check_groups(invariants: Invariants, node: SimNode, name: str, shard: Any) -> None:
    stored, opened = _offsets_of(node, f"/data/{name}")
    found = {(group, *key): committed.offset for group, offsets in shard.offsets for key, committed in offsets.items()}
    if found != stored:
        both = {place: (found.get(place), stored.get(place)) for place in {**found, **stored}}
        differences = {place: pair for place, pair in both.items() if pair[0] != pair[1]}
        invariants.world.violate("S26", f"{node} {name}: offsets differ as (in memory, in the log): {differences}")
    in_memory = {(group, *key) for group in shard.offsets.group_ids() for key in shard.offsets.open_partitions(group)}
    if in_memory != opened:
        invariants.world.violate("S26", f"{node} {name}: open transactions in memory {sorted(in_memory)}, in the log {sorted(opened)}")


def _offsets_of(node: SimNode, directory: str) -> tuple[dict[Place, int], set[Place]]:
    """(committed offsets, keys of offsets in open transactions), read from a log."""
    stored: dict[Place, tuple[int, int]] = {}
    opened: dict[int, dict[Place, tuple[int, int]]] = {}
    for _, inode in segments_of(node.disk, directory):
        for batch in iterate_batches(memoryview(bytes(inode.data))):
            for record in batch.records():
                if batch.is_control:
                    for place, commit in opened.pop(batch.producer_id, {}).items():
                        if bytes(record.key or b"") == _COMMIT and stored.get(place, (-1, -1))[0] < commit[0]:
                            stored[place] = commit
                    continue
                key = decode_group_key(bytes(record.key or b""))
                if not isinstance(key, OffsetCommitKey):
                    continue
                place = (key.group, key.topic, key.partition)
                if record.value is None:
                    stored.pop(place, None)
                    for commits in opened.values():
                        commits.pop(place, None)
                    continue
                commit = (record.offset, decode_group_value(key, bytes(record.value)).offset)
                if batch.is_transactional:
                    opened.setdefault(batch.producer_id, {})[place] = commit
                else:
                    stored[place] = commit
    return {place: offset for place, (_, offset) in stored.items()}, {place for commits in opened.values() for place in commits}


def _check_transactions(invariants: Invariants, node: SimNode, name: str, shard: Any) -> None:
    stored: dict[str, tuple[int, int, int]] = {}
    for _, inode in segments_of(node.disk, f"/data/{name}"):
        for batch in iterate_batches(memoryview(bytes(inode.data))):
            for record in () if batch.is_control else batch.records():
                key: Any = decode_transaction_key(bytes(record.key or b""))
                if record.value is None:
                    stored.pop(key.transactional_id, None)
                    continue
                value = decode_transaction_value(key, bytes(record.value))
                stored[key.transactional_id] = (value.producer_id, value.producer_epoch, value.transaction_status)
    found = {each.transactional_id: (each.producer_id, each.producer_epoch, each.state.number) for each in shard.transactions}
    if found != stored:
        invariants.world.violate("S26", f"{node} {name}: in memory {found}, in the log {stored} (producer id, epoch, state)")
