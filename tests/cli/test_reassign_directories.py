"""`minikafka reassign-partitions` with log_dirs: replicas move between the directories of a broker, as with Kafka's tool."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from helpers.live_node import broker_port, live_node

from minikafka.broker.node import Node
from minikafka.cli.reassign import _execute, _verify
from minikafka.cli.reassign_directories import states_of, wanted_directories
from minikafka.client.errors import ClientError
from minikafka.client.maintenance import Maintenance

KEY = ("t", 0)


def options_for(path: Path, directories: Any, **more: Any) -> dict[str, Any]:
    row = {"topic": "t", "partition": 0, "replicas": [1]} | ({} if directories is None else {"log_dirs": directories})
    path.write_text(json.dumps({"version": 1, "partitions": [row]}))
    defaults = {
        "reassignment_json_file": str(path),
        "disallow_replication_factor_change": False,
        "additional": False,
        "throttle": -1,
        "replica_alter_log_dirs_throttle": -1,
        "preserve_throttles": False,
        "timeout": 5000,
    }
    return defaults | more


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def places(node: Node) -> tuple[str, str]:
    """(the directory of the replica, the other one)."""
    here = next(d.path for d in node.directories if KEY in d.logs)
    return here, next(d.path for d in node.directories if d.path != here)


async def test_a_plan_with_log_dirs_moves_the_replica(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with live_node(tmp_path, log_dirs=2) as node, Maintenance(f"127.0.0.1:{broker_port(node)}") as admin:
        await admin.create_topic("t", partitions=1, replication_factor=1)
        here, there = places(node)
        plan = options_for(tmp_path / "plan.json", [there], replica_alter_log_dirs_throttle=100_000_000)
        assert await _execute(admin, "table", plan) == 0
        text = capsys.readouterr().out
        assert "The replica-alter-dir throttle limit was set to 100000000 B/s" in text
        assert text.endswith("Successfully started log directory move for: t-0-1\n")
        await until(lambda: places(node) == (there, here))
        assert await _verify(admin, "table", plan) == 0
        assert "Reassignment of replica t-0-1 completed successfully." in capsys.readouterr().out
        assert "replica.alter.log.dirs.io" not in str([e for e in await admin.describe_configs(4, "1") if e.source == 2])


async def test_any_directory_is_no_move(tmp_path: Path) -> None:
    for directories in (None, ["any"]):
        options = options_for(tmp_path / "plan.json", directories)
        assert wanted_directories(options["reassignment_json_file"], {KEY: [1]}) == {}
    with pytest.raises(click.BadParameter, match="t-0 needs a log directory"):
        wanted_directories(options_for(tmp_path / "plan.json", ["any", "any"])["reassignment_json_file"], {KEY: [1]})


async def test_a_directory_that_the_broker_does_not_have_is_named(tmp_path: Path) -> None:
    async with live_node(tmp_path, log_dirs=2) as node, Maintenance(f"127.0.0.1:{broker_port(node)}") as admin:
        await admin.create_topic("t", partitions=1, replication_factor=1)
        here, there = places(node)
        with pytest.raises(ClientError, match=r"Failed to alter dir for t-0-1 to /nowhere: .*LOG_DIR_NOT_FOUND"):
            await _execute(admin, "table", options_for(tmp_path / "plan.json", ["/nowhere"]))
        states = await states_of(admin, {(1, KEY): there, (1, ("no", 0)): there, (9, KEY): there})
        assert states == {
            (1, KEY): (f"Partition t-0 on broker 1 is not being moved from log dir {here} to {there}.", False),
            (1, ("no", 0)): ("Partition no-0 cannot be found in any live log directory on broker 1.", False),
            (9, KEY): ("Partition t-0 cannot be found in any live log directory on broker 9.", False),
        }
