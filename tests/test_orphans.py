"""A worker ends without a word when its parent is killed, and not by Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

#: The worker tells its id and waits for ever. The parent ends at once.
PROGRAM = """
import multiprocessing, os, signal, sys
from minikafka.orphans import end_with_parent

def work():
    end_with_parent()
    print(os.getpid(), flush=True)
    signal.pause()

if __name__ == "__main__":
    multiprocessing.get_context(sys.argv[1]).Process(target=work).start()
    signal.pause()
"""


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_worker_ends_with_its_parent(method: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with subprocess.Popen([sys.executable, str(program), method], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None and parent.stderr is not None
        worker = int(parent.stdout.readline())
        os.kill(worker, signal.SIGINT)
        os.kill(worker, 0)
        parent.kill()
        # The worker holds both pipes as long as it lives.
        assert parent.stdout.read() == parent.stderr.read() == ""
