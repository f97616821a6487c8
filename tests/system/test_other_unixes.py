"""A machine that lacks what only Linux has: the same cluster, the same proof, and the same tests of the network and the disk.

What macOS lacks is taken away in every process, and its own calls stand in (`helpers/darwin`). Nobody has run this on a Mac.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DARWIN = ROOT / "tests" / "helpers" / "darwin"
#: Small tests that use what differs: files, locks, syncing, sockets, regions of files sent to them, ports, quotas.
PARTS = [
    "tests/net", "tests/storage/test_disks.py", "tests/storage/test_log_dir.py", "tests/storage/test_open_files.py",
    "tests/storage/test_shortage.py", "tests/testing/test_proxy.py", "tests/testing/test_wait.py",
]  # fmt: skip
STORY = """
import asyncio, os, socket, sys
from minikafka.testing import EmbeddedCluster
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

assert sys.platform == "darwin" and os.sendfile.__module__ == "darwin_calls" and not hasattr(socket, "MSG_MORE")
with EmbeddedCluster(3, topics={"t": 2}, mode=MODE) as cluster:
    asyncio.run(story(cluster))
    cluster.repair()
    cluster.audit()
print("good")
"""


@pytest.mark.parametrize("mode", ["process", "thread"])
@pytest.mark.timeout(120)
def test_a_cluster_works_without_what_only_linux_has(tmp_path: Path, mode: str) -> None:
    program = tmp_path / "story.py"
    program.write_text(textwrap.dedent(STORY).replace("MODE", repr(mode)))
    environment = {**os.environ, "PYTHONPATH": f"{DARWIN}:{ROOT}"}
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_the_network_and_the_disk_pass_their_tests_without_what_only_linux_has() -> None:
    """The whole suite so: PYTHONPATH=tests/helpers/darwin pytest."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *PARTS]
    environment = {**os.environ, "PYTHONPATH": str(DARWIN)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " failed" not in done.stdout and " passed" in done.stdout
