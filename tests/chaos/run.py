"""Real processes under a seeded schedule of faults, judged by a history: `python tests/chaos/run.py --minutes 20 --nodes 5 --seed 7`."""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from chaos import disk  # noqa: E402
from chaos.faults import Fault, World, catalogue  # noqa: E402
from helpers.history import History, anomalies, realtime_lag_s, twice  # noqa: E402
from helpers.transformers import (  # noqa: E402
    BundledTransformer,
    ConfluentTransformer,
    Transformer,
    committed_values,
    differences,
    wait_until_copied,
)
from helpers.workload import BundledReader, BundledWriter, Client, ConfluentReader, ConfluentWriter, read_everything  # noqa: E402

from minikafka.spark import report as reporting  # noqa: E402
from minikafka.spark.audit import AuditOptions, run_audit  # noqa: E402
from minikafka.spark.engine_local import LocalEngine  # noqa: E402
from minikafka.testing.cluster import ClusterError, ProcessCluster  # noqa: E402
from minikafka.wire.batch import iterate_batches  # noqa: E402

TOPIC = "chaos"
PARTITIONS = 6
#: The topics that hold a copy of `TOPIC`, and what makes them by consume-transform-produce; the group has the topic's name.
COPIES: dict[str, type[Transformer]] = {"copy-confluent": ConfluentTransformer, "copy-bundled": BundledTransformer}
COPIED_S_MAX = 120.0
CALM_S = (0.3, 1.5)
#: While a fault lasts that leaves a majority, so many records must be acknowledged, and the fault lasts until they are, at most so long.
PROGRESS = 100
PROGRESS_S_MAX = 20.0
WHOLE_S_MAX = 45.0
Say = Callable[[str], None]


@dataclass(slots=True)
class Figures:
    """The result of a run; `problems` is empty when it has passed."""

    seed: int
    nodes: int
    seconds: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    sent: int = 0
    acknowledged: int = 0
    unknown: int = 0
    polled: int = 0
    #: Transactions of the workers that copy the topic, with the offsets they have read.
    transactions: int = 0
    transactions_aborted: int = 0
    copied: int = 0
    longest_silence_s: float = 0.0
    slowest_progress_s: float = 0.0
    slowest_recovery_s: float = 0.0
    realtime_lag_s: float = 0.0
    #: New producer epochs that librdkafka took: what was under way then, it wrote again.
    producer_epochs: int = 0
    audit: str = ""
    problems: list[str] = field(default_factory=list)


