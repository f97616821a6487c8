"""Replication, step by step: the logs of one partition's replicas after each step, as text and as a picture.

    python examples/teaching/stories.py                      list the stories
    python examples/teaching/stories.py log-truncation       play one in the terminal
    python examples/teaching/stories.py --pictures DIR       write the pictures of docs/stories.md

The replicas are the broker's own leader, fetcher and log, driven by hand as in tests/scenarios, without sockets, clock or randomness. In
a notebook, `play(name)` shows the picture and `play(name, steps)` plays steps of your own.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from helpers.batches import batch, marker  # noqa: E402
from helpers.replica_world import BYTES_MAX, WALL_MS, Replica, World  # noqa: E402

from minikafka.storage.producer_state import UNCHECKED  # noqa: E402
from minikafka.wire.batch import iterate_batches  # noqa: E402
from minikafka.wire.errors import ApiError  # noqa: E402

TRANSACTIONAL = 0x10
PRODUCER_ID = 7


@dataclass(frozen=True)
class Story:
    """A story. `steps`: (description, the steps of `tests/helpers/replica_world.py` or of `Stage`)."""

    title: str
    replicas: int
    steps: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Stage(World):
    """The scenarios' world, with transactions and a rule that can be switched off."""

    sequence: int = 0
    last_refusal: str = ""

    def _do_begin(self, count: str) -> None:
        """`begin x2`: the transactional producer writes; the leader does not ask the coordinator whether the transaction is open."""
        self._write_transactional(int(count[1:]), UNCHECKED)

    def _do_verified(self, count: str) -> None:
        """`verified x1`: the same, but the leader first asks the coordinator (KIP-890), which has no open transaction."""
        self._write_transactional(int(count[1:]), None)

    def _write_transactional(self, count: int, verification: Any) -> None:
        values = [f"t{self.sequence + number}".encode() for number in range(count)]
        records = batch(*values, producer=(PRODUCER_ID, 0, self.sequence), attributes=TRANSACTIONAL)
        partition = self.leader.partition
        try:
            partition.append(memoryview(records), -1, WALL_MS, self.now_ms, verification=verification)
            self.sequence += count
            self.last_refusal = ""
        except ApiError as error:
            self.last_refusal = error.code.name

    def _do_abort(self) -> None:
        """Write the coordinator's abort marker."""
        records = marker(PRODUCER_ID, 0, abort=True)
        self.leader.partition.append(memoryview(records), -1, WALL_MS, self.now_ms, origin="coordinator", verification=UNCHECKED)

    def _do_forget(self) -> None:
        """Make the leader forget where its epoch began, as Kafka did before KAFKA-7128 was fixed."""
        leader = self.leader.partition.leader
        assert leader is not None
        leader.epoch_start_offset = 0


