"""Leaders and controllers die by SIGKILL under acks=all idempotent writing, at moments that a seed draws: nothing acknowledged is lost,
nothing is there twice, the survivors say what has happened, and the dead come back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.history import History, anomalies
from helpers.shell import minikafka
from helpers.workload import BundledWriter, ConfluentWriter, Writer, read_everything

from minikafka.testing.cluster import ProcessCluster
from minikafka.wire.messages.metadata import MetadataResponse

WRITERS: dict[str, type[Writer]] = {"confluent-kafka": ConfluentWriter, "the bundled client": BundledWriter}
RATE_HZ = 1000
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(3, controllers=3, directory=tmp_path_factory.mktemp("cluster")) as made:
        yield made


def create(cluster: ProcessCluster, topic: str, partitions: int) -> None:
    made = minikafka("topics", "-b", cluster.bootstrap, "--create", "--topic", topic, "--partitions", str(partitions))
    assert made.returncode == 0, made.stderr


def partition_of(cluster: ProcessCluster, topic: str, index: int) -> MetadataResponse.MetadataResponsePartition:
    return next(p for p in cluster.metadata([topic]).topics[0].partitions if p.partition_index == index)


def acknowledged(cluster: ProcessCluster, history: History, more: int) -> None:
    """Wait until so many more records are acknowledged."""
    goal = history.acknowledged + more
    cluster.wait_for(lambda: history.acknowledged >= goal, f"{more} more acknowledgements after {history.acknowledged}")


def in_sync(cluster: ProcessCluster, topic: str) -> None:
    def whole() -> bool:
        return all(len(p.isr_nodes) == 3 and p.leader_id >= 0 for p in cluster.metadata([topic]).topics[0].partitions)

    cluster.wait_for(whole, "every replica to be in sync")


def judge(cluster: ProcessCluster, topic: str, history: History, writer: Writer, partitions: int) -> None:
    writer.stop()
    writer.join()
    read_everything(cluster.bootstrap, topic, history, partitions=range(partitions), alive=cluster.logs)
    assert history.violations == []
    assert anomalies(history) == {}
    assert history.acknowledged == len(history.sends), "every record was acknowledged in the end"


@pytest.mark.parametrize("client", WRITERS)
def test_the_leader_dies(cluster: ProcessCluster, client: str) -> None:
    topic = f"led-{list(WRITERS).index(client)}"
    create(cluster, topic, 1)
    history = History()
    writer = WRITERS[client]("w", cluster.bootstrap, topic, history, 1, RATE_HZ)
    writer.start()
    acknowledged(cluster, history, 300)
    before = partition_of(cluster, topic, 0)
    cluster.kill(before.leader_id)
    cluster.wait_for(lambda: partition_of(cluster, topic, 0).leader_id not in (-1, before.leader_id), "a new leader")
    after = partition_of(cluster, topic, 0)
    assert after.leader_epoch == before.leader_epoch + 1
    assert set(after.isr_nodes) == set(before.isr_nodes) - {before.leader_id}
    acknowledged(cluster, history, 300)
    cluster.restart(before.leader_id)
    in_sync(cluster, topic)
    acknowledged(cluster, history, 100)
    judge(cluster, topic, history, writer, 1)


@pytest.mark.parametrize("client", WRITERS)
def test_leaders_die_at_moments_that_a_seed_draws(cluster: ProcessCluster, client: str) -> None:
    draw = random.Random(20260711)
    partitions = 4
    topic = f"drawn-{list(WRITERS).index(client)}"
    create(cluster, topic, partitions)
    history = History()
    writer = WRITERS[client]("w", cluster.bootstrap, topic, history, partitions, RATE_HZ)
    writer.start()
    for _ in range(2):
        acknowledged(cluster, history, draw.randrange(1, 400))
        victim = partition_of(cluster, topic, draw.randrange(partitions)).leader_id
        cluster.kill(victim)
        acknowledged(cluster, history, draw.randrange(1, 400))
        cluster.restart(victim)
        in_sync(cluster, topic)
    judge(cluster, topic, history, writer, partitions)


def test_the_active_controller_dies(cluster: ProcessCluster) -> None:
    topic, partitions = "controlled", 3
    create(cluster, topic, partitions)
    history = History()
    writer = ConfluentWriter("w", cluster.bootstrap, topic, history, partitions, RATE_HZ)
    writer.start()
    acknowledged(cluster, history, 200)
    active = cluster.active_controller()
    cluster.kill(active)
    cluster.wait_for(lambda: cluster.active_controller() not in (-1, active), "another active controller")
    acknowledged(cluster, history, 200)
    create(cluster, "made-by-the-next", 1)
    cluster.restart(active)
    in_sync(cluster, topic)
    judge(cluster, topic, history, writer, partitions)


def test_the_survivors_directories_agree(cluster: ProcessCluster, tmp_path: Path) -> None:
    """Last: the brokers stop, and the audit has the word."""
    for node_id in cluster.nodes:
        assert cluster.terminate(node_id) == 0
    done = minikafka("audit", *[str(node.log_dir) for node in cluster.nodes.values()], "--level", "records", "--engine", "local")
    assert done.returncode == 0, done.stdout + done.stderr
