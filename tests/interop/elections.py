"""How long a metadata quorum of three has no leader when its leader dies: `PYTHONPATH=tests:. python -m interop.elections [--kills 20]`.

Controllers of their own, Kafka's default timeouts; the time is from SIGKILL until another controller says that it leads a later epoch.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from helpers.mixed_cluster import CONTROLLER, KAFKA, MINI, MixedCluster


def measure(kinds: tuple[str, ...], kills: int, silent: bool) -> list[float]:
    """Milliseconds, one a kill; `silent`: the leader is paused (SIGSTOP) first and killed when it has been replaced."""
    found = []
    with (
        tempfile.TemporaryDirectory() as directory,
        MixedCluster(Path(directory), [(index + 1, kind, CONTROLLER) for index, kind in enumerate(kinds)]) as cluster,
    ):
        cluster.format()
        cluster.start(wait=False)
        cluster.wait_for_leader()
        for _ in range(kills):
            cluster.wait_for(lambda: follower_count(cluster) == 2, "both followers to fetch")
            epoch, leader = cluster.quorum_leader()
            started = time.monotonic()
            if silent:
                cluster.pause(leader)
            else:
                cluster.kill(leader)
            while cluster.quorum_leader(without=leader)[0] <= epoch:
                time.sleep(0.002)
            found.append((time.monotonic() - started) * 1000)
            if silent:
                cluster.kill(leader)
            cluster.start(leader, wait=False)
    return found


def follower_count(cluster: MixedCluster) -> int:
    partition = cluster.describe_quorum()
    if partition is None:
        return 0
    return sum(
        entry.replica_id != partition.leader_id and entry.log_end_offset >= partition.high_watermark - 1
        for entry in partition.current_voters
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--only", choices=(MINI, KAFKA), help="only the quorum of this kind")
    arguments = parser.parse_args()
    kills, only = arguments.kills, arguments.only
    print("| quorum | leader | median ms | worst ms | kills |\n|---|---|---|---|---|")
    quorums = [(MINI,) * 3, (KAFKA,) * 3, (KAFKA, MINI, MINI)]
    for kinds in [kinds for kinds in quorums if only is None or set(kinds) == {only}]:
        for silent in (False, True):
            found = measure(kinds, kills, silent)
            what = "paused" if silent else "killed"
            print(f"| {', '.join(kinds)} | {what} | {statistics.median(found):.0f} | {max(found):.0f} | {len(found)} |", flush=True)


if __name__ == "__main__":
    main()