STORIES = {
    "log-truncation": Story("A restart must not cut what was acknowledged (KIP-101)", 2, (
        ("Broker 2 leads. Broker 1 copies m0 and learns that it is committed.", "lead 2; produce x1; fetch 1; fetch 1"),
        ("m1 is written, and broker 1 copies it.", "produce x1; fetch 1"),
        ("Broker 1 asks for more, so broker 2 knows that both have m1, and acknowledges it. The answer is lost.", "ask 1"),
        ("Broker 1 dies and comes back. It has forgotten its high watermark. Old Kafka truncated the log there; this log stays whole.",
         "kill 1; start 1"),
        ("Broker 2 dies, too. Broker 1 leads, with every acknowledged record.", "kill 2; lead 1 isr 1"),
        ("Broker 2 comes back and follows. Nothing is lost.", "start 2; sync"),
    )),
    "fast-failover": Story("Two leaders wrote at the same offsets (KIP-279)", 2, (
        ("Broker 1 leads in epoch 0. Both have m0 and m1.", "lead 1; produce x2; sync"),
        ("Broker 1 writes two more with acks=1. Broker 2 does not have them.", "produce x2 acks=1"),
        ("Broker 1 loses the network. Broker 2 leads in epoch 1 and writes at the same offsets.",
         "deaf 1; lead 2 isr 2; produce x3 acks=1"),
        ("Broker 1 is back and leads in epoch 2, by an unclean election. It has no records of epoch 1.", "lead 1 isr 1; hear 1"),
        ("Broker 2 says: my last epoch is 1. The leader answers: my largest epoch up to 1 is 0, and it ends at 4. In broker 2's log"
         " epoch 0 ends at 2: it truncates there and copies.", "sync"),
    )),
    "kafka-7128": Story("Who may join the in-sync replicas: the bug", 3, (
        ("Broker 1 leads; brokers 1 and 2 are in sync. Broker 3 has copied two records.", "lead 1 isr 1 2; produce x2; sync 2; fetch 3"),
        ("Three more are acknowledged. The answer with the new high watermark does not reach broker 2: its own stays at 2.",
         "produce x3; fetch 2; ask 2"),
        ("Broker 2 leads in epoch 1, which begins at offset 5, with its old high watermark.", "lead 2 isr 1 2; kill 1; forget"),
        ("Broker 3 fetches from offset 2. It has reached the high watermark, so the old rule lets it join.", "ask 3; decide"),
        ("Broker 2 dies, and broker 3 is elected, since it counts as in sync. Three acknowledged records are gone.",
         "kill 2; lead 3 isr 3"),
    )),
    "kafka-7128-mended": Story("Who may join the in-sync replicas: the rule", 3, (
        ("As before, up to the moment when broker 2 leads in epoch 1.",
         "lead 1 isr 1 2; produce x2; sync 2; fetch 3; produce x3; fetch 2; ask 2; lead 2 isr 1 2; kill 1"),
        ("Broker 3 fetches from offset 2. It has reached the high watermark, but not offset 5, where the epoch began. It may not join.",
         "ask 3"),
        ("It receives the answer and fetches from 5. Now it may join.", "take 3; fetch 3; decide"),
        ("Broker 2 dies, and broker 3 leads with every acknowledged record.", "kill 2; lead 3 isr 3"),
    )),
    "unclean-election": Story("An unclean election", 3, (
        ("Broker 1 leads. All three have m0 and m1.", "lead 1; produce x2; sync"),
        ("Broker 3 is down and out of sync. Three more records are acknowledged by brokers 1 and 2.",
         "kill 3; lead 1 isr 1 2; produce x3; sync 2"),
        ("Brokers 1 and 2 die. No replica in sync is left, and the partition waits.", "kill 1; kill 2; start 3"),
        ("An administrator allows an unclean election: broker 3 leads and appends from offset 2.", "lead 3 isr 3; produce x2 acks=1"),
        ("Brokers 1 and 2 come back, truncate the records that broker 3 never had, and follow. m2 to m4 were acknowledged and are gone.",
         "start 1; start 2; sync"),
    )),
    "hanging-transaction": Story("A hanging transaction (KIP-664, KIP-890)", 2, (
        ("A producer writes t0 and t1 in a transaction. Readers of committed data stop before them.", "lead 1; begin x2; sync"),
        ("The coordinator aborts it: a marker ends the transaction, and readers go on.", "abort; sync"),
        ("A batch of the same transaction arrives late. The leader does not ask the coordinator, so the batch opens a transaction that"
         " will never end.", "begin x1; sync"),
        ("Other producers write, and their records are committed. Readers of committed data do not see them: the last stable offset is"
         " stuck.", "produce x2; sync"),
        ("`minikafka transactions find-hanging` finds it, and `abort` writes a marker. Readers go on.", "abort; sync"),
        ("With KIP-890 the leader asks the coordinator first, and refuses such a batch.", "verified x1; sync"),
    )),
}  # fmt: skip


@dataclass(frozen=True)
class Record:
    """A box of the picture. Control records have the marker's name as their value."""

    offset: int
    epoch: int
    value: str


@dataclass(frozen=True)
class View:
    """A replica at one moment. `stable` is the last stable offset, -1 if the process is down."""

    broker: int
    state: str
    in_sync: bool
    records: tuple[Record, ...]
    high_watermark: int
    stable: int


@dataclass
class Played:
    """A played story. `frames`: for each step its description, the replicas after it, and the error of a refused write or ""."""

    title: str
    frames: list[tuple[str, list[View], str]] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [self.title]
        for number, (words, views, refused) in enumerate(self.frames, 1):
            lines += ["", f"{number}. {words}"]
            lines += [_line(view) for view in views]
            lines += [f"   refused: {refused}"] if refused else []
        return "\n".join(lines)

    def _repr_svg_(self) -> str:
        return svg(self)


def play(name: str, steps: tuple[tuple[str, str], ...] = (), *, replicas: int = 0) -> Played:
    """Play a story of `STORIES`, or your own steps under your own name. Raises the exception of a failed step."""
    story = STORIES.get(name) or Story(name, replicas or 3, ())
    stage, played = Stage(replicas or story.replicas), Played(story.title)
    failures: list[BaseException] = []

    def go() -> None:
        try:
            for words, text in steps or story.steps:
                stage.play(text)
                views = [_view(stage, replica) for replica in stage.replicas.values()]
                played.frames.append((words, views, stage.last_refusal))
        except BaseException as error:
            failures.append(error)

    # In a thread of its own: a notebook already runs an event loop in this one.
    thread = threading.Thread(target=go)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    played.acknowledged = list(stage.acked)
    return played


