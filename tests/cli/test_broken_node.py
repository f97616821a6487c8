"""`minikafka start` when an error of ours stops a background task: the process says what failed, and ends with a status that tells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minikafka.testing.cluster import free_ports

START = """
import sys
from minikafka.broker.quorum.broker_lifecycle import BrokerLifecycleHost
from minikafka.cli.main import main

heartbeat, count = BrokerLifecycleHost._heartbeat, 0

async def fails(self, effect):
    global count
    count += 1
    if self.ready.is_set() and count > 3:
        raise KeyError("an error of ours")
    await heartbeat(self, effect)

BrokerLifecycleHost._heartbeat = fails
sys.argv = ["minikafka", "start", "--format", "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAQ", sys.argv[1]]
main()
"""


@pytest.mark.timeout(90)
def test_a_node_whose_heartbeats_fail_inside_ends_with_a_status_and_its_state(tmp_path: Path) -> None:
    broker, controller = free_ports(2)
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"node.id=1\nprocess.roles=broker,controller\nlisteners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:{controller}\nlog.dirs={tmp_path / 'data'}\n"
        "broker.heartbeat.interval.ms=100\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", START, str(properties)], capture_output=True, text=True, check=False, timeout=60, env=dict(os.environ)
    )
    said = run.stdout + run.stderr
    assert run.returncode == 1, said
    assert "heartbeats to the controller failed unexpectedly, which ends the node: KeyError: 'an error of ours'" in said
    assert "Traceback" in said and "node 1 cannot continue" in said and "broker epoch" in said
    assert not list((tmp_path / "data").glob(".kafka_cleanshutdown")), "what was in memory is not relied on: the next life recovers"