class Run:
    """One cluster, its clients and its faults."""

    def __init__(
        self,
        *,
        seed: int,
        nodes: int,
        directory: Path,
        say: Say,
        fault_s: tuple[float, float],
        rate_hz: float,
        copies: Mapping[str, type[Transformer]],
    ) -> None:
        self._draw = random.Random(seed)
        self._say = say
        self._fault_s = fault_s
        self._rate_hz = rate_hz
        self._copies = copies
        self._directory = directory
        self.history = History()
        self.figures = Figures(seed, nodes)
        self.with_disks = disk.compiler() is not None
        self.cluster = ProcessCluster(nodes, controllers=nodes, faulty_network=True, directory=directory / "cluster", properties=PROPERTIES)
        disks = self._disks() if self.with_disks else {}
        self._world = World(self.cluster, TOPIC, disks, self._draw)
        self._reported_notes = 0

    def _disks(self) -> dict[int, disk.FaultyDisk]:
        library = disk.build(self._directory)
        found: dict[int, disk.FaultyDisk] = {}
        for node_id, node in self.cluster.nodes.items():
            found[node_id] = disk.FaultyDisk(library, self._directory / f"disk-{node_id}", node.log_dir)
            node.environment.update(found[node_id].environment)
        return found

    def play(self, plan: Sequence[str] | None, seconds: float) -> Figures:
        """Faults one after the other, each with calm after it: those of the plan, or drawn until the time is up."""
        names = catalogue(nodes=len(self.cluster.nodes), with_disks=self.with_disks)
        started = time.monotonic()
        with self.cluster:
            self._create_topics()
            clients, transformers = self._clients(), self._transformers()
            for client in [*clients, *transformers]:
                client.start()
            try:
                self._acknowledged(PROGRESS, "before any fault", PROGRESS_S_MAX)
                left = [name for name in plan or () if name in names]
                drawn: list[str] = []
                while (left if plan is not None else time.monotonic() - started < seconds) and not self.figures.problems:
                    if plan is None and not drawn:
                        # Every fault has its turn before any has its next one.
                        drawn = self._draw.sample(sorted(names), len(names))
                    self._suffer(names[left.pop(0) if plan is not None else drawn.pop()](self._world))
                self.figures.seconds = time.monotonic() - started
            finally:
                for client in clients:
                    client.stop()
            self._judge(clients, transformers)
        return self.figures

    def _create_topics(self) -> None:
        from helpers.shell import minikafka

        topic_options = ("--partitions", str(PARTITIONS), "--replication-factor", "3")
        for topic in (TOPIC, *self._copies):
            done = minikafka("topics", "-b", self.cluster.bootstrap, "--create", "--topic", topic, *topic_options)
            assert done.returncode == 0, done.stderr

    def _clients(self) -> list[Client]:
        at, history = self.cluster.bootstrap, self.history
        return [
            ConfluentWriter("confluent", at, TOPIC, history, PARTITIONS, self._rate_hz),
            BundledWriter("bundled", at, TOPIC, history, PARTITIONS, self._rate_hz),
            ConfluentReader("reader-1", at, TOPIC, history, "readers"),
            ConfluentReader("reader-2", at, TOPIC, history, "readers", life_s=11.0),
            BundledReader("reader-3", at, TOPIC, history, "bundled-readers"),
        ]

    def _transformers(self) -> list[Transformer]:
        """Two members a group, so that partitions change hands while transactions are open."""
        made: list[Transformer] = []
        for topic, kind in self._copies.items():
            for number in (1, 2):
                draw = random.Random(self._draw.randrange(1 << 31))
                made.append(kind(f"{topic}-{number}", self.cluster.bootstrap, TOPIC, topic, self.history, topic, draw))
        return made

    # -- faults ----------------------------------------------------------------------------------------------------

    def _suffer(self, fault: Fault) -> None:
        before, began = self.history.acknowledged, time.monotonic()
        lasts_s = self._draw.uniform(*self._fault_s)
        try:
            fault.begin()
            self._say(f"{fault.kind}: {fault.details}")
            self.figures.faults[fault.kind] = self.figures.faults.get(fault.kind, 0) + 1
            if fault.goes_on:
                self._acknowledged(PROGRESS, f"during {fault.kind} ({fault.details})", PROGRESS_S_MAX)
                self.figures.slowest_progress_s = max(self.figures.slowest_progress_s, time.monotonic() - began)
            _sleep_until(began + lasts_s)
            fault.end()
            healed = time.monotonic()
            self.cluster.wait_for(self._is_whole, f"the cluster to be whole after {fault.kind} ({fault.details})", timeout_s=WHOLE_S_MAX)
            recovery_s = time.monotonic() - healed
            self.figures.slowest_recovery_s = max(self.figures.slowest_recovery_s, recovery_s)
            self._acknowledged(PROGRESS, f"after {fault.kind} ({fault.details})", PROGRESS_S_MAX)
            self._say(f"   whole again after {recovery_s:.1f} s; {self.history.acknowledged - before:,} acknowledged meanwhile")
        except (ClusterError, AssertionError) as error:
            self.figures.problems.append(f"{fault.kind} ({fault.details}): {error}")
            return
        self._tell_notes()
        self.figures.problems += self.history.violations[:10]
        time.sleep(self._draw.uniform(*CALM_S))

    def _tell_notes(self) -> None:
        """What the clients said since the last time."""
        notes, self._reported_notes = self.history.notes[self._reported_notes :], len(self.history.notes)
        for moment, line in notes:
            self._say(f"   {time.monotonic() - moment:.1f} s ago: {line}")
        self.figures.producer_epochs += sum("bumped epoch" in line for _, line in notes)

    def _acknowledged(self, count: int, when: str, timeout_s: float) -> None:
        goal = self.history.acknowledged + count
        self.cluster.wait_for(lambda: self.history.acknowledged >= goal, f"{count} acknowledgements {when}", timeout_s=timeout_s)

    def _is_whole(self) -> bool:
        for node in self.cluster.nodes.values():
            if not node.running:
                raise ClusterError(f"node {node.node_id} has ended\n{self.cluster.logs()}")
            answer = self.cluster.metadata_of(node.node_id, [TOPIC])
            if len(answer.brokers) != len(self.cluster.nodes) or len(answer.topics[0].partitions) != PARTITIONS:
                return False
            if any(p.leader_id < 0 or len(p.isr_nodes) < len(p.replica_nodes) for p in answer.topics[0].partitions):
                return False
        return True

    # -- the end ---------------------------------------------------------------------------------------------------

    def _judge(self, clients: list[Client], transformers: list[Transformer]) -> None:
        figures, history = self.figures, self.history
        for client in clients:
            try:
                client.join(150)
            except AssertionError as error:
                figures.problems.append(str(error))
        try:
            read_everything(self.cluster.bootstrap, TOPIC, history, partitions=range(PARTITIONS), timeout_s=120, alive=self.cluster.logs)
        except AssertionError as error:
            figures.problems.append(str(error))
        self._judge_copies(transformers)
        figures.problems += history.violations[:10]
        for kind, found in anomalies(history).items():
            figures.problems.append(f"{kind} ({len(found)}): {'; '.join(found[:5])}")
        figures.sent, figures.acknowledged = len(history.sends), history.acknowledged
        figures.unknown = sum(send.outcome.value == "info" for send in history.sends)
        figures.polled = sum(len(poll.records) for poll in history.polls)
        figures.longest_silence_s = history.longest_silence_s
        figures.realtime_lag_s = realtime_lag_s(history)
        self._audit()

    def _judge_copies(self, transformers: list[Transformer]) -> None:
        """Once everything is written: the groups come to the end, and the copies are equal to what they were made of."""
        at, figures = self.cluster.bootstrap, self.figures
        late = [wait_until_copied(at, TOPIC, group, PARTITIONS, COPIED_S_MAX) for group in self._copies]
        figures.problems += [problem for problem in late if problem]
        for transformer in transformers:
            transformer.stop()
        try:
            for transformer in transformers:
                transformer.join(90)
            source = committed_values(at, TOPIC, PARTITIONS, 120)
            for topic in self._copies:
                copy = committed_values(at, topic, PARTITIONS, 120)
                figures.problems += differences(source, copy, topic)
                figures.copied += sum(map(len, copy.values()))
        except AssertionError as error:
            figures.problems.append(str(error))
        figures.transactions = sum(transformer.committed for transformer in transformers)
        figures.transactions_aborted = sum(transformer.aborted for transformer in transformers)
        self._tell_notes()

    def _audit(self) -> None:
        """The last word: the directories of the brokers, after a clean stop."""
        for node_id in sorted(self.cluster.nodes):
            if self.cluster.nodes[node_id].running:
                status = self.cluster.terminate(node_id)
                if status != 0:
                    self.figures.problems.append(f"node {node_id} stopped with status {status}")
        directories = [str(node.log_dir) for node in self.cluster.nodes.values()]
        for value, places in twice(self.history).items():
            self.figures.problems.append(f"{value} was written by {' and by '.join(writer_of(directories[0], *place) for place in places)}")
        report = reporting.build(run_audit(directories, LocalEngine(1), AuditOptions(level="records")))
        self.figures.audit = report["outcome"]
        if report["outcome"] != "PASS":
            self.figures.problems.append(f"audit {report['outcome']}: {report['findings'][:5]}")


