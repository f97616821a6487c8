"""Injects the drawn faults and undoes them. A fault that no protocol can survive is skipped: see `Chaos.may_lose_power`."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from minikafka.client.admin import TOPIC as TOPIC_RESOURCE
from minikafka.client.errors import TRANSPORT_ERRORS, ClientError
from minikafka.client.maintenance import Maintenance
from minikafka.sim.isolation import STATE_TOPIC
from minikafka.sim.rot import METADATA_DIRECTORY, Rot
from minikafka.sim.transactors import TOPIC as TRANSFERS
from minikafka.sim.workload import TOPIC
from minikafka.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest

if TYPE_CHECKING:
    from minikafka.sim.node import SimNode
    from minikafka.sim.parts import World
    from minikafka.sim.swarm import Fault

EXPECTED_ERRORS = (ClientError, *TRANSPORT_ERRORS)
ADMIN_TIMEOUT_MS = 3000
CALM_S = 1.0
CONTROLLER_LISTENER = "CONTROLLER"
#: Faults that flip bits.
ROTS = frozenset({"rot", "rot_fetched", "rot_internal", "rot_metadata"})
#: Faults that can end a process without a clean-shutdown file.
UNCLEAN = frozenset({"kill", "kill_all", "power", "hole", "wipe", "disk_error", "disk_full", "shortage", "min_isr", *ROTS})
#: How long, and how much, a controller's disk is slowed down, so that more than one batch of the metadata log waits for it.
GAP_WAIT_S = 4.0
GAP_BLOCKING_S = 0.8


class Chaos:
    """Injects a list of faults. `injected` counts them by kind."""

    def __init__(self, world: World, faults: list[Fault]) -> None:
        self.world = world
        self.faults = faults
        self.injected: Counter[str] = Counter()
        self._random = random.Random(f"{world.seed}/chaos")
        self._tasks: list[Any] = []
        self._grown = 0
        #: Partitions with a reassignment request that is not answered yet.
        self._reassigned: set[int] = set()
        self.rot = Rot(world)

    @property
    def has_rotted(self) -> bool:
        """Whether bits have flipped anywhere."""
        return any(self.injected[kind] for kind in ROTS)

    def begin(self) -> None:
        """Schedule every fault."""
        for fault in self.faults:
            self.world.fabric.later(fault.at_s, self._inject, fault)

    def _inject(self, fault: Fault) -> None:
        if self.world.is_healed or self.world.violation is not None:
            return
        node = self._target(fault)
        if fault.kind in UNCLEAN and self._is_something_lost():
            return
        if fault.kind == "reassign" and self._is_something_lost():
            return  # it may remove the intact copy and keep the damaged one
        done = getattr(self, f"_{fault.kind}")(fault, node)
        if done is not False:
            self.injected[fault.kind] += 1
            self.world.record_event("world", f"fault: {fault.kind} {node.host} for {fault.seconds:.1f} s" + (f" ({done})" if done else ""))

    def _is_something_lost(self) -> bool:
        return bool(self.rot.batches) or any(map(self.world.invariants.has_lost, self.world.nodes.values()))

    def _target(self, fault: Fault) -> SimNode:
        world = self.world
        image = world.invariants.image
        chosen = None
        if fault.target == "controller":
            chosen = world.nodes.get(world.invariants.active_controller())
        elif fault.target in ("leader", "coordinator") and image is not None:
            topic = image.topics_by_name.get(self._led(fault))
            if topic is not None and topic.partitions:
                chosen = world.nodes.get(topic.partitions[fault.pick % len(topic.partitions)].leader)
        if chosen is None:
            nodes = list(world.nodes.values())
            chosen = nodes[fault.pick % len(nodes)]
        return chosen

    def _led(self, fault: Fault) -> str:
        """The topic whose leader is the target; if there are transactions, half of the faults take theirs."""
        is_other = self.world.options.transactors > 0 and fault.pick & 16
        if fault.target == "coordinator":
            return STATE_TOPIC if is_other else "__consumer_offsets"
        return TRANSFERS if is_other else TOPIC

    def _later(self, fault: Fault, undo: Callable[..., None], *arguments: Any) -> None:
        self.world.fabric.later(fault.seconds, lambda: None if self.world.is_healed else undo(*arguments))

    def heal(self) -> None:
        """Undo all lasting faults, and start everything that is down."""
        world = self.world
        world.fabric.heal()
        self.rot.heal()
        for link in world.fabric.links.values():
            link.delay_min, link.delay_mean = world.fabric.default.delay_min, world.fabric.default.delay_mean
        for node in world.nodes.values():
            node.disk.heal()
            node.set_disk_speed(0.0005, 0.0)
            # A broker whose clock is an hour behind would refuse the clients' timestamps (message.timestamp.after.max.ms).
            node.jump_clock(-node.wall_offset_ms)
            if node.loop is not None:
                node.loop.resume()
            node.should_restart = True
            if node.state == "down":
                node.boot()
        for client in world.workload.clients:
            if client.loop is not None and client.loop.is_dead:
                client.boot()
        self._order(self._undo_admin())
        if world.options.is_dynamic:
            self._order(self._restore_voters())

    # -- processes -------------------------------------------------------------------------------------------------

    def _kill(self, fault: Fault, node: SimNode) -> Any:
        if not node.is_alive:
            return False
        node.kill()
        self._later(fault, node.boot)
        return None

    def _kill_all(self, fault: Fault, node: SimNode) -> Any:
        for other in self.world.nodes.values():
            self._kill(fault, other)

    def _power(self, fault: Fault, node: SimNode) -> Any:
        if not self.may_lose_power(node):
            return self._kill(fault, node)
        lost = node.power_cut(self._random, () if self._may_lose_promises(node) else (METADATA_DIRECTORY,))
        self._after_power_cut(fault, node)
        return f"{lost} files lost something"

    def _after_power_cut(self, fault: Fault, node: SimNode) -> None:
        self._later(fault, node.boot)
        if node.config.is_controller and self.rot.note_gap(node):
            self._later(fault, self.rot.end_metadata, node)

    def _hole(self, fault: Fault, node: SimNode) -> Any:
        """A controller loses power while several batches of its metadata log are unsynced: it loses the end of one and keeps the others."""
        if not node.config.is_controller or not node.is_running or not self._may_lose_promises(node):
            return False

        async def work() -> None:
            async with self.world.workload.admin(ADMIN_TIMEOUT_MS) as admin:
                for turn in range(round(GAP_WAIT_S / GAP_BLOCKING_S) * 4):
                    await admin.alter_configs(TOPIC_RESOURCE, TOPIC, [("set", "file.delete.delay.ms", str(60_000 + turn))])
                    await asyncio.sleep(GAP_BLOCKING_S / 4)

        self._order(work())
        node.set_disk_speed(GAP_BLOCKING_S, 0.0)
        self._cut_with_gap(fault, node, self.world.now + GAP_WAIT_S)
        return "when more than one batch is not synced"

    def _cut_with_gap(self, fault: Fault, node: SimNode, until_s: float) -> None:
        world = self.world
        if world.is_healed:
            return  # `heal` has restored the disk
        if world.now > until_s or not node.is_running:
            node.set_disk_speed(world.options.blocking_s, world.options.sync_s)
            return
        is_spared = not node.config.is_broker or (self.may_lose_power(node) and not self._is_something_lost())
        may_cut = is_spared and self._may_lose_promises(node)
        gap = self.rot.make_gap(node, fault) if may_cut else None
        if gap is None:
            world.fabric.later(0.01, self._cut_with_gap, fault, node, until_s)
            return
        node.power_cut(self._random, (METADATA_DIRECTORY,))
        node.set_disk_speed(world.options.blocking_s, world.options.sync_s)
        self.injected["holes"] += 1
        world.record_event("world", f"{node.host} loses power: {gap}")
        self._after_power_cut(fault, node)

    def _wipe(self, fault: Fault, node: SimNode) -> Any:
        """A broker restarts with an empty, newly formatted disk."""
        if node.config.is_controller or not self.may_lose_power(node):
            return False
        node.power_cut(self._random)
        node.format()
        self.world.invariants.forget_disk(node)
        self._later(fault, node.boot)
        return None

    def may_lose_power(self, node: SimNode) -> bool:
        """Whether another member certainly holds every record that this broker may hold as a member of an in-sync set.

        With acks=all and no fsync before the response, as in Kafka, the cluster survives when one machine loses its unsynced bytes. No
        protocol without syncing survives when all members do. The controller cannot distinguish SIGKILL from a power cut: after either it
        removes the broker from those that may lead. So while one broker has lost data, no other may stop uncleanly. With
        min.insync.replicas 1 the in-sync set may shrink to the broker that lost data, which Kafka then elects as the last known leader
        (KIP-966): at least 2 are needed while further faults may follow.
        """
        world = self.world
        image = world.invariants.image
        if image is None:
            return not node.config.is_broker
        for other in world.brokers:
            broker = image.brokers.get(other.node_id)
            if other is not node and (not other.is_running or broker is None or broker.epoch != other.broker_epoch()):
                return False
            if other.disk.failing or other.disk.space_left is not None:
                return False
        for topic in image.topics_by_name.values():
            for index, registration in topic.partitions.items():
                if node.node_id not in (*registration.isr, *registration.elr, *registration.last_known_elr):
                    continue
                if not world.is_healed and world.invariants.min_isr(topic.name, registration) < 2:
                    return False
                others = [world.nodes[i] for i in registration.isr if i != node.node_id]
                if not any(other.is_running and not other.is_paused for other in others):
                    return False
                for holder in world.nodes.values():
                    partition = holder.partition(topic.name, index)
                    if partition is not None and partition.leader is not None and partition.leader.isr.pending is not None:
                        return False
        return True

    def _stop(self, fault: Fault, node: SimNode) -> Any:
        if not node.is_running:
            return False
        node.stop()
        self._later(fault, self._boot_when_down, node)
        return None

    def _boot_when_down(self, node: SimNode) -> None:
        if self.world.is_healed:
            return
        if node.is_alive:
            self.world.fabric.later(0.5, self._boot_when_down, node)
        else:
            node.boot()

    def _pause(self, fault: Fault, node: SimNode) -> Any:
        node.pause(fault.seconds)

    def _client_crash(self, fault: Fault, node: SimNode) -> Any:
        clients = [client for client in self.world.workload.clients if client.loop is not None and not client.loop.is_dead]
        if not clients:
            return False
        client = clients[fault.pick % len(clients)]
        client.kill()
        self._later(fault, client.boot)
        return client.name

    # -- network ---------------------------------------------------------------------------------------------------

    def _cut(self, fault: Fault, pairs: list[tuple[str, str]]) -> None:
        fabric = self.world.fabric
        for source, target in pairs:
            fabric.cut(source, target)

        def join() -> None:
            for source, target in pairs:
                fabric.join(source, target)

        self._later(fault, join)

    def _hosts(self, *, without: SimNode | None = None) -> list[str]:
        clients = [client.name for client in self.world.workload.clients]
        return [node.host for node in self.world.nodes.values() if node is not without] + clients

    def _isolate(self, fault: Fault, node: SimNode) -> Any:
        others = self._hosts(without=node)
        self._cut(fault, [pair for other in others for pair in ((node.host, other), (other, node.host))])

    def _isolate_out(self, fault: Fault, node: SimNode) -> Any:
        self._cut(fault, [(node.host, other) for other in self._hosts(without=node)])

    def _isolate_in(self, fault: Fault, node: SimNode) -> Any:
        self._cut(fault, [(other, node.host) for other in self._hosts(without=node)])

    def _split(self, fault: Fault, node: SimNode) -> Any:
        hosts = self._hosts()
        side = {host for position, host in enumerate(hosts) if fault.pick >> (position % 16) & 1}
        self._cut(fault, [(a, b) for a in hosts for b in hosts if (a in side) != (b in side)])

    def _ring(self, fault: Fault, node: SimNode) -> Any:
        """Cut the links between two neighbouring nodes, so that different nodes see different majorities."""
        hosts = [other.host for other in self.world.nodes.values()]
        if len(hosts) < 3:
            return False
        turn = fault.pick % len(hosts)
        first, second = hosts[turn], hosts[(turn + 1) % len(hosts)]
        self._cut(fault, [(first, second), (second, first)])
        return f"{first} and {second}"

    def _from_controllers(self, fault: Fault, node: SimNode) -> Any:
        others = [other.host for other in self.world.controllers if other is not node]
        self._cut(fault, [pair for other in others for pair in ((node.host, other), (other, node.host))])

    def _from_brokers(self, fault: Fault, node: SimNode) -> Any:
        others = [other.host for other in self.world.brokers if other is not node and not other.config.is_controller]
        others = others or [other.host for other in self.world.brokers if other is not node]
        self._cut(fault, [pair for other in others for pair in ((node.host, other), (other, node.host))])

    def _break_all(self, fault: Fault, node: SimNode) -> Any:
        for connection in self.world.fabric.connections(node.host):
            connection.break_off()

    def _silence(self, fault: Fault, node: SimNode) -> Any:
        """All or half of the open connections between this node and others are silently dead; new ones work."""
        hosts = {other.host for other in self.world.nodes.values()}
        found = [connection for connection in self.world.fabric.connections(node.host) if connection.peer_host in hosts]
        for connection in found if fault.pick & 1 else found[::2]:
            connection.fall_silent()
        return bool(found)

    def _slow_link(self, fault: Fault, node: SimNode) -> Any:
        others = self._hosts(without=node)
        self._slow(fault, [(node.host, others[fault.pick % len(others)])])

    def _slow_node(self, fault: Fault, node: SimNode) -> Any:
        others = self._hosts(without=node)
        self._slow(fault, [pair for other in others for pair in ((node.host, other), (other, node.host))])

    def _slow(self, fault: Fault, pairs: list[tuple[str, str]]) -> None:
        links = [self.world.fabric.link(*pair) for pair in pairs]
        factor = (10, 50, 200)[fault.pick % 3]
        for link in links:
            link.delay_mean = self.world.options.delay_mean_s * factor

        def restore() -> None:
            for link in links:
                link.delay_mean = self.world.options.delay_mean_s

        self._later(fault, restore)

    # -- disks and clocks ------------------------------------------------------------------------------------------

    def _disk_slow(self, fault: Fault, node: SimNode) -> Any:
        slow = (0.02, 0.1, 0.5)[fault.pick % 3]
        node.set_disk_speed(slow, slow / 2)
        options = self.world.options
        self._later(fault, node.set_disk_speed, options.blocking_s, options.sync_s)

    def _rot(self, fault: Fault, node: SimNode) -> Any:
        """A bit of a committed batch flips. One reader starts over, and reads the batch if it is on the leader."""
        done = self._strike(fault, node, TOPIC, fault.pick % self.world.options.partitions)
        if done is None:
            return False
        readers = [client for client in self.world.workload.clients if client.name.startswith("reader")]
        for client in readers[:1]:
            client.kill()
            client.boot()
        return done

    def _strike(self, fault: Fault, node: SimNode, topic: str, index: int) -> str | None:
        if not node.config.is_broker or node.disk.failing or not node.is_running or not self.may_lose_power(node):
            return None
        registration = self._registration(topic, index)
        if index in self._reassigned or registration is None or registration.is_reassigning:
            return None
        done = self.rot.begin(node, topic, index, fault)
        if done is not None:
            self._later(fault, self.rot.end, node)
        return done

    def _registration(self, topic: str, index: int) -> Any:
        image = self.world.invariants.image
        found = None if image is None else image.topics_by_name.get(topic)
        return None if found is None else found.partitions.get(index)

    def _has_records(self, topic: str, index: int) -> bool:
        registration = self._registration(topic, index)
        if registration is None or registration.leader < 0:
            return False
        partition = self.world.nodes[registration.leader].partition(topic, index)
        return partition is not None and partition.log.high_watermark > 0

    def _rot_fetched(self, fault: Fault, node: SimNode) -> Any:
        """A bit flips on a leader from which another replica has to copy everything."""
        return self._rot_copied(fault, TOPIC, fault.pick % self.world.options.partitions) or False

    def _rot_copied(self, fault: Fault, topic: str, index: int) -> str | None:
        registration = self._registration(topic, index)
        if registration is None or len(registration.isr) < 3 or registration.leader < 0:
            return None
        leader = self.world.nodes[registration.leader]
        others = [self.world.nodes[i] for i in registration.isr if i != registration.leader]
        empty = others[fault.pick % len(others)]
        if not self.may_lose_power(empty) or empty.disk.failing:
            return None
        done = self._strike(fault, leader, topic, index)
        if done is not None:
            self.rot.lose_copy(empty, topic, index)
            self.world.fabric.later(CALM_S / 4, empty.boot)
        return done

    def _rot_internal(self, fault: Fault, node: SimNode) -> Any:
        """A bit of a coordinator's log flips: on a leader from which another replica copies, or on a follower that may lead when the leader
        stops."""
        topics = ("__consumer_offsets", STATE_TOPIC) if fault.pick & 16 else (STATE_TOPIC, "__consumer_offsets")
        choices = [(topic, index) for topic in topics for index in ((0, 1) if fault.pick & 32 else (1, 0))]
        topic, index = next((choice for choice in choices if self._has_records(*choice)), choices[0])
        registration = self._registration(topic, index)
        if registration is None or len(registration.isr) < 2 or registration.leader < 0:
            return False
        if fault.pick & 8:
            return self._rot_copied(fault, topic, index) or False
        leader = self.world.nodes[registration.leader]
        others = [i for i in registration.isr if i != registration.leader]
        done = self._strike(fault, self.world.nodes[others[fault.pick % len(others)]], topic, index)
        if done is None:
            return False
        self._stop(fault, leader)
        return f"{done} on n{others[fault.pick % len(others)]}; {leader} stops"

    def _rot_metadata(self, fault: Fault, node: SimNode) -> Any:
        """A bit of the metadata log flips. In half of the cases the process is stopped or killed; in a quarter an observer has to fetch
        everything again."""
        if node.disk.failing or not node.is_running or not self._may_lose_promises(node):
            return False
        done = self.rot.begin_metadata(node, fault)
        if done is None:
            return False
        observers = [other for other in self.world.brokers if not other.config.is_controller and other is not node and other.is_running]
        if fault.pick & 2:
            (self._kill if fault.pick & 4 else self._stop)(fault, node)
        elif fault.pick & 4 and observers:
            other = observers[fault.pick % len(observers)]
            other.kill()
            self.rot.forget_metadata(other)
            self.world.fabric.later(CALM_S / 4, other.boot)
        self._later(fault, self.rot.end_metadata, node)
        return done

    def _may_lose_promises(self, node: SimNode) -> bool:
        """Whether the quorum can elect a leader without this node's vote until the node has everything again, whatever else happens. Of two
        voters both are needed."""
        if not node.config.is_controller:
            return True
        voters = self.world.invariants.voters()
        if any(fault.kind == "voters" for fault in self.faults) or len(voters) < 3:
            return False
        return not self.rot.metadata

    def _disk_full(self, fault: Fault, node: SimNode) -> Any:
        node.disk.space_left = fault.pick % 5000
        self._later(fault, node.disk.heal)

    def _disk_error(self, fault: Fault, node: SimNode) -> Any:
        self._later(fault, node.disk.heal)
        return node.disk.fail(fault.pick)

    def _shortage(self, fault: Fault, node: SimNode) -> Any:
        """The process gets no more descriptors, or the kernel has no memory for one kind of call."""
        self._later(fault, node.disk.heal)
        return node.disk.run_short(fault.pick, 0 if node.view is None else len(node.view.numbers))

    def _clock(self, fault: Fault, node: SimNode) -> Any:
        jump = (-3_600_000, -5_000, -200, 200, 5_000, 3_500_000)[fault.pick % 6]
        node.jump_clock(jump)
        return f"{jump} ms"

    # -- administration --------------------------------------------------------------------------------------------

    def _order(self, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await work
            except EXPECTED_ERRORS:
                return  # like any request, it may fail

        self.world.loop.call_soon(lambda: self._tasks.append(self.world.loop.create_task(run())))

    def _elect(self, fault: Fault, node: SimNode) -> Any:
        async def work() -> None:
            async with self.world.workload.admin(ADMIN_TIMEOUT_MS) as admin:
                await admin.elect_leaders(None)

        self._order(work())

    def _reassign(self, fault: Fault, node: SimNode) -> Any:
        brokers = [other.node_id for other in self.world.brokers]
        shuffled = random.Random(fault.pick).sample(brokers, len(brokers))
        factor = self.world.options.replication_factor if fault.pick % 3 else max(self.world.options.min_isr, 1)
        replicas = shuffled[:factor]
        index, topic = fault.pick % self.world.options.partitions, TOPIC
        if self.world.options.transactors:
            topic = (TOPIC, TRANSFERS, STATE_TOPIC)[(fault.pick >> 4) % 3]
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=ADMIN_TIMEOUT_MS,
            topics=[
                AlterPartitionReassignmentsRequest.ReassignableTopic(
                    name=topic,
                    partitions=[AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=replicas)],
                )
            ],
        )

        async def work() -> None:
            try:
                async with self.world.workload.admin(ADMIN_TIMEOUT_MS) as admin:
                    await admin.cluster.request(request)
            finally:
                self._reassigned.discard(index)

        self._reassigned.add(index)
        self._order(work())
        return f"{topic}-{index} to {replicas}"

    def _grow(self, fault: Fault, node: SimNode) -> Any:
        """A new topic, which the load does not use, gets more partitions."""

        async def work() -> None:
            async with self.world.workload.admin(ADMIN_TIMEOUT_MS) as admin:
                name = f"growing-{self._grown}"
                self._grown += 1
                await admin.create_topic(name, partitions=1, replication_factor=self.world.options.replication_factor, wait=False)
                await admin.create_partitions(name, 3)

        self._order(work())

    def _topics(self, fault: Fault, node: SimNode) -> Any:
        """A topic is created, deleted, and created again under the same name."""

        async def work() -> None:
            async with self.world.workload.admin(ADMIN_TIMEOUT_MS) as admin:
                for _ in range(2):
                    await admin.create_topic("fleeting", partitions=2, replication_factor=self.world.options.replication_factor, wait=False)
                    await asyncio.sleep(fault.seconds)
                    await admin.delete_topic("fleeting")

        self._order(work())

    def _min_isr(self, fault: Fault, node: SimNode) -> Any:
        options = self.world.options
        min_isr = 1 + fault.pick % options.replication_factor

        async def work(value: int) -> None:
            async with self.world.workload.admin(ADMIN_TIMEOUT_MS) as admin:
                await admin.alter_configs(TOPIC_RESOURCE, TOPIC, [("set", "min.insync.replicas", str(value))])

        self._order(work(min_isr))
        return f"{min_isr}"

    def _voters(self, fault: Fault, node: SimNode) -> Any:
        """A controller is removed from the quorum and added again later (KIP-853)."""
        controllers = self.world.controllers
        if not self.world.options.is_dynamic or self.rot.metadata:
            return False
        chosen = node if node.config.is_controller else controllers[fault.pick % len(controllers)]

        async def work() -> None:
            async with self.world.workload.admin(ADMIN_TIMEOUT_MS) as admin:
                directory_id = self.world.voter_directory_id(chosen.node_id)
                await admin.remove_controller(self.world.cluster_id, chosen.node_id, directory_id)
                await asyncio.sleep(fault.seconds)
                await self._add_voter(admin, chosen)

        self._order(work())
        return f"{chosen} is to leave the quorum"

    async def _add_voter(self, admin: Maintenance, node: SimNode) -> None:
        listener = (CONTROLLER_LISTENER, node.host, node.config.advertised[CONTROLLER_LISTENER].port)
        await admin.add_controller(self.world.cluster_id, node.node_id, self.world.voter_directory_id(node.node_id), [listener])

    async def _restore_voters(self) -> None:
        """Add missing voters until the run ends, because a removal may take effect late."""
        while True:
            voters = self.world.invariants.voters()
            missing = [node for node in self.world.controllers if node.node_id not in voters] if voters else []
            try:
                if missing:
                    async with self.world.workload.admin(ADMIN_TIMEOUT_MS) as admin:
                        await self._add_voter(admin, missing[0])
            except EXPECTED_ERRORS:
                pass  # the next round
            await asyncio.sleep(0.2)

    async def _undo_admin(self) -> None:
        options = self.world.options
        if not self.injected["min_isr"]:
            return
        value = str(min(options.min_isr, options.replication_factor))
        while True:
            try:
                async with self.world.workload.admin() as admin:
                    await admin.alter_configs(TOPIC_RESOURCE, TOPIC, [("set", "min.insync.replicas", value)])
                return
            except EXPECTED_ERRORS:
                continue
