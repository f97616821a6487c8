"""The chapters of `minikafka demo`: start a cluster, load it, use it, break it, heal it and audit it."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import importlib.util
import json
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from minikafka.cli.demo_discarded import LeftLogs
from minikafka.cli.last_words import full, last_error
from minikafka.cli.reasons import reason
from minikafka.client.admin import Admin
from minikafka.client.consumer import Consumer
from minikafka.client.errors import ClientError
from minikafka.client.producer import Producer
from minikafka.counted import counted
from minikafka.net.tasks import within
from minikafka.testing.cluster import ClusterError, ProcessCluster
from minikafka.testing.leftovers import TemporaryDirectory

TOPIC = "flights"
PARTITIONS = 6
WRITE_INTERVAL_S = 0.002
ORPHANS = 5


def play(rows: int, engine: str, *, keep: bool, seed: int | None) -> bool:
    """Run the whole demo. True if nothing was lost and the audit passed."""
    story = Story(Console(highlight=False, soft_wrap=True))
    temporary = TemporaryDirectory("minikafka-demo-")
    demo = Demo(story, temporary.path, rows, engine, seed)
    try:
        return demo.run()
    except (ClusterError, ClientError, OSError) as error:
        for line in (*demo.ended, full(temporary.path)):
            if line:
                story.fail(line)
        story.fail(reason(error))
        return False
    except KeyboardInterrupt:
        story.fail("interrupted")
        raise
    finally:
        if keep:
            temporary.keep()
            story.say(f"directories kept in {temporary.path}")
        else:
            temporary.remove()


class Story:
    """Prints numbered chapters, each line with the seconds since the demo began."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._chapter = 0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._started

    def chapter(self, title: str) -> None:
        """Begin the next chapter."""
        self._chapter += 1
        self._console.print(f"\n[bold cyan]{self._chapter}. {title}[/]")

    def say(self, line: str) -> None:
        """Print a line of narration."""
        self._console.print(f"[dim]{self.elapsed_s:6.1f}s[/]  {line}")

    def fail(self, line: str) -> None:
        """Print a line about a failure."""
        self._console.print(f"[dim]{self.elapsed_s:6.1f}s[/]  [bold red]{line}[/]")

    @contextlib.contextmanager
    def working(self, what: str) -> Iterator[Callable[[str], None]]:
        """Show a spinner on a terminal, a plain line elsewhere. The yielded callback changes its text."""
        if self._console.is_terminal:
            with self._console.status(what) as status:
                yield status.update
        else:
            self.say(what)
            yield lambda text: None


