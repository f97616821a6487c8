"""A broker imports nothing that it does not use: every module delays its start."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys, minikafka.broker.node, minikafka.broker.observe.http
from minikafka.broker.early_imports import import_early

import_early()
print(json.dumps(sorted(sys.modules)))
"""
#: Modules of ours. Each takes 0.5 ms of a start and 30 KB; raise this only for what every broker needs at once.
OWN_MODULES_MAX = 487
#: What third packages import for their own command lines and versions, and what other parts of the project need.
NOT_NEEDED = {
    "argparse", "bz2", "construct", "crc32c", "csv", "difflib", "email", "importlib.metadata", "importlib.resources", "lz4", "lzma",
    "numpy", "pdb", "prometheus_client", "pyarrow", "pyspark", "re2", "tempfile", "zipfile",
}  # fmt: skip


def test_a_broker_imports_nothing_that_it_does_not_use() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert "minikafka.wire.crc" in loaded and "minikafka.wire.compiler" in loaded
    assert not NOT_NEEDED & loaded
    assert "minikafka.core.group.coordinator" not in loaded, "a broker without groups needs no code of groups"
    assert sum(name.startswith("minikafka") for name in loaded) <= OWN_MODULES_MAX