def _view(stage: Stage, replica: Replica) -> View:
    registration = stage.registration
    assert registration is not None
    if not replica.is_running:
        state = "down"
    elif replica.partition.leader is not None:
        state = f"leads in {replica.partition.leader_epoch}"
    else:
        state = f"follows in {replica.partition.leader_epoch}"
    log = replica.log
    stable = log.last_stable_offset if replica.is_running else -1
    return View(replica.broker_id, state, replica.broker_id in registration.isr, tuple(_records(replica)), log.high_watermark, stable)


def _records(replica: Replica) -> list[Record]:
    log, found = replica.log, []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, BYTES_MAX, end_offset=log.log_end_offset).slice.read()
        for one in iterate_batches(memoryview(data)):
            for record in one.records():
                value = "abort" if one.is_control else (record.value or b"").decode()
                found.append(Record(record.offset, one.partition_leader_epoch, value))
            offset = one.next_offset
    return found


def _line(view: View) -> str:
    records = " ".join(f"{record.value}@{record.epoch}" for record in view.records)
    sync_state = "in sync" if view.in_sync else ""
    hidden = f", stable {view.stable}" if 0 <= view.stable < view.high_watermark else ""
    return f"   broker {view.broker} {view.state:<13} {sync_state:<8} hw {view.high_watermark}{hidden}  [{records}]"


WIDTH, LEFT, BOX, HEIGHT, GAP = 860, 210, 52, 26, 34
#: A colour for each leader epoch; the boxes also show the epoch as text.
COLOURS = ("#7fb3d5", "#f5b971", "#a3d9a5", "#d7a9e3")
STYLE = (
    "text{font:13px ui-sans-serif,system-ui,sans-serif;fill:#222}.words{font-weight:600}.small{font-size:11px;fill:#555}"
    ".down{opacity:.35}.bad{fill:#b00020;font-weight:600}"
)


def svg(played: Played) -> str:
    """The picture: under each step, one row of boxes for each replica."""
    parts: list[str] = []
    top = 34
    for number, (words, views, refused) in enumerate(played.frames, 1):
        for line in _wrapped(f"{number}. {words}"):
            parts.append(f'<text class="words" x="12" y="{top}">{escape(line)}</text>')
            top += 18
        for view in views:
            parts += _row(view, top)
            top += GAP
        if refused:
            parts.append(f'<text class="bad" x="12" y="{top + 8}">refused: {escape(refused)}</text>')
            top += 18
        top += 20
    legend = "A box is a record: its name and the leader epoch it was written in. Black bar: high watermark. Red bar: last stable offset."
    parts.append(f'<text class="small" x="12" y="{top}">{legend}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 14}" role="img" aria-label="{escape(played.title)}">'
    return f'{head}<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"


def _wrapped(words: str) -> list[str]:
    import textwrap

    return textwrap.wrap(words, 112)


def _row(view: View, top: int) -> list[str]:
    state = view.state + (", in sync" if view.in_sync and view.state != "down" else "")
    kind = ' class="down"' if view.state == "down" else ""
    parts = [f"<g{kind}>", f'<text x="24" y="{top + 17}">{view.broker}: {state}</text>']
    for record in view.records:
        x, colour = LEFT + record.offset * BOX, COLOURS[record.epoch % len(COLOURS)]
        parts.append(f'<rect x="{x}" y="{top}" width="{BOX - 4}" height="{HEIGHT}" rx="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 6}" y="{top + 17}">{escape(record.value)}</text>')
        parts.append(f'<text class="small" x="{x + BOX - 14}" y="{top + 22}">{"" if record.value == "abort" else record.epoch}</text>')
    if view.state != "down":
        parts.append(_bar(view.high_watermark, top, "#000"))
        if view.stable < view.high_watermark:
            parts.append(_bar(view.stable, top, "#c00"))
    return [*parts, "</g>"]


def _bar(offset: int, top: int, colour: str) -> str:
    return f'<rect x="{LEFT + offset * BOX - 4}" y="{top - 3}" width="3" height="{HEIGHT + 6}" fill="{colour}"/>'


def main(arguments: list[str]) -> int:
    """The command."""
    if arguments[:1] == ["--pictures"] and len(arguments) == 2:
        for name in STORIES:
            (Path(arguments[1]) / f"story-{name}.svg").write_text(svg(play(name)))
    elif len(arguments) == 1 and arguments[0] in STORIES:
        print(play(arguments[0]))
    else:
        print("\n".join(f"{name:<22}{story.title}" for name, story in STORIES.items()))
        return 2 if arguments else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
