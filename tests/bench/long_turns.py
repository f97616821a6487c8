"""The largest legal requests of every API against a loaded node: which callbacks of its loop take long, in processor time.

`PYTHONPATH=.:tests python -m bench.long_turns [--topics N] [--acls N] [--only API,API] [--list-ms 20]`. The node runs in a process of its
own, on asyncio's loop, every callback of which is measured, collections of garbage included; a thread looks at what a long one runs. What
is asked names what the node has (`aimed`), or is made up; one list of the request is as long as the node takes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import itertools
import os
import tempfile
import threading
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from helpers.live_node import broker_port, controller_port, live_node
from helpers.long_frames import lists_of
from helpers.work_unit import unit_s

from minikafka.client.errors import BrokerError
from minikafka.net.channel import Channel
from minikafka.net.garbage import GarbagePauses
from minikafka.net.server import SocketNetwork
from minikafka.net.thread_stack import describe
from minikafka.wire.batch import build_batch
from minikafka.wire.frame import encode_request
from minikafka.wire.grammar import ArrayNode, FixedLeaf, NullableNode, StructNode, UuidLeaf, VariableLeaf, grammar
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.init_producer_id import InitProducerIdRequest
from minikafka.wire.messages.metadata import MetadataRequest
from minikafka.wire.registry import apis

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "auto.create.topics.enable": "false",
    "super.users": "User:ANONYMOUS",
    "group.max.size": "100000", "group.consumer.max.size": "100000", "group.share.max.size": "1000", "group.streams.max.size": "1000",
}  # fmt: skip
FRAME_BYTES_MAX = 15 << 20
SIZES = (95_000, 47_000, 19_000, 9_500, 4_700, 2_300)
#: What ends the node's service, or waits for long.
LEFT_OUT = {"BrokerRegistration", "UnregisterBroker", "ControllerRegistration", "AddRaftVoter", "RemoveRaftVoter", "UpdateRaftVoter",
            "Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "UpdateFeatures", "BrokerHeartbeat", "ControlledShutdown"}  # fmt: skip
ANSWER_S = 8.0


# -- the node ----------------------------------------------------------------------------------------------------------


class Measured:
    """Measures callbacks of asyncio's loop in this thread; a second thread samples what long ones run."""

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self._began_s = 0.0
        self._collected_s = 0.0
        self._stack: list[str] = []
        self.found: list[dict[str, Any]] = []
        self._thread = threading.get_ident()
        threading.Thread(target=self._sample, daemon=True).start()
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            self._stack, self._collected_s = [], 0.0
            self._began_s = time.monotonic()
            began_s = time.thread_time()
            run(handle)
            took_s, turn_began_s, self._began_s = time.thread_time() - began_s, self._began_s, 0.0
            if took_s > self._least_s:
                row = {"from": turn_began_s, "to": time.monotonic(), "cpu_s": took_s, "gc_s": self._collected_s}
                self.found.append({**row, "what": repr(handle)[:150], "stack": self._stack[-1:]})

        asyncio.Handle._run = timed  # type: ignore[method-assign]
        gc.callbacks.append(self._on_collection)
        self._collecting_s = 0.0
        #: The longest collection of each generation.
        self.longest_s = [0.0, 0.0, 0.0]

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_s = time.thread_time()
        else:
            took_s = time.thread_time() - self._collecting_s
            self._collected_s += took_s
            self.longest_s[info["generation"]] = max(took_s, self.longest_s[info["generation"]])

    def _sample(self) -> None:
        while True:
            time.sleep(0.01)
            began_s = self._began_s
            if began_s and time.monotonic() - began_s > 0.01:
                what = describe(self._thread)
                if began_s == self._began_s:
                    self._stack.append(what)


async def serve(directory: str, pipe: Any, least_s: float) -> None:
    measured = Measured(least_s)
    async with live_node(Path(directory), SETTINGS) as node:
        garbage = GarbagePauses()
        garbage.start()
        pipe.send((broker_port(node), controller_port(node)))
        while True:
            asked = await asyncio.to_thread(pipe.recv)
            if asked == "end":
                break
            pipe.send((measured.found, measured.longest_s, garbage.full_rounds))
            measured.found, measured.longest_s = [], [0.0, 0.0, 0.0]


def node_process(directory: str, pipe: Any, least_s: float) -> None:
    asyncio.run(serve(directory, pipe, least_s))


# -- what is asked -------------------------------------------------------------------------------------------------------


