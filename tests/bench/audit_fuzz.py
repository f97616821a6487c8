"""Thousands of generated faults against the audit and an independent oracle.

usage: PYTHONPATH=.:tests python tests/bench/audit_fuzz.py [--cases 1000] [--seed 0] [--directory /dev/shm] [--play SEED] [--summaries]
       [--verb NAME]

With --summaries each case is audited by summaries of three machines, too, and both have to say the same. With --verb it plays the first
cases, from the seed on, that have this fault. SIGINT or SIGTERM ends it early, with the counts so far.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from helpers.log_fault_grammar import Case, Player, draw, shrink
from helpers.summarized_clusters import by_summaries, direct, summary_of

from minikafka.spark.audit import AuditOptions, AuditResult, run_audit
from minikafka.spark.engine_local import LocalEngine

OPTIONS = AuditOptions(level="records", confirm=False)


def audit(folder: Path) -> AuditResult:
    """All log directories of the folder."""
    return run_audit([str(path) for path in sorted(folder.iterdir())], LocalEngine(1), OPTIONS)


def in_both_ways(folder: Path) -> int:
    """The exit status, -1 when summaries lead to something else."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as out:
        found, _ = by_summaries(folder, Path(out))
        return found.exit_code if summary_of(found) == summary_of(direct(folder)) else -1


def seeds_of(first: int, count: int, verb: str | None) -> Iterator[int]:
    """The first seeds whose cases have the verb."""
    seeds = (seed for seed in itertools.count(first) if verb is None or any(step.verb == verb for step in draw(seed).steps))
    return itertools.islice(seeds, count)


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--cases", type=int, default=1000)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--directory", default=None)
    arguments.add_argument("--play", type=int, default=None)
    arguments.add_argument("--summaries", action="store_true")
    arguments.add_argument("--verb", default=None)
    chosen = arguments.parse_args()
    player, counts, wrong, start = Player(chosen.directory), Counter[str](), 0, time.process_time()
    seeds = [chosen.play] if chosen.play is not None else seeds_of(chosen.seed, chosen.cases, chosen.verb)

    def verdict(case: Case) -> str:
        judgement, code = player.play(case, lambda folder: in_both_ways(folder) if chosen.summaries else audit(folder).exit_code)
        if code < 0:
            return "summaries say something else"
        kind = "visible" if judgement.visible else "legal" if judgement.is_legal else "neither"
        counts[f"{kind}, exit status {code}"] += 1
        return judgement.blames(code)

    played = 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    gc.freeze()  # a tenth of the time would go into looking through the imported modules
    gc.set_threshold(50_000)
    try:
        for seed in seeds:
            played += 1
            case = draw(seed)
            if blamed := verdict(case):
                wrong += 1
                kept = counts.copy()
                smaller = shrink(case, lambda one, blamed=blamed: verdict(one)[:6] == blamed[:6])
                counts.clear()
                counts.update(kept)
                print(f"seed {seed}: {blamed}\n  {case.base}: {smaller.steps}", flush=True)
    except KeyboardInterrupt:
        print("ended early, in the midst of the last case")
    finally:
        player.close()
    print(f"{played} cases, {wrong} wrong, {time.process_time() - start:.0f} CPU s; {dict(sorted(counts.items()))}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
