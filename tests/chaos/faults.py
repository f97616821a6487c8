"""The faults: each begins, lasts a while, and ends in a cluster that is whole again. What is drawn depends on the seed alone; what it hits
(who leads just now) on the cluster."""

from __future__ import annotations

import errno
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from chaos.disk import FaultyDisk

from minikafka.testing.cluster import ProcessCluster
from minikafka.testing.proxy import CLIENT, Link

#: Longer than `request.timeout.ms` of the run's brokers.
STALL_S = 3.0


class World:
    """What a fault works on."""

    def __init__(self, cluster: ProcessCluster, topic: str, disks: Mapping[int, FaultyDisk], draw: random.Random) -> None:
        self.cluster = cluster
        self.topic = topic
        self.disks = disks
        self.draw = draw

    @property
    def nodes(self) -> list[int]:
        """All node ids."""
        return sorted(self.cluster.nodes)

    def target(self, kind: str) -> int:
        """A node: any, the leader of some partition, or the active controller."""
        drawn = self.draw.choice(self.nodes)
        index = self.draw.randrange(3)
        if kind == "controller":
            active = self.cluster.active_controller()
            return active if active > 0 else drawn
        if kind == "leader":
            partitions = self.cluster.metadata([self.topic]).topics[0].partitions
            leader = partitions[index % len(partitions)].leader_id
            return leader if leader > 0 else drawn
        return drawn


class Fault(ABC):
    """`kind` is its name in tables. With `goes_on` writing must go on while it lasts: a majority is up and can be reached."""

    kind = ""
    goes_on = True

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = world.cluster
        self.details = ""

    @abstractmethod
    def begin(self) -> None:
        """Do harm."""

    @abstractmethod
    def end(self) -> None:
        """Undo it."""

    def restart(self, *nodes: int) -> None:
        """Start nodes that have ended."""
        for node_id in nodes:
            if not self.cluster.nodes[node_id].running:
                self.cluster.spawn(node_id)


class Kill(Fault):
    """SIGKILL, and a start when the fault ends."""

    def __init__(self, world: World, target: str) -> None:
        super().__init__(world)
        self.kind = f"kill {target}"
        self._target = target

    def begin(self) -> None:
        self.node = self.world.target(self._target)
        self.details = f"node {self.node}"
        self.cluster.kill(self.node)

    def end(self) -> None:
        self.restart(self.node)


class KillAll(Fault):
    """SIGKILL to everybody at once: only the page cache survives."""

    kind = "kill all"
    goes_on = False

    def begin(self) -> None:
        for node_id in self.world.nodes:
            self.cluster.kill(node_id)

    def end(self) -> None:
        self.restart(*self.world.nodes)


class KillAndRestartAtOnce(Fault):
    """SIGKILL and a start before anybody has noticed: another incarnation of a broker that is still thought alive."""

    kind = "kill, start at once"

    def begin(self) -> None:
        node = self.world.target("leader")
        self.details = f"node {node}"
        self.cluster.kill(node)
        self.restart(node)

    def end(self) -> None:
        pass


class Pause(Fault):
    """SIGSTOP: a leader that wakes up and does not know that it was deposed."""

    def __init__(self, world: World, target: str) -> None:
        super().__init__(world)
        self.kind = f"pause {target}"
        self._target = target

    def begin(self) -> None:
        self.node = self.world.target(self._target)
        self.details = f"node {self.node}"
        self.cluster.pause(self.node)

    def end(self) -> None:
        self.cluster.resume(self.node)


class RollingRestart(Fault):
    """SIGTERM and start, one node after the other."""

    kind = "rolling restart"

    def begin(self) -> None:
        for node_id in self.world.nodes:
            self.cluster.terminate(node_id)
            self.restart(node_id)
            self.cluster.wait_for(lambda node_id=node_id: bool(self.cluster.metadata_of(node_id, []).brokers), f"node {node_id}")  # type: ignore[misc]

    def end(self) -> None:
        pass