def writer_of(log_dir: str, partition: int, offset: int) -> str:
    """Which producer wrote what stands there: copies of different producer epochs are a client's doing."""
    for path in sorted(Path(log_dir, f"{TOPIC}-{partition}").glob("*.log")):
        for batch in iterate_batches(memoryview(path.read_bytes())):
            if batch.base_offset <= offset < batch.next_offset:
                sequence = batch.base_sequence + offset - batch.base_offset
                return f"producer {batch.producer_id}, epoch {batch.producer_epoch}, sequence {sequence}"
    return "nobody that is known"


#: Beside the embedded defaults: brokers of a test bed that elects quickly; a producer id lives as long as the run.
PROPERTIES = {"unclean.leader.election.enable": "false", "min.insync.replicas": "2", "group.min.session.timeout.ms": "1000"}
#: Short, so that a follower that stalls makes the requests between brokers and the coordinators' appends run into it.
PROPERTIES["request.timeout.ms"] = "2000"
#: A follower whose connection is silently dead makes another one well within the time to become whole again.
PROPERTIES["replica.socket.timeout.ms"] = "5000"


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def run(
    *,
    seed: int,
    nodes: int,
    directory: Path,
    say: Say,
    plan: Sequence[str] | None = None,
    seconds: float = 0.0,
    fault_s: tuple[float, float] = (1.0, 6.0),
    rate_hz: float = 150.0,
    copies: Mapping[str, type[Transformer]] = COPIES,
) -> Figures:
    """Play a plan of faults, or draw faults for `seconds`. `copies`: topic -> kind of the consume-transform-produce workers."""
    chosen = Run(seed=seed, nodes=nodes, directory=directory, say=say, fault_s=fault_s, rate_hz=rate_hz, copies=copies)
    return chosen.play(plan, seconds)


@click.command()
@click.option("--minutes", type=float, default=5.0, show_default=True)
@click.option("--nodes", type=click.Choice(["3", "5"]), default="3", show_default=True, help="Combined brokers and controllers.")
@click.option("--seed", type=int, default=None, help="Seed of the schedule; a random one is chosen and printed by default.")
@click.option("--fault", "plan", multiple=True, help="Only these faults, in this order.")
@click.option("--rate", "rate_hz", type=float, default=150.0, show_default=True, help="Records a second and writer.")
@click.option("--keep", is_flag=True, help="Keep the directories, and print where.")
def main(minutes: float, nodes: str, seed: int | None, plan: tuple[str, ...], rate_hz: float, keep: bool) -> None:
    """Break a cluster for some minutes; exit status 0 when nothing acknowledged was lost and every rule held."""
    chosen = random.randrange(1 << 31) if seed is None else seed
    began = time.monotonic()

    def say(line: str) -> None:
        click.echo(f"{time.monotonic() - began:7.1f} s  {line}")

    directory = Path(tempfile.mkdtemp(prefix="minikafka-chaos-"))
    click.echo(f"seed {chosen}, {nodes} nodes, {directory if keep else 'directories are removed at the end'}")
    try:
        figures = run(seed=chosen, nodes=int(nodes), directory=directory, say=say, plan=plan or None, seconds=minutes * 60, rate_hz=rate_hz)
    finally:
        if not keep:
            import shutil

            shutil.rmtree(directory, ignore_errors=True)
    click.echo(json.dumps(asdict(figures), indent=2))
    click.echo("FAIL" if figures.problems else "PASS")
    sys.exit(1 if figures.problems else 0)


if __name__ == "__main__":
    main()
