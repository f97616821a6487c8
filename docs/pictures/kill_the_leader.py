"""Makes kill-the-leader.svg, the picture of the README, from a real run: `python docs/pictures/kill_the_leader.py [FILE]`.

Three broker processes, a writer, SIGKILL for a leader, the broker back: what `minikafka top` shows, every fifth of a second. An SVG that
plays by itself (CSS keyframes), without script and without anything from elsewhere.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, Group
from rich.text import Text

from minikafka.cli.top import Snapshot, _page, look
from minikafka.client.maintenance import Maintenance
from minikafka.testing import EmbeddedCluster

TARGET = Path(__file__).with_name("kill-the-leader.svg")
WIDTH, HEIGHT, PARTITIONS = 106, 15, 6
TOPIC = "orders"
#: Frames that look alike are one; each is shown as long as it lasted, no longer than this.
SECONDS_A_FRAME_MAX = 1.2
PAUSE_AT_THE_END_S = 2.5
ALIVE, DEAD, BACK = "all is well", "$ minikafka cluster kill {}", "$ minikafka cluster start {}"


class Writer:
    """Writes acks=all until it is told to end; counts what was acknowledged and what failed."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.acknowledged = self.failed = 0
        self._producer = confluent_kafka.Producer(cluster.client_config(**{"acks": "all", "linger.ms": 5, "enable.idempotence": True}))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._ended.wait(0.01):
            for _ in range(20):
                self._producer.produce(TOPIC, b"x" * 100, partition=number % PARTITIONS, on_delivery=self._delivered)
                number += 1
            self._producer.poll(0)
        self._producer.flush(20)

    def _delivered(self, error: object, _: object) -> None:
        self.failed += error is not None
        self.acknowledged += error is None

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


async def play(cluster: EmbeddedCluster, writer: Writer) -> list[tuple[float, str]]:
    """(seconds shown, SVG) of each frame."""
    frames: list[tuple[float, str]] = []
    victim = cluster.leader(TOPIC, 0)
    word = ALIVE
    before: Snapshot | None = None

    async def watch(until: Callable[[Snapshot], bool], at_least_s: float) -> None:
        nonlocal before
        begun = time.monotonic()
        while True:
            try:
                snapshot = await asyncio.wait_for(look(admin, {TOPIC}, with_internal=False, before=before), 2)
            except Exception:
                # The moment at which a broker dies.
                await asyncio.sleep(0.02)
                continue
            frames.append((time.monotonic(), picture(snapshot, word, writer)))
            before = snapshot
            if until(snapshot) and time.monotonic() - begun > at_least_s:
                return
            await asyncio.sleep(0.2)

    async with Maintenance(cluster.bootstrap_servers, client_id="picture") as admin:
        await watch(lambda _: True, 1.5)
        await asyncio.to_thread(cluster.broker(victim).kill)
        word = DEAD.format(victim)
        await watch(lambda seen: all(row["leader"] != victim and victim not in row["isr"] for row in seen.rows), 2.0)
        await asyncio.to_thread(cluster.broker(victim).start)
        word = BACK.format(victim)
        await watch(lambda seen: all(len(row["isr"]) == len(row["replicas"]) for row in seen.rows), 2.0)
    ends = [moment for moment, _ in frames[1:]] + [frames[-1][0] + PAUSE_AT_THE_END_S]
    return [(end - moment, svg) for (moment, svg), end in zip(frames, ends, strict=True)]


def picture(snapshot: Snapshot, word: str, writer: Writer) -> str:
    """One screen."""
    console = Console(record=True, width=WIDTH, height=HEIGHT, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    style = "bold red" if "kill" in word else "bold green"
    line = Text.assemble((word, style), f"   acknowledged {writer.acknowledged:,}, failed {writer.failed}")
    console.print(Group(line, Text(), _page(snapshot, HEIGHT)))
    return console.export_svg(title="minikafka top", code_format=CONSOLE_SVG_FORMAT, unique_id="minikafka")


def animated(frames: list[tuple[float, str]]) -> str:
    """All frames in one SVG, one after the other, for ever."""
    shown: list[tuple[float, str]] = []
    for seconds, svg in frames:
        drawn = screen(svg)
        alike = bool(shown) and drawn == shown[-1][1]
        lasted = seconds + (shown.pop()[0] if alike else 0.0)
        shown.append((min(lasted, SECONDS_A_FRAME_MAX), drawn))
    shown[-1] = (PAUSE_AT_THE_END_S, shown[-1][1])
    whole = sum(seconds for seconds, _ in shown)
    styles, groups, at = [], [], 0.0
    for number, (seconds, drawn) in enumerate(shown):
        begin, at = 100 * at / whole, at + seconds
        end = 100 * at / whole
        hidden_before = f"0%{{visibility:hidden}}{begin:.2f}%" if number else "0%"
        styles.append(f"@keyframes f{number}{{{hidden_before}{{visibility:visible}}{end:.2f}%,100%{{visibility:hidden}}}}")
        styles.append(f"#f{number}{{visibility:hidden;animation:f{number} {whole:.2f}s step-end infinite}}")
        groups.append(f'<g id="f{number}">{drawn}</g>')
    first = re.sub(r"@font-face \{.*?\}\s*", "", frames[0][1], flags=re.DOTALL)
    found = SCREEN.search(first)
    assert found is not None
    body = first[: found.start()] + "".join(groups) + first[found.end() :]
    return body.replace("</style>", "\n".join(styles) + "\n    </style>", 1)


SCREEN = re.compile(r'<g class="minikafka-matrix">.*?</g>', re.DOTALL)


def screen(svg: str) -> str:
    """The text of a picture, with its colours: their classes are numbered anew in each."""
    found = SCREEN.search(svg)
    assert found is not None
    colours = dict(re.findall(r"\.(minikafka-r\d+) \{ ([^}]*) \}", svg))
    written = re.sub(r"<text [^>]*>(&#160;|\s)*</text>", "", found[0])
    return re.sub(r'class="(minikafka-r\d+)"', lambda match: f'style="{colours[match[1]].strip()}"', written)


def main() -> None:
    """Run and write."""
    with EmbeddedCluster(3, mode="process", topics={TOPIC: {"partitions": PARTITIONS}}) as cluster:
        writer = Writer(cluster)
        frames = asyncio.run(play(cluster, writer))
        writer.end()
        assert writer.failed == 0, f"{writer.failed} records were not acknowledged"
        cluster.wait_healthy()
        cluster.audit()
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    target.write_text(animated(frames))
    print(f"{target}: {target.stat().st_size / 1000:.0f} kB, {writer.acknowledged:,} records acknowledged")


if __name__ == "__main__":
    main()