class Wipe(Fault):
    """SIGKILL, and back with an empty disk: at once, or after it was missed."""

    def __init__(self, world: World, *, at_once: bool) -> None:
        super().__init__(world)
        self.kind = "wipe, start at once" if at_once else "wipe"
        self._at_once = at_once

    def begin(self) -> None:
        self.node = self.world.target("leader")
        self.details = f"node {self.node}"
        self.cluster.kill(self.node)
        self.cluster.wipe(self.node)
        if self._at_once:
            self.restart(self.node)

    def end(self) -> None:
        self.restart(self.node)


class Disk(Fault):
    """Writes fail, and the directory goes offline; the node starts again on a disk that has healed."""

    def __init__(self, world: World, code: int) -> None:
        super().__init__(world)
        self.kind = f"disk {errno.errorcode[code]}"
        self._code = code

    def begin(self) -> None:
        self.node = self.world.target("leader")
        self.details = f"node {self.node}"
        self.world.disks[self.node].fail(self._code)

    def end(self) -> None:
        self.world.disks[self.node].heal()
        if self.cluster.nodes[self.node].running:
            self.cluster.kill(self.node)
        self.restart(self.node)


class SlowDisk(Fault):
    """Every call that may wait for a disk takes long, and what was in the page cache is gone."""

    kind = "disk slow"

    def begin(self) -> None:
        self.node, delay_ms = self.world.target("leader"), self.world.draw.choice((20, 60, 150))
        self.details = f"node {self.node}, {delay_ms} ms"
        self.world.disks[self.node].slow(delay_ms)

    def end(self) -> None:
        self.world.disks[self.node].heal()


class Cut(Fault):
    """Links that carry nothing; at the end what they held arrives late, or the connections are reset."""

    def __init__(self, world: World, target: str, cut_kind: str) -> None:
        super().__init__(world)
        self.kind = f"{cut_kind} {target}"
        self._target, self._cut_kind = target, cut_kind
        self._reset = world.draw.random() < 0.5

    def begin(self) -> None:
        node = self.world.target(self._target)
        others = [other for other in self.world.nodes if other != node]
        self.details = f"node {node}, then {'reset' if self._reset else 'late arrival'}"
        network = self.cluster.network
        assert network is not None
        network.cut(links(self._cut_kind, node, others))

    def end(self) -> None:
        network = self.cluster.network
        assert network is not None
        network.heal(reset=self._reset)


def links(cut_kind: str, node: int, others: list[int]) -> list[Link]:
    """The links that a cut of this shape takes."""
    into, out = [(other, node) for other in others], [(node, other) for other in others]
    if cut_kind == "isolate":
        return [*into, *out, (CLIENT, node), (node, CLIENT)]
    return {"cut from peers": [*into, *out], "deafen": into, "mute": out}[cut_kind]


class StallFollower(Fault):
    """Two nodes, each leading partitions that the other follows, are cut from each other beyond `request.timeout.ms`; the controller
    reaches both.

    Requests between nodes and appends that wait for the in-sync set run into their time-outs, and what they waited for happens later."""

    kind = "stall a follower"

    def begin(self) -> None:
        active = self.cluster.active_controller()
        leader, follower = self.world.draw.sample([node for node in self.world.nodes if node != active], 2)
        self.details = f"nodes {leader} and {follower} from each other"
        network = self.cluster.network
        assert network is not None
        network.cut([(leader, follower), (follower, leader)])
        time.sleep(STALL_S)

    def end(self) -> None:
        network = self.cluster.network
        assert network is not None
        network.heal()


class Ring(Fault):
    """Each node reaches its neighbours only: everybody sees a majority, and no two see the same one (with five nodes)."""

    kind = "majority ring"
    goes_on = False

    def begin(self) -> None:
        nodes = self.world.nodes
        self.world.draw.shuffle(nodes)
        near = {frozenset((nodes[index], nodes[index - 1])) for index in range(len(nodes))}
        network = self.cluster.network
        assert network is not None
        network.cut((a, b) for a in nodes for b in nodes if a != b and frozenset((a, b)) not in near)

    def end(self) -> None:
        network = self.cluster.network
        assert network is not None
        network.heal(reset=True)