class Engine:
    """The engine for the load and the audit. Spark takes seconds to start, so it starts while the brokers do."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.title = ""
        self.note = ""
        self._pool = ThreadPoolExecutor(1)
        self._opening = self._pool.submit(self._open)

    def _open(self) -> Any:
        from minikafka.spark.engine_local import LocalEngine
        from minikafka.spark.engine_spark import SparkEngine
        from minikafka.spark.spark_master import SparkUnavailable

        if self._name != "local":
            try:
                driver = SparkEngine(master="local[*]")
            except SparkUnavailable as error:
                if self._name == "spark":
                    raise ClusterError(f"Spark cannot run here: {error}") from error
                self.note = f"Spark cannot run here: {error}. The local engine loads and audits, with the same checks"
            else:
                self.title = "PySpark"
                return driver
        self.title = "the local engine"
        return LocalEngine(0)

    def driver(self) -> Any:
        """The engine, once it has started. Blocks until then."""
        return self._opening.result()

    def close(self) -> None:
        """Stop it."""
        with contextlib.suppress(Exception):
            self._opening.result().close()
        self._pool.shutdown(wait=False)


@dataclass(slots=True)
class Ledger:
    """What the producer sent and what the brokers acknowledged: each acknowledged value has a partition and an offset."""

    acknowledged: dict[str, tuple[int, int]] = field(default_factory=dict)
    retried: int = 0
    longest_gap_s: float = 0.0


class Demo:
    """The steps of the demo, in order."""

    def __init__(self, story: Story, directory: Path, rows: int, engine: str, seed: int | None) -> None:
        self._story = story
        self._directory = directory
        self._rows = rows
        self._engine_name = engine
        self._random = random.Random(seed)
        self._ledger = Ledger()
        self._loaded = 0
        #: Why brokers have ended that nobody stopped, once the demo has failed.
        self.ended: list[str] = []

    def run(self) -> bool:
        """Run every chapter. True if all data are there and the audit passes."""
        story = self._story
        story.chapter("Three brokers")
        engine = Engine(self._engine_name)
        cluster = ProcessCluster(3, controllers=3, directory=self._directory / "cluster")
        try:
            started = time.monotonic()
            with story.working("formatting the storage"):
                cluster.format()
            formatted = time.monotonic()
            with story.working("starting the brokers"):
                cluster.start()
            ready_s = time.monotonic() - formatted
            story.say(f"storage formatted in {formatted - started:.2f} s, three brokers ready in [bold]{ready_s:.2f} s[/]")
            for node in cluster.nodes.values():
                pid = node.process.pid if node.process else 0
                story.say(f"   node {node.node_id}  127.0.0.1:{node.port}  {node.roles:<18}  pid {pid}")
            asyncio.run(self._create(cluster))
            with story.working("waiting for the load and audit engine"):
                driver = engine.driver()
            if engine.note:
                story.say(engine.note)
            self._load(cluster, engine, driver)
            complete = asyncio.run(self._break_and_heal(cluster))
            story.chapter("The proof")
            with story.working("stopping the brokers cleanly"):
                for node_id in sorted(cluster.nodes, reverse=True):
                    cluster.terminate(node_id)
            story.say("brokers stopped cleanly")
            verdict = self._audit(cluster, engine, driver)
        except Exception:
            self.ended = [
                f"broker {node.node_id} has ended: {last_error(node.output_path)}" for node in cluster.nodes.values() if node.ended
            ]
            raise
        finally:
            cluster.close()
            engine.close()
        passed = complete and verdict
        word = "[bold green]PASS[/]" if passed else "[bold red]FAIL[/]"
        acknowledged = counted(self._loaded + len(self._ledger.acknowledged), "acknowledged record")
        story.say(f"{word}  {acknowledged}, {story.elapsed_s:.0f} s in all")
        return passed

    # -- chapters --------------------------------------------------------------------------------------------------

    async def _create(self, cluster: ProcessCluster) -> None:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        self._story.say(f"topic [bold]{TOPIC}[/]: {PARTITIONS} partitions, replication factor 3, min.insync.replicas 2")

    def _load(self, cluster: ProcessCluster, engine: Engine, driver: Any) -> None:
        story = self._story
        story.chapter("Bulk load")
        table = self._directory / "flights.csv"
        self._write_table(table)
        story.say(f"a table of {counted(self._rows, 'row')}, {table.stat().st_size / 1e6:.1f} MB of CSV")
        if importlib.util.find_spec("pyarrow") is None:
            self._loaded = asyncio.run(self._produce_table(cluster, table))
            return
        from minikafka.spark.load import LoadOptions, run_load

        options = LoadOptions(bootstrap=cluster.bootstrap, topic=TOPIC, key="flight", compression="lz4")
        with story.working(f"loading it with {engine.title}"):
            report = run_load(str(table), options, driver)
        self._loaded = report.acknowledged
        story.say(
            f"{counted(report.acknowledged, 'record')} acknowledged by every in-sync replica in {report.seconds:.1f} s"
            f" ({counted(round(report.rows_per_second), 'row')}/s, {counted(report.tasks, 'task')}, {engine.title})"
        )

    async def _produce_table(self, cluster: ProcessCluster, table: Path) -> int:
        """Write the rows one by one: `minikafka load` needs pyarrow, which is optional."""
        story = self._story
        story.say("pyarrow is not installed: an ordinary producer writes the rows, where minikafka load would write whole batches")
        began = time.monotonic()
        with story.working("writing the rows"), table.open(newline="") as file:
            async with Producer(cluster.bootstrap, acks="all", compression="lz4") as producer:
                futures = []
                for row in csv.DictReader(file):
                    futures.append(await producer.send(TOPIC, json.dumps(row).encode(), key=row["flight"].encode()))
                await producer.flush()
        count = len([future.result() for future in futures])
        seconds = time.monotonic() - began
        rate = counted(round(count / seconds), "row")
        story.say(f"{counted(count, 'record')} acknowledged by every in-sync replica in {seconds:.1f} s ({rate}/s)")
        return count

    def _write_table(self, path: Path) -> None:
        carriers = ["AA", "B6", "DL", "EV", "UA", "US", "WN"]
        airports = ["ATL", "BOS", "DEN", "EWR", "JFK", "LAX", "LGA", "MIA", "ORD", "SFO"]
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["flight", "carrier", "origin", "dest", "dep_delay", "distance"])
            draw = self._random
            for _ in range(self._rows):
                origin, destination = draw.sample(airports, 2)
                writer.writerow(
                    [
                        f"N{draw.randrange(100, 9999)}",
                        draw.choice(carriers),
                        origin,
                        destination,
                        draw.randrange(-10, 240),
                        draw.randrange(90, 2700),
                    ]
                )

    async def _break_and_heal(self, cluster: ProcessCluster) -> bool:
        story = self._story
        story.chapter("Produce, and kill the leader")
        async with Admin(cluster.bootstrap) as admin:
            victim, partition = await self._choose_victim(admin, cluster.active_controller())
            before = await self._describe(admin, partition)
            story.say(f"{TOPIC}-{partition}: leader [bold]{before.leader}[/], epoch {before.leader_epoch}, in sync {before.isr}")
            stop = asyncio.Event()
            writer = asyncio.create_task(self._write(cluster, stop))
            await self._until(lambda: len(self._ledger.acknowledged) >= 200, "the first 200 acknowledgments")
            await self._orphan_records(cluster, victim, partition)
            killed = time.monotonic()
            cluster.kill(victim)
            story.say(f"[bold red]SIGKILL[/] to node {victim}, the leader, while a producer writes with acks=all")
            after = await self._elected(admin, partition, before.leader_epoch)
            story.say(
                f"{TOPIC}-{partition}: leader [bold]{after.leader}[/], epoch {after.leader_epoch}, in sync {after.isr}"
                f"  ({time.monotonic() - killed:.2f} s after the kill)"
            )
            count = len(self._ledger.acknowledged)
            await self._until(lambda: len(self._ledger.acknowledged) >= count + 200, "writes to resume")
            story.say(f"writes resumed: the longest pause between two acknowledgments was {self._ledger.longest_gap_s:.2f} s")
            story.chapter("The dead broker comes back")
            left = await asyncio.to_thread(LeftLogs, cluster.nodes[victim].log_dir, TOPIC)
            with story.working(f"starting node {victim} again"):
                restarted = time.monotonic()
                await asyncio.to_thread(cluster.restart, victim)
            story.say(f"node {victim} is a live broker again after {time.monotonic() - restarted:.2f} s")
            healed = await self._in_sync(admin, partition, 3)
            story.say(f"{TOPIC}-{partition}: leader {healed.leader}, epoch {healed.leader_epoch}, in sync [bold]{healed.isr}[/]")
            for line in self._truncations(cluster, victim):
                story.say(f"   {line}")
                if which := left.explain(line):
                    story.say(f"   {which}")
            await self._lose_the_controller(cluster, admin)
            stop.set()
            await writer
        return await self._read_back(cluster)

    async def _choose_victim(self, admin: Admin, active: int) -> tuple[int, int]:
        """A partition whose leader is not the active controller; the controller is killed in a later chapter."""
        topic = (await admin.describe_topics([TOPIC]))[0]
        for partition in topic.partitions:
            if partition.leader not in (-1, active):
                return partition.leader, partition.index
        raise ClusterError("every partition is led by the active controller")

    async def _lose_the_controller(self, cluster: ProcessCluster, admin: Admin) -> None:
        story = self._story
        story.chapter("Kill the active controller")
        active = cluster.active_controller()
        led = sum(p.leader == active for p in await self._partitions(admin))
        count = len(self._ledger.acknowledged)
        killed = time.monotonic()
        cluster.kill(active)
        story.say(f"[bold red]SIGKILL[/] to node {active}, the active controller, which leads {led} of {PARTITIONS} partitions")
        await self._until(lambda: cluster.active_controller() not in (-1, active), "another active controller")
        next_one = cluster.active_controller()
        story.say(f"node [bold]{next_one}[/] is the active controller  ({time.monotonic() - killed:.2f} s after the kill)")
        await self._all(admin, lambda p: p.leader not in (-1, active), "leaders for all partitions")
        story.say(f"every partition has a live leader  ({time.monotonic() - killed:.2f} s after the kill)")
        await self._until(lambda: len(self._ledger.acknowledged) >= count + 200, "writes to resume")
        with story.working(f"starting node {active} again"):
            await asyncio.to_thread(cluster.restart, active)
        await self._all(admin, lambda p: len(p.isr) == 3, "three in-sync replicas everywhere")
        story.say(f"node {active} is back: three in-sync replicas of every partition")

    async def _orphan_records(self, cluster: ProcessCluster, victim: int, partition: int) -> None:
        """Write records with acks=1 while the followers are paused, so that only the leader has them."""
        followers = [node_id for node_id in cluster.nodes if node_id != victim]
        producer = Producer(cluster.bootstrap, acks=1, enable_idempotence=False, linger_ms=0)
        await producer.start()
        try:
            await (await producer.send(TOPIC, b"warm-up", partition=partition))
            for node_id in followers:
                cluster.pause(node_id)
            # This record answers the fetches that the paused followers still have waiting at the leader. They send no new ones.
            await within(1.0, await producer.send(TOPIC, b"warm-up", partition=partition))
            futures = [await producer.send(TOPIC, f"orphan-{n}".encode(), partition=partition) for n in range(ORPHANS)]
            await within(1.0, asyncio.gather(*futures))
            cluster.pause(victim)
        except TimeoutError:
            self._story.say("the leader could not take unreplicated records this time")
        finally:
            for node_id in followers:
                cluster.resume(node_id)
            await producer.close(timeout_ms=0)
        self._story.say(f"{ORPHANS} records written with acks=1 while the followers were paused: only the leader has them")

    async def _write(self, cluster: ProcessCluster, stop: asyncio.Event) -> None:
        last = time.monotonic()
        ledger = self._ledger

        def acknowledged(value: str, future: asyncio.Future[object]) -> None:
            nonlocal last
            if future.cancelled() or future.exception() is not None:
                ledger.retried += 1
                return
            metadata = future.result()
            ledger.acknowledged[value] = (metadata.partition, metadata.offset)  # type: ignore[attr-defined]
            now = time.monotonic()
            ledger.longest_gap_s = max(ledger.longest_gap_s, now - last)
            last = now

        number = 0
        # Ctrl-C ends the brokers, too: then nothing is waited for.
        async with Producer(cluster.bootstrap, acks="all", linger_ms=2) as producer:
            while not stop.is_set():
                value = f"live-{number}"
                number += 1
                future = await producer.send(TOPIC, value.encode(), key=str(number % 50).encode())
                future.add_done_callback(partial(acknowledged, value))
                await asyncio.sleep(WRITE_INTERVAL_S)
            await producer.flush()

    async def _read_back(self, cluster: ProcessCluster) -> bool:
        story = self._story
        story.chapter("Read everything back")
        expected = self._ledger.acknowledged
        consumer = Consumer(cluster.bootstrap, group_id="demo", auto_offset_reset="earliest")
        await consumer.start()
        found: dict[str, tuple[int, int]] = {}
        loaded, total, orphans, warm_ups = 0, 0, 0, 0
        try:
            await consumer.subscribe([TOPIC])
            ends = await self._end_offsets(cluster)
            goal = sum(ends.values())
            reached: dict[int, int] = {}
            with story.working("consuming everything in a group") as update:
                while any(reached.get(index, 0) < end for index, end in ends.items()):
                    for record in await consumer.poll(timeout_ms=1000, records_max=5000):
                        total += 1
                        reached[record.partition] = record.offset + 1
                        value = bytes(record.value or b"").decode(errors="replace")
                        if value.startswith("live-"):
                            found[value] = (record.partition, record.offset)
                        elif value.startswith("orphan-"):
                            orphans += 1
                        elif value == "warm-up":
                            warm_ups += 1
                        else:
                            loaded += 1
                    update(f"consumed {total:,} of {goal:,}")
        finally:
            await consumer.close()
        missing = [value for value, place in expected.items() if found.get(value) != place]
        unreplicated = f"{orphans} of the {ORPHANS} unreplicated ones"
        # Those that prepare the unreplicated ones are not part of the story.
        read = total - warm_ups
        story.say(f"{counted(read, 'record')} read: {loaded:,} loaded, {len(found):,} written live, {unreplicated}")
        if twice := read - loaded - len(found) - orphans:
            story.fail(f"{counted(twice, 'live record')} read twice")
            return False
        if missing or loaded != self._loaded:
            story.fail(f"{counted(len(missing), 'acknowledged record')} missing or moved, {self._loaded - loaded} loaded ones missing")
            return False
        story.say(
            f"[green]no acknowledged record is missing[/]: all {len(expected):,} live and {loaded:,} loaded"
            " records are at the offsets that were acknowledged"
        )
        return True

    async def _end_offsets(self, cluster: ProcessCluster) -> dict[int, int]:
        async with Admin(cluster.bootstrap) as admin:
            offsets = await admin.list_offsets({(TOPIC, index): "latest" for index in range(PARTITIONS)})
        return {index: offsets[(TOPIC, index)].offset for index in range(PARTITIONS)}

    def _audit(self, cluster: ProcessCluster, engine: Engine, driver: Any) -> bool:
        from minikafka.spark import report as reporting
        from minikafka.spark.audit import run_audit

        story = self._story
        directories = [str(node.log_dir) for node in cluster.nodes.values()]
        with story.working(f"auditing three log directories with {engine.title}"):
            report = reporting.build(run_audit(directories, driver))
        for finding in report["findings"][:10]:
            show = story.fail if finding["level"] == "error" else story.say
            level = "note, not an error:" if finding["level"] == "note" else finding["level"]
            show(f"{level} {finding['check']} {reporting.where(finding)}: {finding['message']}")
        story.say(reporting.one_line(report))
        return bool(report["exit_code"] == 0)

    # -- observing -------------------------------------------------------------------------------------------------

    async def _partitions(self, admin: Admin):  # type: ignore[no-untyped-def]
        return (await admin.describe_topics([TOPIC]))[0].partitions

    async def _describe(self, admin: Admin, partition: int):  # type: ignore[no-untyped-def]
        return next(p for p in await self._partitions(admin) if p.index == partition)

    async def _elected(self, admin: Admin, partition: int, epoch: int):  # type: ignore[no-untyped-def]
        return await self._poll(
            admin, partition, lambda p: p.leader >= 0 and p.leader_epoch > epoch, f"a new leader of {TOPIC}-{partition}"
        )

    async def _in_sync(self, admin: Admin, partition: int, size: int):  # type: ignore[no-untyped-def]
        return await self._poll(admin, partition, lambda p: len(p.isr) == size, f"{size} in-sync replicas of {TOPIC}-{partition}")

    async def _poll(self, admin: Admin, partition: int, condition, what: str):  # type: ignore[no-untyped-def]
        found = await self._all(admin, lambda p: p.index != partition or condition(p), what)
        return next(p for p in found if p.index == partition)

    async def _all(self, admin: Admin, condition, what: str, timeout_s: float = 30):  # type: ignore[no-untyped-def]
        """Wait until the condition holds for every partition, and return the partitions."""
        deadline = time.monotonic() + timeout_s
        with self._story.working(f"waiting for {what}"):
            while time.monotonic() < deadline:
                with contextlib.suppress(ConnectionError, TimeoutError):
                    found = await self._partitions(admin)
                    if all(condition(p) for p in found):
                        return found
                await asyncio.sleep(0.02)
        raise ClusterError(f"waited {timeout_s:g} s for {what}")

    async def _until(self, condition: Callable[[], bool], what: str, timeout_s: float = 30) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise ClusterError(f"waited {timeout_s:g} s for {what}")
            await asyncio.sleep(0.02)

    @staticmethod
    def _truncations(cluster: ProcessCluster, node_id: int) -> list[str]:
        lines = cluster.nodes[node_id].output_path.read_text(errors="replace").splitlines()
        return [line for line in lines if "truncat" in line.lower() and TOPIC in line][-3:]
