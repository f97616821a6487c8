"""Authentic clusters into which faults are planted: copies of the log directories of real brokers, one per broker."""

from __future__ import annotations

import os
import shutil
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from crc32c import crc32c

ROOT = Path(__file__).parents[1] / "golden" / "logs"
#: field of a batch header -> (offset, size)
FIELDS = {
    "base_offset": (0, 8), "length": (8, 4), "epoch": (12, 4), "magic": (16, 1), "crc": (17, 4), "attributes": (21, 2),
    "last_delta": (23, 4), "base_timestamp": (27, 8), "max_timestamp": (35, 8), "producer_id": (43, 8), "producer_epoch": (51, 2),
    "base_sequence": (53, 4), "count": (57, 4),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    plant: Callable[[Cluster], None]
    expected: tuple[str, ...]
    brokers: tuple[str, ...] = ("1",)
    level: str = "batches"
    cause: str = ""


@dataclass(slots=True)
class Cluster:
    """Copies of brokers' directories, and the partition that faults go to. `middle`: index of the batch that is changed."""

    directories: dict[int, Path]
    partition: str
    middle: int = 15
    acked: list[str] = field(default_factory=list)
    topics: tuple[str, ...] = ()
    compacted: tuple[str, ...] = ()

    @property
    def paths(self) -> list[str]:
        return [str(path) for path in self.directories.values()]

    def files(self, broker: int = 1, partition: str = "") -> Path:
        return self.directories[broker] / (partition or self.partition)

    def segments(self, broker: int = 1, partition: str = "") -> list[Path]:
        return sorted(self.files(broker, partition).glob("*.log"))

    def batches(self, broker: int = 1, segment: int = 0, partition: str = "") -> list[bytearray]:
        data = self.segments(broker, partition)[segment].read_bytes()
        found, position = [], 0
        while position < len(data):
            size = 12 + struct.unpack_from(">i", data, position + 8)[0]
            found.append(bytearray(data[position : position + size]))
            position += size
        return found

    def store(self, batches: list[bytearray], broker: int = 1, segment: int = 0, partition: str = "") -> None:
        self.segments(broker, partition)[segment].write_bytes(b"".join(batches))

    def checkpoint(self, name: str, value: int, broker: int = 1, partition: str = "") -> None:
        """Set one line of an offset checkpoint."""
        topic, number = (partition or self.partition).rsplit("-", 1)
        path = self.directories[broker] / name
        lines = path.read_text().splitlines()[2:] if path.exists() else []
        lines = [line for line in lines if line.rsplit(" ", 1)[0] != f"{topic} {number}"] + [f"{topic} {number} {value}"]
        path.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")

    def drop_caches(self, broker: int = 1) -> None:
        """Remove the files that a broker can rebuild, so that only the log counts."""
        for path in self.files(broker).iterdir():
            if path.suffix in {".index", ".timeindex", ".snapshot", ".txnindex"}:
                path.unlink()


def number(batch: bytearray, name: str) -> int:
    start, size = FIELDS[name]
    return int.from_bytes(batch[start : start + size], "big", signed=name != "crc")


def put(batch: bytearray, name: str, value: int) -> None:
    start, size = FIELDS[name]
    batch[start : start + size] = value.to_bytes(size, "big", signed=name != "crc")


def seal(batch: bytearray) -> bytearray:
    """Correct the CRC."""
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def copy_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True, copy_function=shutil.copyfile)
    for root, _, files in os.walk(target):
        Path(root).chmod(0o755)
        for name in files:
            (Path(root) / name).chmod(0o644)


# ---- authentic clusters -------------------------------------------------------------------------------------------------------


def replicated(target: Path) -> Cluster:
    """Three brokers of one Kafka 4.3 cluster after two leader kills: rep-0, root files and the metadata log."""
    directories = {}
    for broker in (1, 2, 3):
        directories[broker] = target / f"broker-{broker}"
        copy_tree(ROOT / "replicas" / "authentic" / f"broker-{broker}" / "root", directories[broker])
        copy_tree(ROOT / "replicas" / "authentic" / f"broker-{broker}" / "rep-0", directories[broker] / "rep-0")
        copy_tree(ROOT / "kraft-dynamic" / f"voter-{broker}", directories[broker])
    return Cluster(directories, "rep-0", topics=("rep", "__cluster_metadata"))  # of the other topics no files were kept


