"""S17 and S25, checked against the logs: the transactions in committed batches are compared with markers, last stable offsets, indexes of
aborted transactions and the coordinators' state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from minikafka.sim.replicas import Batch, from_offset, inode_of, segments_of
from minikafka.wire.batch import iterate_batches
from minikafka.wire.records.frame import decode_transaction_key, decode_transaction_value

if TYPE_CHECKING:
    from minikafka.sim.node import SimNode
    from minikafka.sim.parts import Invariants

Key = tuple[bytes, int]
STATE_TOPIC = "__transaction_state"
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
#: Position of the marker's type in its batch: after the header come the record's length, attributes, two deltas and the key's length, one
#: byte each, and the key's version, two bytes.
_MARKER_TYPE_AT = 68
_PREPARED = {2: True, 3: False}


class Isolation:
    """The transactions in the committed batches. All are of transaction.version 2, so a marker has its transaction's epoch plus one."""

    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self._world = invariants.world
        #: By log: producer id -> (epoch, first offset) of its open transaction.
        self.open: dict[Key, dict[int, tuple[int, int]]] = {}
        #: By log: (producer id, first offset, offset of the marker) of every aborted transaction.
        self.aborted: dict[Key, set[tuple[int, int, int]]] = {}
        #: By log: (producer id, epoch of the marker) -> whether it commits.
        self.markers: dict[Key, dict[tuple[int, int], bool]] = {}
        self._outcomes: dict[tuple[int, int], bool] = {}
        self._epochs: dict[tuple[Key, int], int] = {}
        self._found_ends: dict[tuple[int, str], int] = {}
        #: By log: (first offset, offset of the marker) of every transaction that has ended.
        self._ended: dict[Key, list[tuple[int, int]]] = {}
        #: By log: leader epoch -> the last (high watermark, last stable offset) of that leader, up to which readers may have read.
        self._reached: dict[Key, dict[int, tuple[int, int]]] = {}
        #: (producer id, epoch of the markers, whether it commits) of each decision in the committed part of a coordinator's log.
        self._decided: set[tuple[int, int, bool]] = set()

    def deciding(self, node: SimNode, markers: Any) -> None:
        """Markers are about to be sent: their decision must be committed, or the next coordinator could lose it and decide otherwise."""
        decision = (markers.producer_id, markers.producer_epoch, markers.commit)
        if decision not in self._decided and not self._invariants.is_compacted(STATE_TOPIC):
            who = f"{markers.transactional_id}, epoch {markers.producer_epoch}"
            self._world.violate("S17", f"{node} sends markers of {who}: {_word(markers.commit)}, but that decision is not committed")

    def _note_decision(self, node: SimNode, log: Any, batch: Batch) -> None:
        inode = inode_of(node.disk, log.directory, batch)
        data = memoryview(bytes(inode.data[batch.position : batch.end]))
        for commits, value in _decisions_in(data):
            self._decided.add((value.producer_id, value.producer_epoch, commits))

    def committed(self, node: SimNode, log: Any, key: Key, batch: Batch) -> None:
        """Check a batch that is now below a high watermark: each producer has one transaction at a time in a log, which its own marker
        ends, and all logs have the same marker."""
        if log.topic == STATE_TOPIC:
            self._note_decision(node, log, batch)
        if not batch.attributes & _TRANSACTIONAL:
            return
        fail, producer_id, epoch = self._world.violate, batch.producer_id, batch.producer_epoch
        where = f"{node} {log.name}: producer {producer_id}"
        self._invariants.checked["S17"] += 1
        opened = self.open.setdefault(key, {})
        current = opened.get(producer_id)
        if not batch.attributes & _CONTROL:
            if current is None:
                after = self._epochs.get((key, producer_id), -1)
                if epoch < after:
                    fail("S17", f"{where} begins in epoch {epoch} at {batch.base}, after the marker of epoch {after}")
                opened[producer_id] = (epoch, batch.base)
            elif current[0] != epoch:
                fail("S17", f"{where} writes at {batch.base} in epoch {epoch}, but epoch {current[0]} has been open since {current[1]}")
            return
        commits = _commits(node, log.directory, batch)
        if self._outcomes.setdefault((producer_id, epoch), commits) != commits:
            fail("S17", f"{where} has a marker of epoch {epoch} at {batch.base} that {_word(commits)}, and another that does not")
        self.markers.setdefault(key, {})[producer_id, epoch] = commits
        self._epochs[key, producer_id] = epoch
        if current is not None:
            del opened[producer_id]
            self._ended.setdefault(key, []).append((current[1], batch.base))
            if current[0] != epoch - 1:
                fail("S17", f"{where} has a marker of epoch {epoch} at {batch.base}, but its transaction has epoch {current[0]}")
            if not commits:
                self.aborted.setdefault(key, set()).add((producer_id, current[1], batch.base))

    def loaded(self, node: SimNode, log: Any) -> None:
        """Note where a log ended when its broker started: below that, the broker may know of ended transactions from a snapshot."""
        self._found_ends[node.node_id, log.directory] = log.log_end_offset

    def check_stable(self, node: SimNode, log: Any, key: Key) -> None:
        """Check that read_committed readers do not get beyond an open transaction. A transaction that has ended according to this replica's
        producer snapshot does not hold them back, as in Kafka: its marker follows a decision, which is never revoked."""
        for producer_id, (_, start) in self.open.get(key, {}).items():
            if log.last_stable_offset <= start or node.partition(log.topic, log.partition) is None:
                continue
            end = self._found_ends.get((node.node_id, log.directory), 0)
            held = from_offset(node.disk, log.directory, start)
            if not any(b.attributes & _CONTROL and b.producer_id == producer_id and b.last < end for b in held):
                self._world.violate(
                    "S17", f"{node} {log.name}: the last stable offset is {log.last_stable_offset}, but a transaction has been open "
                           f"since {start}"
                )

    def check_reach(self, node: SimNode, partition: Any) -> None:
        """S25: only a transaction that is open below the high watermark holds back read_committed readers, and a later leader whose high
        watermark has reached its epoch sends no reader back (KIP-207)."""
        log, key, leader = partition.log, (partition.topic_id, partition.index), partition.leader
        self._invariants.checked["S25"] += 1
        reached = (log.high_watermark, log.last_stable_offset)
        if reached[1] < max(reached[0], log.log_start_offset):
            self._check_held_back(node, partition, key)
        if leader is None or leader.high_watermark < leader.epoch_start_offset:
            return
        by_epoch = self._reached.setdefault(key, {})
        for epoch, before in by_epoch.items():
            if epoch <= leader.leader_epoch and (reached[0] < before[0] or reached[1] < before[1]):
                text = f"readers reached {before} in epoch {epoch}, but only {reached} in epoch {leader.leader_epoch}"
                self._world.violate("S25", f"{node} {partition}: {text} (high watermark, last stable offset)")
        by_epoch[leader.leader_epoch] = reached

    def _check_held_back(self, node: SimNode, partition: Any, key: Key) -> None:
        log = partition.log
        high_watermark, last_stable_offset = log.high_watermark, log.last_stable_offset
        unstable = [first for first, end in self._ended.get(key, ()) if first < high_watermark <= end]
        unstable += [first for _, first in self.open.get(key, {}).values()]
        if last_stable_offset < max(min([high_watermark, *unstable]), log.log_start_offset):
            where = f"the last stable offset is {last_stable_offset}, but the high watermark is {high_watermark}"
            self._world.violate("S25", f"{node} {partition}: {where}, transactions are open at {sorted(unstable)}")

    # -- at rest ---------------------------------------------------------------------------------------------------

    def unrest(self) -> tuple[str, str] | None:
        """Why transactions are not at rest, as (rule, text); None if none is open in a log or at its coordinator."""
        image, world = self._invariants.image, self._world
        for topic in image.topics_by_id.values():
            for index, registration in topic.partitions.items():
                node = world.nodes.get(registration.leader)
                partition = None if node is None else node.partition(topic.name, index)
                if partition is None:
                    continue
                log = partition.log
                if log.last_stable_offset < log.high_watermark:
                    opened = log.producer_state.open_transactions()
                    return "S17", f"{topic.name}-{index}: the last stable offset is {log.last_stable_offset}; open transactions: {opened}"
        for node, _, shard in self._shards():
            for found in [] if shard is None else shard.transactions:
                pending = shard.pending_state(found.transactional_id)
                if not found.state.is_over or pending is not None:
                    return "S17", f"{node}: {found.transactional_id} is {found.state.label}, {pending} is being entered"
        return None

    def _shards(self) -> list[tuple[SimNode, int, Any]]:
        topic = self._invariants.image.topics_by_name.get(STATE_TOPIC)
        found = []
        for index, registration in sorted(topic.partitions.items()) if topic is not None else ():
            node = self._world.nodes.get(registration.leader)
            broker = None if node is None or node.node is None else node.node.broker
            if node is not None and broker is not None:
                found.append((node, index, dict(broker.transactions.runtime.loaded()).get(index)))
        return found

    def at_rest(self) -> None:
        """Check the index of aborted transactions on every replica, and compare the coordinators' decisions with the markers."""
        image, world = self._invariants.image, self._world
        if world.options.transactors == 0:
            return
        marked: dict[tuple[str, int], dict[tuple[int, int], bool]] = {}
        for topic in image.topics_by_id.values():
            if self._invariants.is_compacted(topic.name):
                continue
            for index, registration in topic.partitions.items():
                key = (topic.topic_id, index)
                marked[topic.name, index] = self.markers.get(key, {})
                for node_id in registration.replicas:
                    self._check_index(world.nodes[node_id], topic.name, index, self.aborted.get(key, set()))
        decisions = self._decisions()
        for (producer_id, epoch), (commits, partitions) in decisions.items():
            for name in partitions:
                found = marked.get(name)
                if found is not None and found.get((producer_id, epoch)) is not commits:
                    world.violate(
                        "S17", f"the coordinator {_word(commits)} epoch {epoch} of producer {producer_id}, and {name[0]}-{name[1]} has"
                               f" {'no marker' if (producer_id, epoch) not in found else 'the other marker'}"
                    )  # fmt: skip
        if not self._invariants.is_compacted(STATE_TOPIC):
            for name, found in marked.items():
                for producer_id, epoch in found.keys() - decisions.keys():
                    world.violate("S17", f"{name[0]}-{name[1]} has a marker of producer {producer_id}, epoch {epoch}, that no "
                                         "coordinator decided")
        for node, index, shard in self._shards():
            if shard is None:
                world.violate("S17", f"{node} leads {STATE_TOPIC}-{index} but has not loaded it")

    def _check_index(self, node: SimNode, name: str, index: int, expected: set[tuple[int, int, int]]) -> None:
        log = node.partition(name, index).log
        with node.disk.healthy():
            entries = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
        found = sorted(entry[:3] for entry in entries)
        if found != sorted(expected):
            self._world.violate("S17", f"{node} {name}-{index}: the index of aborted transactions has {found}, but the log has "
                                       f"{sorted(expected)}")

    def _decisions(self) -> dict[tuple[int, int], tuple[bool, list[tuple[str, int]]]]:
        """The decisions in the coordinators' logs: (producer id, epoch) -> (whether it commits, partitions)."""
        decisions: dict[tuple[int, int], tuple[bool, list[tuple[str, int]]]] = {}
        for node, index, _ in self._shards():
            for _, inode in segments_of(node.disk, f"/data/{STATE_TOPIC}-{index}"):
                for commits, value in _decisions_in(memoryview(bytes(inode.data))):
                    topics = value.transaction_partitions or ()
                    partitions = [(topic.topic, number) for topic in topics for number in topic.partition_ids]
                    decisions[value.producer_id, value.producer_epoch] = (commits, partitions)
        return decisions


def _decisions_in(data: memoryview) -> Iterator[tuple[bool, Any]]:
    """(whether it commits, record value) of each decision in the batches of a coordinator's log."""
    for batch in iterate_batches(data):
        for record in () if batch.is_control else batch.records():
            key = decode_transaction_key(bytes(record.key or b""))
            value: Any = None if key is None or record.value is None else decode_transaction_value(key, bytes(record.value))
            commits = None if value is None else _PREPARED.get(value.transaction_status)
            if commits is not None:
                yield commits, value


def _commits(node: SimNode, directory: str, batch: Batch) -> bool:
    inode = inode_of(node.disk, directory, batch)
    at = batch.position + _MARKER_TYPE_AT
    return int.from_bytes(inode.data[at : at + 2], "big") == 1


def _word(commits: bool) -> str:
    return "commits" if commits else "aborts"
