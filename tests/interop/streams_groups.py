"""Kafka Streams in a streams group (KIP-1071) while brokers and instances die: `PYTHONPATH=tests:. python -m interop.streams_groups`.

Three combined nodes, of minikafka or of Apache Kafka (`--kind kafka`: 4.3.0 from Maven; `kafka-next`: 4.4.0).
`--program words` counts words exactly once and checks every count; `smoke` is Kafka Streams' own smoke test.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from helpers.mixed_cluster import BOTH, KAFKA, KAFKA_NEXT, MINI, MixedCluster
from helpers.streams_programs import (
    INPUT,
    OUTPUT,
    QUICK_GROUPS,
    SMOKE_TEST,
    SMOKE_TOPICS,
    WordCount,
    create_topics,
    program,
    properties,
    settings,
)

#: Transactions survive each of three nodes, and a node that is only slow beside many partitions keeps its session.
ROBUST = {
    "transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2", "broker.session.timeout.ms": "9000",
}  # fmt: skip


def count_words(cluster: MixedCluster, directory: Path, rounds: int, lines: int) -> str:
    """Every round a node dies and comes back, and every second one an instance does; what was seen."""
    create_topics(cluster.bootstrap, {INPUT: 4, OUTPUT: 2})
    words = WordCount(cluster.bootstrap, directory)
    instances = [words.instance(number) for number in (1, 2)]
    waits = []
    first, second = (made.running(name) for made, name in instances)
    with first, second:
        words.write(lines)
        waits.append(words.wait(240))
        for number in range(rounds):
            victim = 1 + number % 3
            cluster.kill(victim)
            words.write(lines)
            if number % 2:
                made, name = instances[number // 2 % 2]
                made.kill()
                made.start(name)
            words.write(lines)
            waits.append(words.wait(240))
            cluster.start(victim)
        words.close()
    shown = ", ".join(f"{wait:.1f}" for wait in waits)
    return f"{words.expected.total()} words counted once each; seconds after the last was written, a round: {shown}"


def smoke_test(cluster: MixedCluster, directory: Path, _rounds: int, _lines: int) -> str:
    """Its driver writes for 90 seconds and compares every aggregate; two processors, one of which dies, and every node dies once."""
    create_topics(cluster.bootstrap, dict.fromkeys(SMOKE_TOPICS, 5))
    names = [properties(directory / f"{number}.properties", settings(cluster.bootstrap, directory / f"s{number}")) for number in (1, 2)]
    first, second = (program(SMOKE_TEST, directory / f"processor-{number}.txt") for number in (1, 2))
    driver = program(SMOKE_TEST, directory / "driver.txt")
    began = time.monotonic()
    with first.running(names[0], "process"), driver.running(names[0], "run"):
        first.says("processed", 240)
        with second.running(names[1], "process"):
            second.says("REBALANCING -> RUNNING", 240)
            first.kill()
            for victim in cluster.nodes:
                cluster.kill(victim)
                time.sleep(3)
                cluster.start(victim)
            assert driver.process is not None
            driver.process.wait(400)
    assert "SUCCESS" in driver.output(), driver.output()[-4000:]
    return f"SUCCESS after {time.monotonic() - began:.0f} s"


PROGRAMS = {"words": count_words, "smoke": smoke_test}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=(MINI, KAFKA, KAFKA_NEXT), default=MINI)
    parser.add_argument("--program", choices=sorted(PROGRAMS), default="words")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--lines", type=int, default=200, help="lines of five words, each time that some are written")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        nodes = [(node_id, arguments.kind, BOTH) for node_id in (1, 2, 3)]
        with MixedCluster(directory / "nodes", nodes, properties={**QUICK_GROUPS, **ROBUST}) as cluster:
            cluster.format()
            cluster.start()
            print(PROGRAMS[arguments.program](cluster, directory, arguments.rounds, arguments.lines), flush=True)


if __name__ == "__main__":
    main()
