"""A machine that lacks what only Linux has: the same cluster, the same proof. What is missing on macOS is taken away in every process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Of `os` and `socket` on macOS (CPython's documentation, "Availability").
LACKING = """
import os, socket
for name in ("fdatasync", "posix_fallocate", "sched_getaffinity", "copy_file_range"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("MSG_MORE", "TCP_KEEPIDLE", "TCP_USER_TIMEOUT", "TCP_CONGESTION", "SO_BUSY_POLL"):
    if hasattr(socket, name):
        delattr(socket, name)
"""
STORY = """
import sys, urllib.request  # noqa: the standard library looks at the platform
sys.platform = "darwin"
from minikafka.testing import EmbeddedCluster
import asyncio
from minikafka.client import Consumer, Producer

async def story(cluster):
    async with Producer(cluster.bootstrap_servers, compression="zstd") as producer:
        for number in range(200):
            await producer.send("t", b"%d" % number * 200, partition=number % 2)
        await producer.flush()
    cluster.broker(cluster.leader("t", 0)).kill()
    async with Consumer(cluster.bootstrap_servers) as consumer:
        await consumer.assign([("t", 0), ("t", 1)], {("t", 0): 0, ("t", 1): 0})
        found = 0
        while found < 200:
            found += len(await consumer.poll(5000))

with EmbeddedCluster(3, topics={"t": 2}, mode=MODE) as cluster:
    asyncio.run(story(cluster))
    cluster.repair()
    cluster.audit()
print("good")
"""


@pytest.mark.parametrize("mode", ["process", "thread"])
@pytest.mark.timeout(120)
def test_a_cluster_works_without_what_only_linux_has(tmp_path: Path, mode: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(LACKING)
    program = tmp_path / "story.py"
    program.write_text(textwrap.dedent(STORY).replace("MODE", repr(mode)))
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False, timeout=110)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stdout + done.stderr