def many_topics(target: Path, partitions: tuple[str, ...] = ()) -> Cluster:
    """A stopped Kafka 4.3 broker with every codec, transactions and several segments, as three byte-identical replicas."""
    directories = {}
    for broker in (1, 2, 3):
        path = directories[broker] = target / f"broker-{broker}"
        for folder in (ROOT / "single-stopped").iterdir():
            if folder.is_dir() and (not partitions or folder.name in {"root", *partitions}):
                copy_tree(folder, path if folder.name == "root" else path / folder.name)
        lines = (path / "meta.properties").read_text().splitlines()
        own = {"node.id": str(broker), "directory.id": f"AAAAAAAAAAAAAAAAAAAA{broker}A"}
        (path / "meta.properties").write_text("".join(f"{own_line(line, own)}\n" for line in lines))
        keep_lines(path)
    return Cluster(directories, "plain-0", middle=60)


def own_line(line: str, own: dict[str, str]) -> str:
    """This broker's own line of meta.properties."""
    name = line.partition("=")[0]
    return f"{name}={own[name]}" if name in own else line


def keep_lines(directory: Path) -> None:
    """Leave those lines in the checkpoints whose partitions were copied."""
    for path in directory.glob("*-checkpoint"):
        kept = [line for line in path.read_text().splitlines()[2:] if (directory / "-".join(line.split()[:2])).is_dir()]
        path.write_text("\n".join(["0", str(len(kept)), *kept]) + "\n")


def few_topics(target: Path) -> Cluster:
    """Of those, the partitions that faults go to."""
    return many_topics(target, ("plain-0", "txn-0"))


def compacted(target: Path) -> Cluster:
    """A compacted topic before the cleaner ran (broker 1) and after (broker 2): different bytes, the same content."""
    directories = {}
    for broker, folder in ((1, "before"), (2, "after")):
        path = directories[broker] = target / f"broker-{broker}"
        copy_tree(ROOT / "compaction" / folder, path)
        (path / "meta.properties").write_text(f"version=1\ncluster.id=c\nnode.id={broker}\n")
        (path / "replication-offset-checkpoint").write_text("0\n2\ncompact 0 43\ncompact2 0 43\n")
    (directories[2] / ".kafka_cleanshutdown").touch()  # the other was copied while its broker ran
    (directories[2] / "cleaner-offset-checkpoint").write_text("0\n2\ncompact 0 38\ncompact2 0 38\n")
    return Cluster(directories, "compact-0", compacted=("compact", "compact2"))


# ---- logs of our own brokers ---------------------------------------------------------------------------------------------------

_OWN: dict[str, Path] = {}


def write_own_logs(directory: Path) -> None:
    """Three minikafka brokers: 40 batches of 1 to 3 records, the leader killed after half of them unless it is 1; a clean stop."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    from minikafka.testing.cluster import ProcessCluster

    with ProcessCluster(directory=directory / "cluster") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic("rep", 1, 3, config={"index.interval.bytes": "300"})]).values():
            future.result(20)

        now_ms = time.time_ns() // 1_000_000

        def write(begin: int) -> None:
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
            for number in range(begin, begin + 20):
                for record in range(1 + number % 3):
                    value, time_ms = f"value-{number}-{record}-xxxxxxxxxxxx".encode(), now_ms + 10 * number
                    producer.produce("rep", value, key=f"k{number}".encode(), timestamp=time_ms)
                assert producer.flush(30) == 0

        write(0)
        leader = cluster.metadata(["rep"]).topics[0].partitions[0].leader_id
        victim = leader if leader != 1 else 0
        if victim:
            cluster.kill(victim)
            cluster.wait_for(lambda: cluster.metadata(["rep"]).topics[0].partitions[0].leader_id not in {victim, -1}, "another leader")
            cluster.restart(victim)
        write(20)
        cluster.wait_for(lambda: len(cluster.metadata(["rep"]).topics[0].partitions[0].isr_nodes) == 3, "all in sync")
        for node in (3, 2, 1):
            cluster.terminate(node, timeout_s=40)
        _OWN.update({str(node.node_id): node.log_dir for node in cluster.nodes.values()})


def own(target: Path) -> Cluster:
    """Copies of what write_own_logs left."""
    directories = {}
    for broker, path in sorted(_OWN.items()):
        directories[int(broker)] = target / f"broker-{broker}"
        copy_tree(path, directories[int(broker)])
    return Cluster(directories, "rep-0", topics=("rep", "__cluster_metadata"))
