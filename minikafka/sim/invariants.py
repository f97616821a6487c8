"""The invariants S1-S29 and L1-L9 (README.md has the table), checked at the calls that can break them and by a watch ten times a second.

The reference data are kept here, where no broker can change them: the committed batches of each log, the leader of each epoch, the votes.
A log's committed prefix grows when a high watermark first covers it, on any replica; from then on all replicas have to agree.
"""

from __future__ import annotations

import zlib
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

from minikafka.core.raft.roles import Leader
from minikafka.sim import compaction, coordinators, probes, rest
from minikafka.sim.isolation import STATE_TOPIC, Isolation
from minikafka.sim.memberships import GROUPS_TOPIC, Memberships
from minikafka.sim.replicas import Batch, Truth, batch_at, durable_log, first_difference, from_offset, is_durable, log_of
from minikafka.sim.rot import METADATA_DIRECTORY
from minikafka.sim.shares import Shares
from minikafka.sim.stalls import Stalls
from minikafka.sim.transactors import HASTY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from minikafka.sim.node import SimNode
    from minikafka.sim.parts import World

WATCH_S = 0.1
WATCH_LOGS_EVERY = 10
Key = tuple[bytes, int]
METADATA_KEY: Key = (b"metadata", 0)


class Invariants:
    """Checks. `image` is the newest metadata that any node has published."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.image: Any = None
        self.truths: dict[Key, Truth] = {}
        self.states: set[int] = set()
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        self._quorum_leaders: dict[int, int] = {}
        #: Epoch of the quorum -> the high watermark that its leader named last.
        self._named: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._epochs: dict[int, int] = {}
        self._images: dict[int, Any] = {}
        #: Offset -> the records of the image in `_images`, once something had to be compared with them.
        self._image_records: dict[int, list[Any]] = {}
        self._before_crash: dict[int, dict[str, tuple[list[Batch], list[Batch], bool]]] = {}
        self._leader_high_watermarks: dict[tuple[int, bytes, int, int], int] = {}
        #: (log, key of the batch) of what was acknowledged with acks=1 before it was committed.
        self._unreplicated: set[tuple[Key, tuple[int, int, int, int]]] = set()
        self._watches = 0
        self.isolation = Isolation(self)
        self.memberships = Memberships(self)
        self.shares = Shares(self)
        self.stalls = Stalls(self)
        #: Rule -> how often something was compared with what it demands.
        self.checked: Counter[str] = Counter()
        self.appended_together = 0

    def installed(self) -> AbstractContextManager[None]:
        """A context in which the brokers are observed."""
        return probes.installed(self)

    def _fail(self, rule: str, text: str) -> None:
        self.world.violate(rule, text)

    def _count(self, *rules: str) -> None:
        """Count a comparison for each rule. Counter.update takes many times as long for so few."""
        for rule in rules:
            self.checked[rule] += 1

    # -- high watermarks -------------------------------------------------------------------------------------------

    def high_watermark_moved(self, node: SimNode, log: Any, before: int) -> None:
        """S1, S4, S11, S15, S16, S19, S25: all replicas agree on the batches below a high watermark."""
        is_metadata = log.directory == METADATA_DIRECTORY
        key = METADATA_KEY if is_metadata else (log.topic_id, log.partition)
        high_watermark = log.high_watermark
        self.checked["S1"] += 1
        if high_watermark > log.log_end_offset:
            self._fail("S1", f"{node} {log.name}: high watermark {high_watermark} is beyond the end {log.log_end_offset}")
        if high_watermark <= before or key[0] == bytes(16):
            return
        truth = self.truths.get(key)
        if truth is None:
            truth = self.truths[key] = Truth()
        if self.is_compacted(log.topic):
            compaction.covered(self, node, log, truth, before)
            return
        for batch in from_offset(node.disk, log.directory, max(before, log.log_start_offset)):
            if batch.base >= high_watermark:
                break
            if batch.last >= high_watermark:
                self._fail("S1", f"{node} {log.name}: high watermark {high_watermark} is inside the batch {batch.base}-{batch.last}")
            committed = truth.at(batch.base)
            if committed is not None:
                self.checked["S4"] += 1
                if committed.key != batch.key:
                    text = f"{batch.key} is below high watermark {high_watermark}, but {committed.key} is committed"
                    self._fail("S4", f"{node} {log.name}: {text}")
            elif batch.base == truth.end or not truth.batches:
                self._commit(node, log, truth, batch)
                if not is_metadata:
                    self.isolation.committed(node, log, key, batch)
                if log.topic == GROUPS_TOPIC:
                    self.memberships.committed(node, log, batch)
            elif batch.base > truth.end:
                self._fail("S4", f"{node} {log.name}: {batch.base} counts as committed, but the reference log ends at {truth.end}")
        if is_metadata:
            self._metadata_committed(node, high_watermark)
        else:
            self.isolation.check_stable(node, log, key)
            self._data_committed(node, log, key, high_watermark)

    def _commit(self, node: SimNode, log: Any, truth: Truth, batch: Batch) -> None:
        truth.append(batch)
        # A group's coordinator gives every batch of a transaction the number 0, as Kafka's does.
        if batch.producer_id >= 0 and log.topic != "__consumer_offsets" and not batch.attributes & 0x20:
            producer = (batch.producer_id, batch.producer_epoch)
            last = truth.sequences.get(producer)
            self.checked["S16"] += 1
            expected = 0 if last is None else (last + 1) & 0x7FFFFFFF
            if batch.sequence != expected:
                self._fail("S16", f"{node} {log.name}: producer {producer} has sequence {batch.sequence} after {last} at {batch.base}")
            truth.sequences[producer] = (batch.sequence + batch.last - batch.base) & 0x7FFFFFFF

    def _metadata_committed(self, node: SimNode, high_watermark: int) -> None:
        process = node.node
        if process is None or not hasattr(process, "raft") or not process.raft.is_leader:
            return
        self.checked["S19"] += 1
        epoch = process.raft.leader_epoch
        if self._quorum_leaders.setdefault(epoch, node.node_id) != node.node_id:
            self._fail("S19", f"epoch {epoch} of the quorum has leaders {self._quorum_leaders[epoch]} and {node.node_id}")
        voters = process.raft.quorum.voters.node_ids
        # A voter that acknowledged this offset and then lost it to rot does not vote until it has it again.
        rotten = self.world.chaos.rot.metadata
        holders = [
            i for i in voters if i in rotten
            or (i in self.world.nodes and is_durable(self.world.nodes[i].disk, METADATA_DIRECTORY, high_watermark - 1))
            or (i in self.world.nodes and self._has_snapshot(self.world.nodes[i], high_watermark))
        ]  # fmt: skip
        if 2 * len(holders) <= len(voters):
            self._fail("S19", f"{node} commits metadata up to {high_watermark}, which only {holders} of the voters {list(voters)} "
                              "have on disk")

    @staticmethod
    def _has_snapshot(node: SimNode, offset: int) -> bool:
        names = node.disk.files.get(METADATA_DIRECTORY, {})
        return any(name.endswith(".checkpoint") and int(name[:20]) >= offset for name in names)

    def _data_committed(self, node: SimNode, log: Any, key: Key, high_watermark: int) -> None:
        partition = node.partition(log.topic, log.partition)
        if partition is None or partition.leader is None or partition.log is not log:
            return
        leader = partition.leader
        self.checked["S15"] += 1
        self.checked["S11"] += 1
        if leader.min_isr > len(leader.isr.committed):
            self._fail("S15", f"{node} {log.name}: high watermark {high_watermark} advances with only {leader.isr.committed} in sync")
        leadership = (node.node_id, *key, partition.leader_epoch)
        if self._leader_high_watermarks.get(leadership, -1) > high_watermark:
            self._fail("S11", f"{node} {log.name}: the high watermark falls back to {high_watermark} in epoch {partition.leader_epoch}")
        self._leader_high_watermarks[leadership] = high_watermark
        self.isolation.check_reach(node, partition)
        self._check_holders(log.topic, key)

    def _check_holders(self, topic: str, key: Key) -> None:
        """S7, S9, S10: every replica that may be elected holds all committed batches."""
        if self.is_compacted(topic):
            return
        truth, registration = self.truths.get(key), self._registration(key)
        if truth is None or not truth.batches or registration is None:
            return
        directory = f"/data/{topic}-{key[1]}"
        for node_id in (*registration.isr, *registration.elr):
            node = self.world.nodes[node_id]
            if self.has_lost(node):
                continue
            partition = node.partition(topic, key[1])
            if partition is not None and partition.log.failure is not None:
                continue
            start = 0 if partition is None else partition.log.log_start_offset
            # Of a copy that has rotted only the end is looked at.
            start = max(start, truth.bases[-1] if self.world.chaos.rot.of(node, directory) else 0)
            self._count("S7", "S9", "S10")
            lost = first_difference(node.disk, directory, truth, start)
            if lost is not None:
                found = batch_at(node.disk, directory, lost.base)
                what = "nothing" if found is None else str(found.key)
                self._fail(
                    "S9",
                    f"{node} is in the in-sync set {registration.isr} (eligible {registration.elr}, leader {registration.leader} in epoch"
                    f" {registration.leader_epoch}) of {topic}-{key[1]} but has {what} where {lost.key} is committed",
                )

    def is_compacted(self, topic: str) -> bool:
        """Whether the cleaner may rewrite the topic's batches, at any time on any replica. Storage tests and S22 check what it keeps."""
        return self.world.options.has_cleaner and topic in ("__consumer_offsets", STATE_TOPIC)

    def forget_disk(self, node: SimNode) -> None:
        """The node has got a new disk."""
        self._before_crash.pop(node.node_id, None)
        self._epochs.pop(node.node_id, None)

    def forget_log(self, node: SimNode, directory: str) -> None:
        """One of the node's logs has been removed."""
        self._before_crash.get(node.node_id, {}).pop(directory, None)

    def has_lost(self, node: SimNode) -> bool:
        """Whether the node lost power and has not registered again since, as far as the metadata say."""
        if node.has_lost_power:
            broker = None if self.image is None else self.image.brokers.get(node.node_id)
            if broker is not None and broker.incarnation_id not in node.old_incarnations:
                node.has_lost_power = False
        return node.has_lost_power

    def _registration(self, key: Key) -> Any:
        topic = None if self.image is None else self.image.topics_by_id.get(key[0])
        return None if topic is None else topic.partitions.get(key[1])

    # -- other calls -----------------------------------------------------------------------------------------------

    def truncating(self, node: SimNode, log: Any, offset: int) -> None:
        """S12: no committed record is truncated, except by a replica that is neither in sync nor eligible: a leader that has not yet
        learned that it was replaced may make it truncate records that its successor has committed."""
        key = METADATA_KEY if log.directory == METADATA_DIRECTORY else (log.topic_id, log.partition)
        truth = self.truths.get(key)
        if truth is None or offset >= min(truth.end, log.log_end_offset):
            return
        self.checked["S12"] += 1
        found, committed = batch_at(node.disk, log.directory, offset), truth.at(offset)
        is_held = found is not None and committed is not None and found.key == committed.key
        if is_held and (log.high_watermark > offset or self._is_counted_on(node, key)):
            self._fail("S12", f"{node} {log.name} is truncated to {offset}, below the committed offset {truth.end}; its high watermark is"
                              f" {log.high_watermark}")  # fmt: skip

    def truncated(self, log: Any) -> None:
        """S9, after a truncation."""
        if log.directory != METADATA_DIRECTORY:
            self._check_holders(log.topic, (log.topic_id, log.partition))

    def _is_counted_on(self, node: SimNode, key: Key) -> bool:
        registration = self._registration(key)
        return registration is None or node.node_id in (*registration.isr, *registration.elr, *registration.last_known_elr)

    def voted(self, node: SimNode, state: Any) -> None:
        """S19: epochs of the quorum never go back, and there is one vote per epoch."""
        self.checked["S19"] += 1
        if state.epoch < self._epochs.get(node.node_id, 0):
            self._fail("S19", f"{node} writes epoch {state.epoch} after {self._epochs[node.node_id]}")
        self._epochs[node.node_id] = state.epoch
        if state.voted is not None:
            before = self._votes.setdefault((node.node_id, state.epoch), state.voted.node_id)
            if before != state.voted.node_id:
                self._fail("S19", f"{node} voted for {before} and {state.voted.node_id} in epoch {state.epoch}")

    def metadata_fetched(self, node: SimNode, reply: Any) -> None:
        """S19: a leader names no high watermark before its own epoch is committed, and none below one that was named up to its epoch."""
        process = node.node
        role = process.raft.quorum.role if process is not None and hasattr(process, "raft") else None
        named = reply.high_watermark
        if not isinstance(role, Leader) or named < 0:
            return
        self.checked["S19"] += 1
        before = max((offset for epoch, offset in self._named.items() if epoch <= role.epoch), default=0)
        if named <= role.epoch_start or named < before:
            self._fail("S19", f"{node} names {named} in epoch {role.epoch}, which began at {role.epoch_start}, after naming {before}")
        self._named[role.epoch] = named

    def acknowledging(self, node: SimNode, response: Any, client_id: str) -> None:
        """S14: every record acknowledged with acks=all is committed. Records of writers with acks=1 are recognized by the missing producer
        id, also when another broker forwards them; they are noted."""
        is_hasty = client_id.encode().startswith(HASTY)
        for topic in response.responses:
            for answer in topic.partition_responses:
                if answer.error_code or answer.base_offset < 0:
                    continue
                partition = node.partition(topic.name, answer.index)
                if partition is None:
                    continue
                truth = self.truths.get((partition.topic_id, answer.index))
                self.checked["S14"] += 1
                if truth is None or truth.at(answer.base_offset) is None:
                    written = batch_at(node.disk, partition.log.directory, answer.base_offset)
                    if written is not None and written.producer_id < 0:
                        self._unreplicated.add(((partition.topic_id, answer.index), written.key))
                        continue
                    if is_hasty:
                        continue
                    self._fail("S14", f"{node} acknowledges {topic.name}-{answer.index}/{answer.base_offset}, which is not committed")

    def _check_unreplicated(self) -> None:
        """S14: what was acknowledged with acks=1 is committed, unless another leader was elected since it was appended."""
        for log, batch in sorted(self._unreplicated):
            self.checked["S14"] += 1
            truth, registration = self.truths.get(log), self._registration(log)
            found = None if truth is None else truth.at(batch[0])
            is_lost = found is None or found.key != batch
            if is_lost and registration is not None and registration.leader_epoch <= batch[2]:
                text = f"{batch} was acknowledged with acks=1 but is lost, although no other leader was elected"
                self._fail("S14", f"partition {log[1]} of {self.image.topics_by_id[log[0]].name}: {text}")

    def acknowledged(self, partition: int, offset: int, name: str = "records") -> None:
        """S14, when the acknowledgement reaches a producer."""
        topic = self.image.topics_by_name.get(name)
        truth = None if topic is None else self.truths.get((topic.topic_id, partition))
        if truth is None or truth.at(offset) is None:
            self._fail("S14", f"{name}-{partition}/{offset} is acknowledged but not committed")

    def ending(self, node: SimNode) -> None:
        """A process ends: remember its logs, because the next process has to find them again (S23)."""
        if node.config.is_broker:
            self._before_crash[node.node_id] = {
                directory: (log_of(node.disk, directory)[:], durable_log(node.disk, directory), True)
                for directory in node.disk.files
                if directory.startswith("/data/") and not directory.endswith(("-delete", "-stray"))
            }

    def recovered(self, node: SimNode, directory: Any) -> None:
        """S23: a recovered log is a prefix of what was written, and holds all that was synced; after SIGKILL it is whole."""
        before = self._before_crash.get(node.node_id, {})
        for log in directory.logs.values():
            self.isolation.loaded(node, log)
            if self.is_compacted(log.topic):
                continue
            self.checked["S23"] += 1
            found = [batch.key for batch in log_of(node.disk, log.directory)]
            written, durable, _ = before.get(log.directory, ([], [], True))
            if found != [batch.key for batch in written][: len(found)]:
                self._fail("S23", f"{node} {log.name}: the recovered log is not a prefix of the log before the crash")
            must = len(durable) if self.has_lost(node) else len(written)
            if len(found) < must:
                self._fail("S23", f"{node} {log.name}: {len(found)} batches are recovered, but at least {must} must be")
            end = found[-1][1] + 1 if found else log.log_start_offset
            if log.log_end_offset != end:
                self._fail("S23", f"{node} {log.name}: the log claims to end at {log.log_end_offset}, but its file ends at {end}")

    # -- metadata --------------------------------------------------------------------------------------------------

    def image_published(self, node: SimNode, image: Any) -> None:
        """S6, S8, S9, for every published metadata image."""
        published = self._images.get(image.offset)
        if published is None:
            self._images[image.offset] = image
            if len(self._images) > 200:
                oldest = next(iter(self._images))
                del self._images[oldest]
                self._image_records.pop(oldest, None)
        elif published is not image and self._differ(published, image):
            self._fail("S19", f"{node} has a different metadata image at offset {image.offset} than other nodes")
        if self.image is not None and image.offset <= self.image.offset:
            return
        before, self.image = self.image, image
        for topic in image.topics_by_id.values():
            old = None if before is None else before.topics_by_id.get(topic.topic_id)
            if old is topic:
                continue
            for index, registration in topic.partitions.items():
                if old is None or old.partitions.get(index) is not registration:
                    self._check_registration(topic, index, registration)
        if before is None or before.brokers is not image.brokers:
            self._check_fenced(image)

    def _differ(self, one: Any, other: Any) -> bool:
        """Whether two images differ. They are compared completely only if something may have rotted, because that takes long."""
        if one.brokers.keys() != other.brokers.keys():
            return True
        if not self.world.chaos.has_rotted:
            return False
        records = self._image_records.get(one.offset)
        if records is None:
            records = self._image_records[one.offset] = rest.records_of(one)
        return records != rest.records_of(other)

    def _check_registration(self, topic: Any, index: int, registration: Any) -> None:
        name, leader = f"{topic.name}-{index}", registration.leader
        isr, elr, replicas = registration.isr, registration.elr, registration.replicas
        self.checked["S8"] += 1
        if leader >= 0:
            self.checked["S6"] += 1
            first = self._leaders.setdefault((topic.topic_id, index, registration.leader_epoch), leader)
            if first != leader:
                self._fail("S6", f"{name}: epoch {registration.leader_epoch} has leaders {first} and {leader}")
            if leader not in isr:
                self._fail("S8", f"{name}: leader {leader} is not in the in-sync set {isr}")
        if not set(isr) <= set(replicas) or not set(elr) <= set(replicas) or set(isr) & set(elr) or len(set(isr)) < len(isr):
            self._fail("S8", f"{name}: replicas {replicas}, in sync {isr}, eligible {elr}")
        if not isr and not elr and not registration.last_known_elr and not self.world.chaos.injected["min_isr"]:
            self._fail("S8", f"{name}: no replica is in sync or eligible in epoch {registration.leader_epoch}")
        self._check_holders(topic.name, (topic.topic_id, index))

    def _check_fenced(self, image: Any) -> None:
        for topic in image.topics_by_id.values():
            for index, registration in topic.partitions.items():
                if len(registration.isr) < 2:
                    continue
                for node_id in registration.isr:
                    broker = image.brokers.get(node_id)
                    if broker is None or broker.fenced:
                        self._fail("S8", f"{topic.name}-{index}: broker {node_id} is fenced but in the in-sync set {registration.isr}")

    def min_isr(self, topic: str, registration: Any) -> int:
        """The effective min.insync.replicas of a partition in the newest metadata."""
        options = self.world.options
        text = self.image.config(2, topic).get("min.insync.replicas")
        return min(int(text) if text else options.min_isr, len(registration.replicas))

    def active_controller(self) -> int:
        """Node id of the active controller, or -1."""
        best, epoch = -1, -1
        for node in self.world.nodes.values():
            controller = None if node.node is None else node.node.controller
            if controller is not None and controller.is_active and node.node is not None and node.node.raft.leader_epoch > epoch:
                best, epoch = node.node_id, node.node.raft.leader_epoch
        return best

    def voters(self) -> tuple[int, ...]:
        """Node ids of the metadata quorum's voters, from the active controller; empty without one."""
        node = self.world.nodes.get(self.active_controller())
        return () if node is None or node.node is None else tuple(node.node.raft.quorum.voters.node_ids)

    # -- the watch -------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Check all running nodes, every WATCH_S; every WATCH_LOGS_EVERY-th time also their logs."""
        self._watches += 1
        with_logs = self._watches % WATCH_LOGS_EVERY == 0
        state: list[Any] = []
        for node in self.world.nodes.values():
            partitions = node.partitions()
            fetched = Counter(self._fetched_by(node)) if partitions else {}
            for partition in partitions:
                self._watch_partition(node, partition, fetched.get((partition.topic_id, partition.index), 0), with_logs)
                if partition.topic == "records":
                    log, leader = partition.log, partition.leader
                    state.append(
                        (node.node_id, partition.index, leader is not None, log.high_watermark == log.log_end_offset, len(partition.isr),
                         leader is not None and leader.isr.pending is not None)
                    )  # fmt: skip
            coordinators.check_bounds(self, node)
            state.append((node.node_id, node.state, node.is_paused))
            if with_logs and self.world.chaos.has_rotted and node.is_running:  # Before recovery the log may end in a torn batch.
                rest.check_bytes(self, node, METADATA_DIRECTORY)
        if self.image is not None:
            topic = self.image.topics_by_name.get("records")
            for index, registration in topic.partitions.items() if topic is not None else ():
                state.append((index, registration.leader, registration.isr, registration.elr))
        self.states.add(zlib.crc32(repr(state).encode()))
        if self.world.violation is None:
            self.world.fabric.later(WATCH_S, self.watch)

    @staticmethod
    def _fetched_by(node: SimNode) -> Iterator[Any]:
        """(topic id, index) of every partition of every fetcher."""
        assert node.node is not None and node.node.broker is not None
        return chain.from_iterable(fetcher.partitions for fetcher in node.node.broker.replicas.fetchers.fetchers)

    def _watch_partition(self, node: SimNode, partition: Any, fetchers: int, with_logs: bool) -> None:
        log, leader = partition.log, partition.leader
        if log.failure is not None:
            return
        self._count("S1", "S18", "S20")
        if not 0 <= log.log_start_offset <= log.high_watermark <= log.log_end_offset or log.recovery_point > log.log_end_offset:
            self._fail(
                "S1",
                f"{node} {partition}: start {log.log_start_offset}, high watermark {log.high_watermark}, end {log.log_end_offset}, recovery"
                f" point {log.recovery_point}",
            )
        if log.topic_id != partition.topic_id:
            self._fail("S20", f"{node} {partition}: the log belongs to another topic")
        if fetchers > (0 if leader is not None else 1):
            self._fail("S18", f"{node} {partition}: {fetchers} fetchers, {'leader' if leader else 'follower'}")
        if leader is not None:
            self._watch_leader(node, partition, leader)
            self.stalls.watch(node, partition)
        if not self.is_compacted(log.topic):
            self.isolation.check_reach(node, partition)
        if with_logs:
            rest.check_log(self, node, partition)

    def _watch_leader(self, node: SimNode, partition: Any, leader: Any) -> None:
        self._count("S6", "S8")
        registration = self._registration((partition.topic_id, partition.index))
        elected = self._leaders.get((partition.topic_id, partition.index, partition.leader_epoch))
        if elected is not None and elected != node.node_id:
            self._fail("S6", f"{node} leads {partition} in epoch {partition.leader_epoch}, which is {elected}'s")
        if leader.high_watermark > partition.log.log_end_offset or leader.log_end_offset != partition.log.log_end_offset:
            end = partition.log.log_end_offset
            self._fail("S1", f"{node} {partition}: the core assumes that the log ends at {leader.log_end_offset}, but it ends at {end}")
        if (
            registration is not None
            and registration.leader_epoch == partition.leader_epoch
            and registration.partition_epoch == leader.isr.partition_epoch
            and not set(registration.isr) <= set(leader.isr.maximal)
        ):
            self._fail("S8", f"{node} {partition}: waits for {leader.isr.maximal}, but the controller may elect {registration.isr}")

    # -- the end ---------------------------------------------------------------------------------------------------

    def is_quiet(self) -> bool:
        """Whether everything works again (L1-L6)."""
        return rest.unrest(self) is None

    def why_not_quiet(self) -> tuple[str, str]:
        """The first rule that does not hold yet, and a text."""
        return rest.unrest(self) or ("L1", "it has only just become quiet")

    def at_rest(self) -> None:
        """S3-S5, S17, S19, S21, S26, L4: compare the logs, images and coordinators of all nodes."""
        rest.check_all(self)
        self._check_unreplicated()
        self.isolation.at_rest()
        coordinators.check_all(self)
