"""Checks that read whole logs: now and then of one replica, and at rest of all replicas against each other; and the condition of rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.core.metadata.records import image_records
from minikafka.sim import compaction
from minikafka.sim.replicas import corrupt_batches, log_of
from minikafka.sim.rot import METADATA_DIRECTORY

if TYPE_CHECKING:
    from minikafka.sim.node import SimNode
    from minikafka.sim.parts import Invariants

LOOKUPS = 5


def check_log(invariants: Invariants, node: SimNode, partition: Any) -> None:
    """S2, S3, S21: compare a log's file, its epochs and its index."""
    log = partition.log
    if invariants.world.chaos.has_rotted:
        check_bytes(invariants, node, log.directory)
    if invariants.is_compacted(partition.topic):
        return
    invariants.checked["S2"] += 1
    invariants.checked["S3"] += 1
    batches = log_of(node.disk, log.directory)
    where = f"{node} {partition}"
    fail = invariants.world.violate
    expected: list[tuple[int, int]] = []
    before = None
    for batch in batches:
        if before is not None and (batch.base != before.last + 1 or batch.epoch < before.epoch):
            fail("S2", f"{where}: {batch.key} follows {before.key}")
        if batch.epoch > partition.leader_epoch:
            fail("S2", f"{where}: {batch.key} has a later epoch than {partition.leader_epoch}")
        if before is None or batch.epoch != before.epoch:
            expected.append((batch.epoch, batch.base))
        before = batch
    end = before.last + 1 if before is not None else log.log_start_offset
    if end != log.log_end_offset:
        fail("S2", f"{where}: the file ends at {end}, but the log assumes {log.log_end_offset}")
        return
    expected = [(epoch, max(start, log.log_start_offset)) for epoch, start in expected if start >= log.log_start_offset or not expected]
    entries = list(log.epochs.entries)
    while entries and entries[-1][1] >= end:
        entries.pop()  # an epoch that has no record yet
    if log.log_start_offset == 0 and [entry for entry in expected if entry[0] >= 0] != entries:
        fail("S3", f"{where}: leader-epoch-checkpoint has {log.epochs.entries}, but the log has {expected}")
    if not batches:
        return
    step = max(len(batches) // LOOKUPS, 1)
    looked_up = [batch for batch in batches[invariants.world.scheduler.steps % step :: step] if batch.last >= log.log_start_offset]
    invariants.checked["S21"] += len(looked_up)
    with node.disk.healthy():
        for batch in looked_up:
            piece = log.read(batch.last, 1, end_offset=log.log_end_offset).slice
            found = int.from_bytes(piece.read()[:8], "big")
            piece.release()
            if found != batch.base:
                fail("S21", f"{where}: looking up offset {batch.last} finds batch {found}, but it is in {batch.base}")


def check_bytes(invariants: Invariants, node: SimNode, directory: str) -> None:
    """S5: every batch matches its CRC, except where rot was injected into this very copy: no replica copies rot."""
    invariants.checked["S5"] += 1
    rotten = invariants.world.chaos.rot.of(node, directory)
    corrupt = [base for base in corrupt_batches(node.disk, directory) if base not in rotten]
    if corrupt:
        invariants.world.violate("S5", f"{node} {directory}: the batches at {corrupt} are corrupt, but no rot was injected there")


def records_of(image: Any) -> list[Any]:
    """An image as records, complete and in the order of a snapshot: cheaper to compare than as text."""
    return list(image_records(image))


def unrest(invariants: Invariants) -> tuple[str, str] | None:
    """The first of L1-L6 that does not hold yet and a text, or None."""
    world = invariants.world
    image = invariants.image
    for node in world.nodes.values():
        if not node.is_running or node.node is None:
            return "L1", f"{node} is {node.state} ({node.exit_reason})"
    if world.chaos.rot.batches:
        return "L1", f"the other replicas still need the rotten copies: {world.chaos.rot.batches}"
    if world.chaos.rot.metadata:
        return "L1", f"the other nodes still need the rotten metadata logs: {world.chaos.rot.metadata}"
    for node in world.brokers:
        broker = image.brokers.get(node.node_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown or broker.epoch != node.broker_epoch():
            return "L1", f"{node} is not in service: {broker}"
    for node in world.nodes.values():
        assert node.node is not None
        if node.node.metadata.offset < image.offset:
            return "L1", f"{node} has metadata only up to offset {node.node.metadata.offset} of {image.offset}"
    if world.options.is_dynamic and sorted(invariants.voters()) != sorted(node.node_id for node in world.controllers):
        return "L1", f"the voters are {invariants.voters()}"
    for topic in image.topics_by_id.values():
        for index, registration in topic.partitions.items():
            problem = _partition_unrest(invariants, topic, index, registration)
            if problem is not None:
                return problem
    if not world.workload.is_over:
        return None
    return (invariants.isolation.unrest() if world.options.transactors else None) or invariants.memberships.unrest()


def _partition_unrest(invariants: Invariants, topic: Any, index: int, registration: Any) -> tuple[str, str] | None:
    world, name = invariants.world, f"{topic.name}-{index}"
    if registration.leader < 0:
        return "L2", f"{name} has no leader: in sync {registration.isr}, eligible {registration.elr}"
    if set(registration.isr) != set(registration.replicas) or registration.adding_replicas or registration.removing_replicas:
        ends = {
            node.host: (partition.log.log_end_offset, partition.log.high_watermark, partition.leader_epoch)
            for node in world.brokers
            if (partition := node.partition(topic.name, index)) is not None
        }
        return "L3", f"{name}: in sync {registration.isr} of {registration.replicas}; (end, high watermark, epoch) {ends}"
    offsets: dict[int, tuple[int, int]] = {}
    for node_id in registration.replicas:
        partition = world.nodes[node_id].partition(topic.name, index)
        if partition is None or partition.topic_id != topic.topic_id:
            return "L3", f"n{node_id} has no replica of {name}"
        if partition.leader_epoch != registration.leader_epoch:
            return "L3", f"n{node_id} is in epoch {partition.leader_epoch} of {name}, not {registration.leader_epoch}"
        if partition.leader is not None and partition.leader.isr.pending is not None:
            return "L6", f"n{node_id} waits for the controller about {name}"
        offsets[node_id] = (partition.log.log_end_offset, partition.log.high_watermark)
    if world.workload.is_over and len({end for pair in offsets.values() for end in pair}) > 1:
        return "L4", f"{name}: (end, high watermark) {offsets}"
    return None


def check_all(invariants: Invariants) -> None:
    """Compare the logs of all replicas, and the metadata images of all nodes."""
    world, image = invariants.world, invariants.image
    fail = world.violate
    for topic in image.topics_by_id.values():
        for index, registration in topic.partitions.items():
            logs = {}
            for node_id in registration.replicas:
                node = world.nodes[node_id]
                partition = node.partition(topic.name, index)
                check_log(invariants, node, partition)
                check_bytes(invariants, node, partition.log.directory)
                start = partition.log.log_start_offset
                logs[node_id] = [batch.key for batch in log_of(node.disk, partition.log.directory) if batch.base >= start]
            if invariants.is_compacted(topic.name):
                truth = invariants.truths.get((topic.topic_id, index))
                if truth is not None:
                    for node_id in registration.replicas:
                        compaction.check(invariants, world.nodes[node_id], f"/data/{topic.name}-{index}", truth)
                continue
            first = logs[registration.leader]
            for node_id, other in logs.items():
                invariants.checked["S4"] += 1
                if other != first:
                    parting = next((i for i, (a, b) in enumerate(zip(first, other, strict=False)) if a != b), min(len(first), len(other)))
                    fail("S4", f"{topic.name}-{index}: n{registration.leader} and n{node_id} part at batch {parting}:"
                               f" {first[parting : parting + 2]} and {other[parting : parting + 2]}")  # fmt: skip
    images: dict[int, dict[int, list[Any]]] = {}
    for node in world.nodes.values():
        check_bytes(invariants, node, METADATA_DIRECTORY)
        assert node.node is not None
        found = node.node.metadata.image
        images.setdefault(found.offset, {})[node.node_id] = records_of(found)
    for offset, by_node in images.items():
        invariants.checked["S19"] += 1
        first_image, *others = by_node.values()
        if any(other != first_image for other in others):
            fail("S19", f"the images of {sorted(by_node)} at offset {offset} differ")
    for node in world.brokers:
        assert node.node is not None and node.node.broker is not None
        left = len(node.node.broker.replicas.waiting.produces)
        if left:
            fail("L6", f"{node} still holds {left} produce requests")
