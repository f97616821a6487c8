"""Brokers that share a tenth of a core: elections end, clients get their answers, replicas agree.

    pytest tests/system/test_cpu_quota.py -m long      # the start itself, with all its imports; half a minute
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest
from helpers.cpu_quota import CpuQuota

from minikafka.testing import EmbeddedCluster
from minikafka.testing.wait import wait_until

CORES = 0.1
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("cgroup", [pytest.param(True, marks=pytest.mark.long), False], ids=["cgroup", "signals"])
def test_leaders_are_elected_and_records_committed_on_a_tenth_of_a_core(cgroup: bool) -> None:
    quota = CpuQuota(CORES, cgroup=cgroup)
    if cgroup and not quota.is_cgroup:
        pytest.skip("this user may make no cgroup: the same with signals")
    with EmbeddedCluster(3, topics={"orders": {"partitions": 1}}, mode="process") as cluster:
        with quota:
            quota.add(broker.process.pid for broker in cluster.brokers)
            leader = cluster.leader("orders", 0)
            cluster.broker(leader).kill()
            wait_until(lambda: cluster.leader("orders", 0) not in {leader, -1, None}, f"another leader with {quota.kind}", 10, cluster.logs)
            producer = confluent_kafka.Producer(cluster.client_config("confluent", log_level=0))
            errors: list[object] = []
            for number in range(20):
                producer.produce("orders", b"%d" % number, on_delivery=lambda error, _: errors.append(error))
            assert producer.flush(30) == 0, cluster.logs()
            assert errors == [None] * 20
        cluster.repair()
        assert cluster.audit().outcome == "PASS"


STORY = """
import os, sys
folder = sys.argv[1]
if folder:
    open(os.path.join(folder, "cgroup.procs"), "w").write(str(os.getpid()))
from minikafka.testing import EmbeddedCluster
with EmbeddedCluster(3, topics=["orders"], mode="process") as cluster:
    print("up", cluster.leader("orders", 0) in (1, 2, 3))
"""


@pytest.mark.long
@pytest.mark.timeout(200)
def test_three_brokers_start_on_a_tenth_of_a_core() -> None:
    quota = CpuQuota(CORES)
    if not quota.is_cgroup:
        pytest.skip("this user may make no cgroup")
    with quota:
        command = [sys.executable, "-c", STORY, str(quota.folder)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "up True\n"), done.stderr
