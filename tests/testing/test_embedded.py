"""Embedded clusters, used as a test would: started, broken in every way they offer, healed, audited, and gone at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from minikafka.client.errors import BrokerError
from minikafka.testing import ClusterError, EmbeddedBroker, EmbeddedCluster
from minikafka.testing.first_topics import create_first
from minikafka.testing.processes import Zygote
from minikafka.testing.wait import LoadAdjustedDeadline
from minikafka.wire.errors import ErrorCode

pytestmark = pytest.mark.timeout(120)
ROOT = Path(__file__).parents[2]
TOPIC = "orders"


def produce(cluster: EmbeddedCluster, values: list[str], **settings: Any) -> list[int]:
    offsets: list[int] = []
    producer = confluent_kafka.Producer(cluster.client_config(**{"acks": "all", "linger.ms": 0, "retry.backoff.ms": 10, **settings}))

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    for value in values:
        producer.produce(TOPIC, value, partition=0, on_delivery=delivered)
    assert producer.flush(20) == 0
    return offsets


def read_all(cluster: EmbeddedCluster, count: int) -> list[str]:
    consumer = confluent_kafka.Consumer(cluster.client_config(**{"group.id": "readers", "auto.offset.reset": "earliest"}))
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    values: list[str] = []
    while len(values) < count:
        message = consumer.poll(10)
        assert message is not None and not message.error()
        values.append(message.value().decode())
    consumer.close()
    return values


#: Where the two modes differ most; the rest is tested in one of them.
IN_BOTH_MODES = pytest.mark.parametrize("cluster", ["thread", "process"], indirect=True)


def test_a_first_topic_that_is_there_already_as_asked_is_good() -> None:
    """A create that was answered too late is sent again, and refused."""
    with EmbeddedBroker() as broker:
        broker.create_topic("late", partitions=2)
        create_first(broker, "late", {"partitions": 2}, 30)
        with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
            create_first(broker, "late", {"partitions": 3}, 30)


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    spec = {TOPIC: {"partitions": 2, "replication_factor": 3, "configs": {"min.insync.replicas": 2}}}
    with EmbeddedCluster(3, mode=getattr(request, "param", "thread"), topics=spec) as made:
        yield made


@pytest.fixture(autouse=True)
def repaired(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").repair()


def other_than(cluster: EmbeddedCluster, node_id: int) -> int:
    return next(broker.node_id for broker in cluster.brokers if broker.node_id != node_id)


@pytest.mark.parametrize(("factor", "timeout_s", "calls"), [(None, 30, 3), (1, 30, 3), (1, 0, 1), (2, 30, 1)])
def test_a_topic_waits_for_brokers_that_are_fenced_for_a_moment(factor: int | None, timeout_s: float, calls: int) -> None:
    """But not for more brokers than the cluster has, nor beyond its time."""
    answers = [BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced")] * 2
    asked: list[str] = []

    def create_topic(name: str, **_: object) -> None:
        asked.append(name)
        if len(asked) <= len(answers):
            raise answers[len(asked) - 1]

    cluster = SimpleNamespace(create_topic=create_topic, brokers=["one"])
    with contextlib.nullcontext() if calls == 3 else pytest.raises(BrokerError, match="fenced"):
        create_first(cluster, "orders", {"replication_factor": factor}, timeout_s)
    assert len(asked) == calls


@IN_BOTH_MODES
def test_a_story_of_breaking_and_healing(cluster: EmbeddedCluster) -> None:
    leader = cluster.leader(TOPIC, 0)
    follower = other_than(cluster, leader)
    cluster.transfer_leadership(TOPIC, 0, follower)
    assert cluster.leader(TOPIC, 0) == follower
    assert produce(cluster, ["a"]) == [0]

    cluster.broker(follower).kill()
    assert not cluster.broker(follower).running
    assert cluster.wait_leader(TOPIC, 0) != follower
    assert produce(cluster, ["b"]) == [1]
    assert follower not in cluster.isr(TOPIC, 0)

    cluster.broker(follower).start()
    cluster.wait_isr(TOPIC, 0)
    assert {row["log_end_offset"] for row in cluster.replicas(TOPIC, 0).values()} == {2}
    assert read_all(cluster, 2) == ["a", "b"]
    assert cluster.audit().outcome == "PASS"


def test_a_wiped_broker_copies_everything_again(cluster: EmbeddedCluster) -> None:
    end = produce(cluster, ["w"])[0] + 1
    victim = other_than(cluster, cluster.leader(TOPIC, 0))
    cluster.broker(victim).restart(wipe=True)
    cluster.wait_isr(TOPIC, 0)
    assert cluster.replicas(TOPIC, 0)[victim]["log_end_offset"] == end
    assert cluster.audit().outcome == "PASS"


@IN_BOTH_MODES
def test_a_paused_broker_is_fenced_and_comes_back(cluster: EmbeddedCluster) -> None:
    victim = other_than(cluster, cluster.controller)
    cluster.broker(victim).pause()
    with pytest.raises(ClusterError, match="paused"):
        cluster.broker(victim).ask("replicas")
    cluster.wait_until(lambda: victim not in cluster.isr(TOPIC, 0), "the paused broker to leave the in-sync set")
    cluster.broker(victim).resume()
    cluster.wait_healthy()


@IN_BOTH_MODES
def test_a_network_partition_shrinks_the_in_sync_set_and_heals(cluster: EmbeddedCluster) -> None:
    lonely = other_than(cluster, cluster.controller)
    cluster.partition_network({lonely})
    rest = sorted(broker.node_id for broker in cluster.brokers if broker.node_id != lonely)
    cluster.wait_isr(TOPIC, 0, members=rest)
    produce(cluster, ["while it was away"])
    cluster.heal()
    cluster.wait_healthy()
    assert cluster.audit().outcome == "PASS"


def test_a_slow_link_makes_acks_all_slow(cluster: EmbeddedCluster) -> None:
    produce(cluster, ["warm"])
    leader = cluster.leader(TOPIC, 0)
    cluster.delay(leader, 150)
    started = time.monotonic()
    produce(cluster, ["slow"])
    assert time.monotonic() - started > 0.1


def test_an_acknowledgement_that_is_lost(cluster: EmbeddedCluster) -> None:
    end = produce(cluster, ["before"])[0] + 1
    leader = cluster.leader(TOPIC, 0)
    with cluster.drop_acks(leader) as fault:
        assert produce(cluster, ["once"], **{"enable.idempotence": True, "request.timeout.ms": 500, "socket.timeout.ms": 1000}) == [end]
        fault.wait()
    assert cluster.replicas(TOPIC, 0)[leader]["log_end_offset"] == end + 1


@IN_BOTH_MODES
def test_metrics_and_description(cluster: EmbeddedCluster) -> None:
    assert cluster.metrics(1)["kafka_server_replicamanager_partitioncount"] >= 2
    text = cluster.describe()
    assert f"{TOPIC}-1" in text and "broker 3" in text
    assert "in service" in cluster.logs(200)
    assert cluster.topics() == [TOPIC]
    assert cluster.controller in {1, 2, 3}


def test_senseless_arguments_are_refused_with_a_message(cluster: EmbeddedCluster) -> None:
    with pytest.raises(ValueError, match="NOT_LEADER_OR_FOLLOWER"):
        cluster.fault("Produce", error="NO_SUCH_ERROR")
    with pytest.raises((ValueError, ClusterError), match="not served"):
        cluster.fault("Prodduce", error="CORRUPT_MESSAGE")
    with pytest.raises(ClusterError, match="there is no broker 9"):
        cluster.broker(9)
    with pytest.raises(ClusterError, match="there is no partition"):
        cluster.leader("nothing", 0)
    with pytest.raises(ClusterError, match="is running"):
        cluster.broker(1).start()


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_an_impossible_configuration_is_reported(mode: Any) -> None:
    with pytest.raises(Exception, match=r"num\.partitions") as caught, EmbeddedBroker(mode=mode, config={"num.partitoins": 3}):
        pass
    assert "did you mean" in str(caught.value)


def test_a_directory_that_is_given_is_kept(tmp_path: Path) -> None:
    cluster_id = "AAAAAAAAQACAAAAAAAAAAA"
    with EmbeddedBroker(directory=tmp_path, cluster_id=cluster_id, topics=[TOPIC]) as first:
        assert produce(first, ["kept"]) == [0]
    with EmbeddedBroker(directory=tmp_path, cluster_id=cluster_id) as second:
        assert read_all(second, 1) == ["kept"]
        directory = second.directory
    assert directory.exists()


async def test_with_async_with() -> None:
    async with EmbeddedBroker(topics={TOPIC: 3}) as broker:
        await broker.aio.wait_healthy()
        assert await broker.aio.topics() == [TOPIC]
        assert broker.port == int(broker.bootstrap_servers.split(":")[1])
        directory = broker.directory
        assert await asyncio.to_thread(produce, broker, ["x"]) == [0]
    assert not directory.exists()


CHILD = """
import sys
from minikafka.testing import EmbeddedCluster
from minikafka.testing.first_topics import create_first
from minikafka.testing.processes import Zygote
with EmbeddedCluster(2, mode=sys.argv[1]) as c:
    print(c.directory, Zygote.begin().pid, *[b.process.pid for b in c.brokers], flush=True)
    sys.stdin.read()
