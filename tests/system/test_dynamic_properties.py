"""Properties that are altered while brokers run: what they say happens at once, without a restart."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import psutil
import pytest
from helpers.shell import minikafka

from minikafka.client.admin import Admin
from minikafka.client.errors import BrokerError
from minikafka.client.producer import Producer
from minikafka.testing.cluster import ProcessCluster
from minikafka.testing.probe import exchange
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest

pytestmark = pytest.mark.timeout(60)
BROKER = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Two brokers, the second with two log directories."""
    directory = tmp_path_factory.mktemp("cluster")
    two = f"{directory}/broker-2/data,{directory}/broker-2/more"
    with ProcessCluster(2, directory=directory, node_properties={2: {"log.dirs": two}}) as made:
        yield made


def alter(cluster: ProcessCluster, broker: str, name: str, value: str | None) -> None:
    async def work() -> None:
        async with Admin(cluster.bootstrap) as admin:
            await admin.alter_configs(BROKER, broker, [("delete" if value is None else "set", name, value)])

    asyncio.run(work())


def said(cluster: ProcessCluster, node_id: int, text: str) -> None:
    cluster.wait_for(lambda: text in cluster.nodes[node_id].output_path.read_text(), f"node {node_id} to say: {text}")


def connections(cluster: ProcessCluster, of: int, to: int) -> int:
    """Connections of one node's process to another's broker listener."""
    process, port = cluster.nodes[of].process, cluster.nodes[to].port
    assert process is not None
    found = psutil.Process(process.pid).net_connections("tcp")
    return sum(c.raddr != () and c.raddr.port == port and c.status == psutil.CONN_ESTABLISHED for c in found)


def test_num_replica_fetchers(cluster: ProcessCluster) -> None:
    """Each fetcher has a connection of its own; whatever is written meanwhile arrives."""

    async def write(count: int) -> None:
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            for number in range(count):
                sent = [await producer.send("spread", b"%d" % number, partition=index) for index in range(6)]
                await asyncio.gather(*sent)

    async def create() -> None:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic("spread", assignments={index: [1, 2] for index in range(6)}, configs={"min.insync.replicas": "2"})

    asyncio.run(create())
    asyncio.run(write(3))
    assert connections(cluster, 2, 1) == 1
    for count in (3, 1):
        alter(cluster, "", "num.replica.fetchers", str(count))
        said(cluster, 2, "1 fetcher for each leader" if count == 1 else f"{count} fetchers for each leader")
        asyncio.run(write(3))
        cluster.wait_for(lambda: connections(cluster, 2, 1) == count, f"{count} connections")  # noqa: B023
    asyncio.run(write(3))
    assert {len(p.isr_nodes) for p in cluster.metadata(["spread"]).topics[0].partitions} == {2}


def test_max_connections_per_ip(cluster: ProcessCluster) -> None:
    address = ("127.0.0.1", cluster.nodes[2].port)

    def is_served() -> bool:
        with socket.create_connection(address, timeout=5) as connection:
            connection.sendall((11).to_bytes(4, "big") + bytes([0, 18, 0, 0, 0, 0, 0, 1, 0, 1, 120]))
            try:
                return connection.recv(1) != b""
            except ConnectionError:
                return False

    def configure(*change: str) -> None:
        """By the other broker, which still serves administrators."""
        of = ("--alter", "--entity-type", "brokers", "--entity-name", "2")
        done = minikafka("configs", "-b", f"127.0.0.1:{cluster.nodes[1].port}", *of, *change)
        assert done.returncode == 0, done.stderr

    assert is_served()
    alter(cluster, "2", "max.connections.per.ip.overrides", "127.0.0.9:0")
    alter(cluster, "2", "max.connections.per.ip", "0")
    try:
        cluster.wait_for(lambda: not is_served(), "the broker to refuse connections")
        configure("--add-config", "max.connections.per.ip.overrides=[127.0.0.9:0,localhost:1000]")
        cluster.wait_for(is_served, "the broker to take connections of a named host")
        configure("--add-config", "max.connections.per.ip.overrides=[127.0.0.9:0]")
        cluster.wait_for(lambda: not is_served(), "the broker to refuse connections again")
    finally:
        configure("--delete-config", "max.connections.per.ip")
        configure("--delete-config", "max.connections.per.ip.overrides")
    cluster.wait_for(is_served, "the broker to take connections again")