@dataclass
class World:
    topics: list[str]
    topic_ids: list[bytes]
    wide: str
    partitions: int


NAMED = {
    "group": "g-{}", "group_id": "g-{}", "group_ids": "g-{}", "groups": "g-{}", "groups_names": "g-{}", "transactional_id": "x-{}",
    "transactional_ids": "x-{}", "member_id": "m-{}", "coordinator_keys": "g-{}", "principal_name": "User:u{}", "user": "u{}",
}  # fmt: skip


def value(node: Any, name: str, owner: str, number: int, world: World | None) -> Any:
    if isinstance(node, UuidLeaf):
        return world.topic_ids[number % len(world.topic_ids)] if world and name == "topic_id" else (number + 1 << 64).to_bytes(16)
    if isinstance(node, FixedLeaf):
        if node.code == "?":
            return False
        if node.code == "d":
            return 1.0
        if name in ("resource_type",):
            return 2
        if name in ("timeout_ms", "max_wait_ms"):
            return 5_000 if name == "timeout_ms" else 0
        if name in ("replication_factor", "num_partitions", "brokers", "broker_ids", "replicas"):
            return 1
        if name in ("operation", "permission_type", "config_operation"):
            return {"operation": 3, "permission_type": 3}.get(name, 0)
        if name in ("resource_pattern_type", "pattern_type"):
            return 3
        if name in ("replica_id", "acks"):
            return -1
        limit = {"b": 0, "h": 0, "H": 0}.get(node.code)
        if name in ("partition", "partition_index", "partition_indexes", "index", "partitions"):
            return number % max(world.partitions if world else 1 << 30, 1)
        return limit if limit is not None else 0 if "epoch" in name or "offset" in name else min(number, 1 << 30)
    assert isinstance(node, VariableLeaf)
    if node.kind == "records":
        return bytes(build_batch([(0, 1, b"k", b"v", ())]))
    if node.kind != "string":
        return b"x%d" % number
    if name in NAMED:
        return NAMED[name].format(number)
    if name in ("host",):
        return "*"
    if name in ("topic", "name", "topics", "topic_names", "resource_name", "topic_name"):
        return world.topics[number % len(world.topics)] if world else f"made-up-{number}"
    return f"{name}-{number}"


def filled(node: Any, name: str, owner: str, path: tuple[str, ...] | None, size: int, number: int, world: World | None) -> Any:
    """A value: lists on the way have one entry, the list at the end of the path `size`, others none."""
    if isinstance(node, ArrayNode):
        if path is None:
            return []
        if path == ():
            return [filled(node.subcon, name, owner, None, 1, at, world) for at in range(size)]
        return [filled(node.subcon, name, owner, path, size, number, world)]
    if isinstance(node, NullableNode):
        return filled(node.subcon, name, owner, path, size, number, world) if path else None
    if not isinstance(node, StructNode):
        return value(node, name, owner, number, world)
    values = {}
    fields = [*node.fields, *(node.tagged.fields if node.tagged is not None and path else [])]
    tagged = set() if node.tagged is None else {declared.name for declared, _ in node.tagged.fields}
    for declared, inner in fields:
        is_on_path = bool(path) and path[0] == declared.name
        if declared.name in tagged and not is_on_path:
            continue
        rest = path[1:] if is_on_path and path else None
        values[declared.name] = filled(inner, declared.name, name, rest, size, number, world)
        if path is None and isinstance(inner, ArrayNode):
            values[declared.name] = [filled(inner.subcon, declared.name, name, None, 1, number, world)]
    if path and world and len(path) > 1:
        for key in ("topic", "name"):
            if key in values and path[0] in ("partitions", "partition_indexes", "partition_data"):
                values[key] = world.wide
        if "topic_id" in values:
            values["topic_id"] = world.topic_ids[0]
    return node.owner(**values)


async def ask(port: int, frame: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    try:
        writer.write(frame)
        size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), ANSWER_S))
        await asyncio.wait_for(reader.readexactly(size), ANSWER_S)
        return "answered"
    except TimeoutError:
        return "unanswered"
    except (asyncio.IncompleteReadError, ConnectionError):
        return "closed"
    finally:
        writer.close()


def framed(request: Any, version: int) -> bytes:
    return b"".join(bytes(piece) for piece in encode_request(request, version, 1, "long"))  # type: ignore[arg-type]


def _of_partitions(path: tuple[str, ...], world: World) -> World:
    return World([world.wide], world.topic_ids[:1], world.wide, world.partitions) if len(path) > 1 and path[-1] != "topics" else world


