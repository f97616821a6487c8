"""The audit of a simulated cluster's disks: python tests/bench/audit_simulated.py FROM [TO] [--dumps 3] [--keep DIR]

Every seed draws a cluster, its load and its faults (minikafka.sim.swarm). Before random operations of its disks all disks are copied, each
as it would be if every process were killed there, and the copies are audited. An operation is a write, a cut or a change of names, so
that copies lie between the steps of whatever brokers do in several. A last copy is made when all nodes have stopped in order. What fails
is a broker's defect or a false alarm of the audit, except where it names a disk that has just lost what was not synced.

Bits are not flipped here (audit_fuzz.py does that).
"""

from __future__ import annotations

import argparse
import gc
import random
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minikafka.sim import disk as simulated_disk
from minikafka.sim.swarm import draw
from minikafka.sim.world import World
from minikafka.spark.audit import AuditOptions, AuditResult, run_audit
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.findings import Finding

OPTIONS = AuditOptions(level="records", confirm=False)
#: Operations of the disks, counted from the load's beginning, before one of which a copy is made.
FIRST, LAST = 10, 4000
#: Simulated seconds that a node gets for its stop; the last controllers have no quorum to tell.
STOP_S_MAX = 600.0
OPERATIONS = (("DiskFile", "pwrite"), ("DiskFile", "truncate"), *(("DiskView", name) for name in ("rename", "unlink", "rmdir", "mkdir")))


@dataclass(slots=True)
class Copy:
    """The disks at one moment. `harmed`: nodes that lost unsynced bytes, and have not registered again since."""

    place: Path
    now: float
    harmed: set[str] = field(default_factory=set)


class CopyingWorld(World):
    """A world whose disks are copied before some of their operations."""

    def __init__(self, options: Any, faults: Any, moments: list[int], root: Path) -> None:
        super().__init__(options, faults)
        self.moments, self.root = sorted(moments), root
        self.operations = 0
        self.copies: list[Copy] = []

    def _heal(self) -> None:
        """The cluster comes to rest, and then all nodes stop in order, one after the other; brokers that are no controllers first."""
        super()._heal()
        if self.violation is not None:
            return
        self.copy("end")
        order = random.Random(f"audit/{self.seed}/stops")
        for node in sorted(self.nodes.values(), key=lambda one: (one.config.is_controller, order.random())):
            node.stop()
            if not self._until(lambda node=node: not node.is_alive, STOP_S_MAX):
                node.kill()
        self.copy("stopped")

    def tick(self) -> None:
        """A disk is about to change."""
        self.operations += self.load_began_s > 0
        while self.moments and self.operations >= self.moments[0]:
            self.moments.pop(0)
            self.copy(str(self.operations))

    def copy(self, name: str) -> None:
        """Copy the disks of all nodes."""
        place = self.root / f"{self.seed}-{name}"
        shutil.rmtree(place, ignore_errors=True)
        harmed = {str(node.node_id) for node in self.nodes.values() if self.invariants.has_lost(node)}
        for node in self.nodes.values():
            for directory, names in node.disk.files.items():
                if directory == "/":
                    continue
                inside = place / node.host / directory.lstrip("/")
                inside.mkdir(parents=True, exist_ok=True)
                for file_name, inode in names.items():
                    with open(inside / file_name, "wb") as file:
                        file.write(inode.data)
                        file.truncate(inode.size)
        self.copies.append(Copy(place, self.now, harmed))


@contextmanager
def watched(world: CopyingWorld) -> Iterator[None]:
    """Tell the world of every operation of a disk before it is done."""
    kept = [(getattr(simulated_disk, owner), name, getattr(simulated_disk, owner).__dict__[name]) for owner, name in OPERATIONS]

    def telling(operation: Callable[..., Any]) -> Callable[..., Any]:
        def told(*arguments: Any, **named: Any) -> Any:
            world.tick()
            return operation(*arguments, **named)

        return told

    for owner, name, operation in kept:
        setattr(owner, name, telling(operation))
    try:
        yield
    finally:
        for owner, name, operation in kept:
            setattr(owner, name, operation)


def copies_of(seed: int, dumps: int, root: Path) -> CopyingWorld:
    """Run one world, and copy its disks `dumps` times, when it has come to rest, and when all its nodes have stopped in order."""
    options, faults = draw(seed)
    faults = [fault for fault in faults if "rot" not in fault.kind]
    moments = random.Random(f"audit/{seed}")
    world = CopyingWorld(options, faults, [round(FIRST * (LAST / FIRST) ** moments.random()) for _ in range(dumps)], root)
    with watched(world), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        outcome = world.run()
    if outcome.violation is not None:
        raise SystemExit(f"seed {seed}: {outcome.violation}")
    return world


def audit(copy: Copy) -> AuditResult:
    """Audit the copy with every record decoded. What is being formatted is no log directory yet."""
    found = copy.place.glob("*/data")
    places = [place for place in found if (place / "meta.properties").exists() or any(map(Path.is_dir, place.iterdir()))]
    return run_audit(sorted(map(str, places)), LocalEngine(1), OPTIONS)


def alarms(result: AuditResult, harmed: set[str]) -> list[Finding]:
    """The errors that do not name a disk that has just lost something. Of an unclean election on record nobody knows what it lost: where
    all that were in sync had lost power, the last known leader was elected (KIP-966)."""
    errors = [found for found in result.findings.kept if found.level == "error" and found.check != "unclean-loss"]
    return [found for found in errors if not harmed & {name.split()[0] for name in found.brokers}]


def words(found: Finding) -> str:
    """The finding in one line."""
    return f"    {found.level} {found.check} {found.topic}-{found.partition} {','.join(found.brokers)}: {found.message}"


def main() -> int:
    """Run the seeds; exit status 1 if there was an alarm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int, nargs="?")
    parser.add_argument("--dumps", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="leave the copies that give alarms in this directory")
    chosen = parser.parse_args()
    statuses: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        for seed in range(chosen.first, (chosen.last or chosen.first) + 1):
            for copy in copies_of(seed, chosen.dumps, chosen.keep or Path(temporary)).copies:
                if not copy.place.is_dir():
                    continue  # every disk was just replaced
                statuses[("stopped: " if copy.place.name.endswith("stopped") else "") + judged(copy)] += 1
                if chosen.keep is None or not (copy.place / "ALARM").exists():
                    shutil.rmtree(copy.place)
            gc.collect()
            if seed % 50 == 0:
                print("...", seed, dict(statuses), flush=True)
    print(sum(statuses.values()), "copies", dict(statuses))
    return 1 if any("ALARM" in status for status in statuses) else 0


def judged(copy: Copy) -> str:
    """The outcome of the audit of a copy, with what it found said aloud if it is an alarm."""
    result = audit(copy)
    found = alarms(result, copy.harmed)
    if not found:
        return f"{result.outcome}, rightly" if result.exit_code == 1 else result.outcome
    print(f"ALARM {copy.place.name} at {copy.now:.3f}, harmed: {sorted(copy.harmed)}", *map(words, found[:6]), sep="\n", flush=True)
    (copy.place / "ALARM").touch()
    return "ALARM"


if __name__ == "__main__":
    sys.exit(main())