def test_an_override_that_is_none_is_refused(cluster: ProcessCluster) -> None:
    with pytest.raises(BrokerError, match=r"max\.connections\.per\.ip\.overrides: localhost must be host:count"):
        alter(cluster, "2", "max.connections.per.ip.overrides", "localhost")


def test_settings_without_effect_are_reported(cluster: ProcessCluster) -> None:
    alter(cluster, "1", "num.io.threads", "4")
    said(cluster, 1, "num.io.threads = 4, which has no effect in this broker")


def created(bootstrap: str, topic: str, **options: Any) -> ErrorCode:
    async def work() -> ErrorCode:
        async with Admin(bootstrap) as admin:
            try:
                await admin.create_topic(topic, **options)
            except BrokerError as error:
                return error.code
        return ErrorCode.NONE

    return asyncio.run(work())


def cordoned_directories(bootstrap: str, broker_id: int) -> set[str]:
    async def work() -> set[str]:
        async with Admin(bootstrap) as admin:
            described = await admin.describe_log_dirs([broker_id])
        return {entry.log_dir for entry in described[broker_id].results if entry.is_cordoned}

    return asyncio.run(work())


def moved(port: int, topic: str, index: int, path: str) -> ErrorCode:
    wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[index])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[wanted])])
    answer: Any = exchange("127.0.0.1", port, request, 2)
    return ErrorCode(answer.results[0].partitions[0].error_code)


def test_cordoned_log_directories_get_no_new_replicas(cluster: ProcessCluster) -> None:
    """KIP-1066, also over a restart."""
    data, more = (str(cluster.nodes[2].directory / name) for name in ("data", "more"))
    create = partial(created, cluster.bootstrap)

    def where(topic: str) -> dict[int, str]:
        return {int(path.name[-1]): path.parent.name for path in cluster.nodes[2].directory.glob(f"*/{topic}-[0-9]")}

    def replicas_anywhere(topic: str) -> int:
        return sum(len(list(node.directory.glob(f"*/{topic}-[0-9]"))) for node in cluster.nodes.values())

    def cordoned() -> set[str]:
        return cordoned_directories(cluster.bootstrap, 2)

    def move(topic: str, index: int, path: str) -> ErrorCode:
        return moved(cluster.nodes[2].port, topic, index, path)

    alter(cluster, "2", "cordoned.log.dirs", more)
    cluster.wait_for(lambda: cordoned() == {more}, "a directory to be cordoned")
    assert create("beside", assignments={index: [2] for index in range(4)}) is ErrorCode.NONE
    cluster.wait_for(lambda: len(where("beside")) == 4, "the replicas to be made")
    assert set(where("beside").values()) == {"data"}
    assert move("beside", 0, more) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move("beside", 0, data) is ErrorCode.NONE

    alter(cluster, "2", "cordoned.log.dirs", "*")
    cluster.wait_for(lambda: cordoned() == {data, more}, "all directories to be cordoned")
    names = (f"too-many-{number}" for number in itertools.count())
    refused = ErrorCode.INVALID_REPLICATION_FACTOR
    cluster.wait_for(lambda: create(next(names), partitions=1, replication_factor=2) is refused, "the controller to know")
    assert create("elsewhere", partitions=6, replication_factor=1) is ErrorCode.NONE
    cluster.wait_for(lambda: replicas_anywhere("elsewhere") == 6, "the replicas to be made")
    assert where("elsewhere") == {}
    assert cluster.terminate(2) == 0
    cluster.restart(2)
    assert cordoned() == {data, more}
    assert create("elsewhere-too", partitions=6, replication_factor=1) is ErrorCode.NONE
    cluster.wait_for(lambda: replicas_anywhere("elsewhere-too") == 6, "the replicas to be made")
    assert where("elsewhere-too") == {}

    alter(cluster, "2", "cordoned.log.dirs", None)
    cluster.wait_for(lambda: cordoned() == set(), "the end of it")
    assert move("beside", 0, more) is ErrorCode.NONE
    cluster.wait_for(lambda: where("beside")[0] == "more", "the replica to be moved")
    cluster.wait_for(lambda: create("both", partitions=4, replication_factor=2) is ErrorCode.NONE, "the controller to know")