"""


def test_nothing_stays_when_the_test_process_is_killed() -> None:
    nothing_stays_after(lambda child: child.send_signal(signal.SIGKILL))


def test_nothing_stays_when_the_test_process_ends() -> None:
    nothing_stays_after(lambda child: child.communicate())


def nothing_stays_after(end: Callable[[subprocess.Popen[str]], object]) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, "process"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert child.stdout is not None and child.stdin is not None
    directory, *numbers = child.stdout.readline().split()
    pids = [int(number) for number in numbers]
    assert len(pids) == 3 and Path(directory).exists() and all(is_alive(pid) for pid in pids)
    end(child)
    child.wait(10)
    deadline = LoadAdjustedDeadline(10)
    while any(is_alive(pid) for pid in pids) or Path(directory).exists():
        assert not deadline.is_over, (directory, pids)
        time.sleep(0.01)
    child.stdin.close()
    child.stdout.close()


def test_clusters_of_processes_share_the_imports_and_take_this_process_as_it_is_now(tmp_path: Path, monkeypatch: Any) -> None:
    with EmbeddedBroker(mode="process", topics=[TOPIC]) as first:
        zygote = Zygote.begin().pid
        assert produce(first, ["x"]) == [0]
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("MINIKAFKA_TEST_VALUE", "as it is now")
        with EmbeddedBroker(mode="process") as second:
            assert Zygote.begin().pid == zygote
            if Path("/proc/self/cwd").exists():
                assert Path(f"/proc/{second.broker(1).process.pid}/cwd").resolve() == tmp_path.resolve()
        assert produce(first, ["y"]) == [1]


def test_the_process_that_brokers_are_forked_from_is_replaced_when_it_dies() -> None:
    zygote = Zygote.begin().pid
    os.kill(zygote, signal.SIGKILL)
    os.waitid(os.P_PID, zygote, os.WEXITED | os.WNOWAIT)
    with EmbeddedBroker(mode="process") as broker:
        assert Zygote.begin().pid != zygote
        assert broker.broker(1).running


def test_a_forked_test_process_has_brokers_of_its_own() -> None:
    with EmbeddedBroker(mode="process") as broker:
        pid = os.fork()
        if pid == 0:
            try:
                with EmbeddedBroker(mode="process", topics=[TOPIC]) as other:
                    os._exit(0 if other.topics() == [TOPIC] else 2)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert broker.broker(1).running


COMPILED = """
import sys
import minikafka.wire.compiler
from minikafka.testing import EmbeddedCluster, zygote
zygote.prepare()
late = []
for name in ("decoder_for", "encoder_for"):
    def watched(message, version, name=name, compile=getattr(minikafka.wire.compiler, name)):
        late.append(f"{name} {message.__name__} {version}")
        return compile(message, version)
    setattr(minikafka.wire.compiler, name, watched)
with EmbeddedCluster(3, topics=["t"]) as c:
    print(*late, sep="\\n")
"""


def test_the_process_that_brokers_are_forked_from_has_loaded_the_codecs() -> None:
    child = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, cwd=ROOT, check=True)
    # An election more, or an in-sync set that changes while the topic is made, may need a few others.
    assert len(child.stdout.splitlines()) <= 8, child.stdout


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z" if Path("/proc").exists() else True
    except OSError:
        return False