async def sweep(ports: tuple[int, int], world: World, only: set[str], pipe: Any) -> None:
    for entry in apis():
        if entry.name in LEFT_OUT or (only and entry.name not in only):
            continue
        for listener in entry.listeners:
            port = ports[0] if listener == "broker" else ports[1]
            for version in sorted({entry.min_version, entry.max_version}):
                for path, aimed in itertools.product(lists_of(entry.request, version), (True, False)):
                    for size in SIZES:
                        chosen = _of_partitions(path, world) if aimed else None
                        request = filled(grammar(entry.request, version), "", "", path, size, 0, chosen)
                        frame = framed(request, version)
                        if len(frame) > FRAME_BYTES_MAX:
                            continue
                        began_s = time.monotonic()
                        ended = await ask(port, frame)
                        await asyncio.sleep(0.02)
                        label = f"{entry.name} v{version} {listener} {'.'.join(path)} {'aimed' if aimed else 'made up'} {size}"
                        report(pipe, f"{label} {len(frame)} B {ended} {time.monotonic() - began_s:.2f} s")
                        if ended != "closed":
                            break


def report(pipe: Any, label: str) -> None:
    pipe.send("found")
    found, longest_gc_s, full_rounds = pipe.recv()
    if found:
        worst = max(found, key=lambda row: row["cpu_s"])
        longest = "/".join(f"{1000 * value:.1f}" for value in longest_gc_s)
        parts = f"{1000 * worst['gc_s']:.1f} gc, longest by generation {longest}, {full_rounds} full; {len(found)} long"
        print(f"{1000 * worst['cpu_s']:6.1f} ms ({parts}; unit {1000 * unit_s():.2f} ms) {label}")
        print(f"        {worst['what']}\n        {worst['stack']}", flush=True)
    else:
        print(f"   fine {label}", flush=True)


# -- what the node has -----------------------------------------------------------------------------------------------------


async def load(ports: tuple[int, int], topics: int, partitions: int, acls: int, pipe: Any) -> World:
    network = SocketNetwork(asyncio.get_running_loop())
    channel = await Channel.open(network, "127.0.0.1", ports[0], client_id="load")
    names = ["wide", *(f"t-{number}" for number in range(topics))]
    one = CreateTopicsRequest.CreatableTopic
    for at in range(0, len(names), 1000):
        part = [one(name=name, num_partitions=partitions if name == "wide" else 1, replication_factor=1) for name in names[at : at + 1000]]
        await channel.request(CreateTopicsRequest(topics=part, timeout_ms=120_000))
    report(pipe, f"CreateTopics {len(names)}")
    creation = CreateAclsRequest.AclCreation
    for at in range(0, acls, 9_000):
        rows = [
            creation(resource_type=2, resource_name=f"t-{number % 5000}", resource_pattern_type=3 + number % 2, principal=f"User:u{number}",
                     host="*", operation=3, permission_type=3)
            for number in range(at, min(at + 9_000, acls))
        ]  # fmt: skip
        await channel.request(CreateAclsRequest(creations=rows))
    report(pipe, f"CreateAcls {acls}")
    for number in range(2_000):
        with contextlib.suppress(BrokerError):
            await channel.request(InitProducerIdRequest(transactional_id=f"x-{number}", transaction_timeout_ms=60_000))
    report(pipe, "InitProducerId 2000")
    described = await channel.request(MetadataRequest(topics=None))
    ids = {topic.name: topic.topic_id for topic in described.topics}
    known = [name for name in names if name in ids]
    channel.close()
    return World(known, [ids[name] for name in known], "wide", partitions)


async def run(options: argparse.Namespace, pipe: Any) -> None:
    ports = pipe.recv()
    world = await load(ports, options.topics, options.partitions, options.acls, pipe)
    print(len(world.topics), "topics", flush=True)
    await sweep(ports, world, set(filter(None, options.only.split(","))), pipe)
    pipe.send("end")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=2_000)
    parser.add_argument("--partitions", type=int, default=3_000)
    parser.add_argument("--acls", type=int, default=90_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--least-ms", type=float, default=20)
    options_ = parser.parse_args()
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as temporary:
        process = context.Process(target=node_process, args=(temporary, theirs, options_.least_ms / 1000))
        process.start()
        try:
            asyncio.run(run(options_, ours))
        finally:
            process.join(60)
            process.kill()
