"""`minikafka top`: a live view of partitions, leaders, epochs, in-sync sets, lag and rates."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import emit, run
from minikafka.cli.session import operator_command
from minikafka.net.tasks import within

if TYPE_CHECKING:
    from rich.table import Table

    from minikafka.client.maintenance import Maintenance

GROUPS_SHOWN_MAX = 8
LOOK_TIMEOUT_S = 5.0
PLAIN_WIDTH = 160
COLUMNS = ["topic", "partition", "leader", "leader_epoch", "replicas", "isr", "log_start_offset", "log_end_offset", "rate", "size", "lag"]


@dataclass(slots=True)
class Snapshot:
    """The cluster at one moment. `lags`: each replica's lag in records, as its broker reports it, by (topic, partition, node id)."""

    taken_s: float
    controller: int
    brokers: list[int]
    rows: list[dict[str, Any]]
    groups: list[dict[str, Any]] = field(default_factory=list)


@operator_command("top")
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@click.option("--interval", "interval_s", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Seconds between two updates.")
@click.option("--iterations", "-n", type=click.IntRange(1), help="Stop after this many updates [default: never; without a terminal 1].")
@click.option("--with-internal", is_flag=True, help="Also show internal topics.")
def top(
    bootstrap: str, topics: tuple[str, ...], interval_s: float, iterations: int | None, with_internal: bool, output: str, traceback: bool
) -> None:
    """Watch partitions, replicas and groups. Press q or Ctrl-C to quit."""
    looks = iterations or (None if sys.stdout.isatty() and output == "table" else 1)
    run(lambda: _watch(bootstrap, set(topics), interval_s, looks, with_internal, output), traceback=traceback)


async def _watch(bootstrap: str, topics: set[str], interval_s: float, looks: int | None, with_internal: bool, output: str) -> None:
    from rich.console import Console
    from rich.live import Live

    from minikafka.client.errors import ClientError
    from minikafka.client.maintenance import Maintenance

    async with Maintenance(bootstrap, client_id="minikafka-top") as admin:
        before: Snapshot | None = None
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = PLAIN_WIDTH
        is_live = output == "table" and console.is_terminal
        live = Live(console=console, screen=True, auto_refresh=False) if is_live else None
        quit_requested = asyncio.Event()
        if live is not None:
            live.start()
        keys = contextlib.ExitStack()
        try:
            if live is not None:
                keys.enter_context(_keys(quit_requested))
            number = 0
            while looks is None or number < looks:
                if number:
                    with contextlib.suppress(TimeoutError):
                        await within(interval_s, quit_requested.wait())
                if quit_requested.is_set():
                    break
                number += 1
                asking = look(admin, topics, with_internal=with_internal, before=before)
                try:
                    snapshot = await (asking if live is None else within(LOOK_TIMEOUT_S, asking))
                except (ClientError, OSError, TimeoutError) as error:
                    # Keep watching while brokers are down.
                    if live is None or before is None:
                        raise
                    live.update(_page(before, console.height, str(error) or f"no answer within {LOOK_TIMEOUT_S:g} s"), refresh=True)
                    continue
                if output != "table":
                    emit(snapshot.rows, output, COLUMNS)
                elif live is not None:
                    live.update(_page(snapshot, console.height), refresh=True)
                else:
                    console.print(_page(snapshot, 10_000))
                before = snapshot
        finally:
            keys.close()
            if live is not None:
                live.stop()


@contextlib.contextmanager
def _keys(quit_requested: asyncio.Event) -> Iterator[None]:
    """Within this context a terminal delivers each key at once, and q sets the event."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def pressed() -> None:
        keys = os.read(descriptor, 64)
        if not keys or b"q" in keys.lower():
            quit_requested.set()

    loop.add_reader(descriptor, pressed)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def look(admin: Maintenance, topics: set[str], *, with_internal: bool, before: Snapshot | None) -> Snapshot:
    """Ask the cluster once. Raises ClientError, OSError."""
    response = await admin.cluster.refresh(None)
    chosen = [t for t in response.topics if (t.name in topics if topics else with_internal or not t.is_internal)]
    keys = [(t.name or "", p.partition_index) for t in chosen for p in t.partitions if p.leader_id in admin.cluster.brokers]
    ends, starts = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(keys, "latest")), admin.list_offsets(dict.fromkeys(keys, "earliest"))
    )
    replicas: dict[tuple[str, int, int], tuple[int, int]] = {}
    for node_id, answer in await _disks(admin):
        for result in answer.results:
            for topic in result.topics:
                for p in topic.partitions:
                    replicas[(topic.name, p.partition_index, node_id)] = (p.partition_size, p.offset_lag)
    now = time.monotonic()
    old = {(row["topic"], row["partition"]): row["log_end_offset"] for row in before.rows} if before is not None else {}
    seconds = now - before.taken_s if before is not None else 0.0
    rows = []
    for t in sorted(chosen, key=lambda t: t.name or ""):
        for p in sorted(t.partitions, key=lambda p: p.partition_index):
            key = (t.name or "", p.partition_index)
            end = ends[key].offset if key in ends else None
            rate = None if not seconds or end is None or old.get(key) is None else round((end - old[key]) / seconds, 1)
            rows.append(
                {
                    "topic": key[0], "partition": key[1], "leader": p.leader_id, "leader_epoch": p.leader_epoch,
                    "replicas": list(p.replica_nodes),
                    "isr": list(p.isr_nodes), "log_start_offset": starts[key].offset if key in starts else None, "log_end_offset": end,
                    "rate": rate, "size": max((replicas.get((*key, n), (0, 0))[0] for n in p.replica_nodes), default=0),
                    "lag": {n: replicas[(*key, n)][1] for n in p.replica_nodes if (*key, n) in replicas},
                }
            )  # fmt: skip
    return Snapshot(now, response.controller_id, sorted(admin.cluster.brokers), rows, await _groups(admin))


async def _disks(admin: Maintenance) -> list[tuple[int, Any]]:
    """The answers of the brokers that respond. Brokers that are down are left out."""
    from minikafka.client.errors import ClientError

    async def ask(node_id: int) -> list[tuple[int, Any]]:
        try:
            return list((await admin.describe_log_dirs([node_id])).items())
        except (ClientError, OSError, TimeoutError):
            return []

    return [answer for answers in await asyncio.gather(*map(ask, list(admin.cluster.brokers))) for answer in answers]


async def _groups(admin: Maintenance) -> list[dict[str, Any]]:
    from minikafka.client.errors import ClientError

    found = []
    try:
        listed = await admin.list_groups()
        for name, kind, state in listed[:GROUPS_SHOWN_MAX]:
            if kind not in ("consumer", ""):
                continue
            committed = await admin.group_offsets(name)
            ends = await admin.list_offsets(dict.fromkeys(committed, "latest"))
            found.append(
                {"group": name, "state": state, "lag": sum(max(ends[key].offset - offset, 0) for key, offset in committed.items())}
            )
    except (ClientError, OSError, TimeoutError):
        return found
    return found


def _page(snapshot: Snapshot, height: int, trouble: str = "") -> Table:
    """The table that fills the terminal. `trouble`: why the snapshot could not be updated, or ""."""
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    under = sum(len(row["isr"]) < len(row["replicas"]) for row in snapshot.rows)
    leaderless = sum(row["leader"] < 0 for row in snapshot.rows)
    groups = "   ".join(f"{g['group']} {g['state'].lower()} lag {g['lag']}" for g in snapshot.groups)
    title = (
        f"{time.strftime('%H:%M:%S')}  brokers {', '.join(map(str, snapshot.brokers))}  partitions {len(snapshot.rows)}"
        f"  under-replicated {under}  leaderless {leaderless}"
    )
    if trouble:
        title += f"\n[red]not updated: {escape(trouble)}[/red]"
    table = Table(
        title=title, title_justify="left", title_style="bold", caption=groups or None, caption_justify="left", box=None, pad_edge=False
    )
    for name in ("partition", "leader", "epoch", "start", "end", "records/s", "size"):
        table.add_column(name, justify="left" if name == "partition" else "right")
    table.add_column("replicas (* leader, +lag, ! out of sync)")
    for row in snapshot.rows[: max(height - 6, 5)]:
        replicas = Text()
        for node_id in row["replicas"]:
            lag = row["lag"].get(node_id)
            is_in_sync = node_id in row["isr"]
            is_down = node_id not in snapshot.brokers
            style = "red" if is_down else "bold green" if node_id == row["leader"] else "green" if is_in_sync else "yellow"
            symbol = "*" if node_id == row["leader"] else "" if is_in_sync else "!"
            replicas.append(f"{node_id}{symbol}{f'+{lag}' if lag else ''} ", style)
        rate = "-" if row["rate"] is None else f"{row['rate']:,.0f}"
        leader = Text(str(row["leader"])) if row["leader"] >= 0 else Text("none", "bold red")
        cells = [str(row["leader_epoch"]), _number(row["log_start_offset"]), _number(row["log_end_offset"]), rate, _size(row["size"])]
        table.add_row(f"{row['topic']}-{row['partition']}", leader, *cells, replicas)
    return table


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