class Slow(Fault):
    """Every message between nodes takes longer."""

    kind = "slow links"

    def begin(self) -> None:
        seconds = self.world.draw.choice((0.02, 0.05, 0.1))
        self.details = f"{seconds * 1000:.0f} ms"
        network = self.cluster.network
        assert network is not None
        network.delay(((a, b) for a in self.world.nodes for b in self.world.nodes if a != b), seconds)

    def end(self) -> None:
        network = self.cluster.network
        assert network is not None
        network.heal()


class Resets(Fault):
    """Every connection between nodes, and of every client, is reset."""

    kind = "reset all"

    def begin(self) -> None:
        everybody = [CLIENT, *self.world.nodes]
        network = self.cluster.network
        assert network is not None
        network.reset((a, b) for a in everybody for b in everybody)

    def end(self) -> None:
        pass


class Silence(Fault):
    """The connections between a node and the others are dead without notice, as when a middlebox has dropped their state; new ones work.

    The kernels see a healthy proxy: only the time-outs of requests bring new connections."""

    def __init__(self, world: World, target: str) -> None:
        super().__init__(world)
        self.kind = f"silence {target}"
        self._target = target

    def begin(self) -> None:
        node = self.world.target(self._target)
        network = self.cluster.network
        assert network is not None
        silenced = network.silence((node, other) for other in self.world.nodes if other != node)
        self.details = f"node {node}, {silenced} connections"

    def end(self) -> None:
        pass


class CutAndKill(Fault):
    """The leader is cut from its peers, and then another node dies."""

    kind = "cut leader, kill another"
    goes_on = False

    def begin(self) -> None:
        self.cut = Cut(self.world, "leader", "cut from peers")
        self.cut.begin()
        self.kill = Kill(self.world, "any")
        self.kill.begin()
        self.details = f"{self.cut.details}; kill {self.kill.details}"

    def end(self) -> None:
        self.kill.end()
        self.cut.end()


Make = Callable[[World], Fault]
TARGETS = ("any", "leader", "controller")


def catalogue(*, nodes: int, with_disks: bool) -> dict[str, Make]:
    """Every fault that a cluster of this size can take, by the name that a plan calls it."""
    made: dict[str, Make] = {}
    for target in TARGETS:
        made[f"kill {target}"] = lambda world, target=target: Kill(world, target)  # type: ignore[misc]
        made[f"pause {target}"] = lambda world, target=target: Pause(world, target)  # type: ignore[misc]
    for cut_kind in ("isolate", "cut from peers", "deafen", "mute"):
        for target in ("leader", "controller"):
            made[f"{cut_kind} {target}"] = lambda world, target=target, cut_kind=cut_kind: Cut(world, target, cut_kind)  # type: ignore[misc]
    for target in ("leader", "controller"):
        made[f"silence {target}"] = lambda world, target=target: Silence(world, target)  # type: ignore[misc]
    made["kill all"] = KillAll
    made["kill, start at once"] = KillAndRestartAtOnce
    made["rolling restart"] = RollingRestart
    made["slow links"] = Slow
    made["reset all"] = Resets
    made["stall a follower"] = StallFollower
    made["cut leader, kill another"] = CutAndKill
    made["wipe"] = lambda world: Wipe(world, at_once=False)
    made["wipe, start at once"] = lambda world: Wipe(world, at_once=True)
    if nodes >= 5:
        made["majority ring"] = Ring
    if with_disks:
        made["disk slow"] = SlowDisk
        for code in (errno.ENOSPC, errno.EIO):
            made[f"disk {errno.errorcode[code]}"] = lambda world, code=code: Disk(world, code)  # type: ignore[misc]
    return made
