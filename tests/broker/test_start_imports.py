"""A broker imports nothing that it does not use: every module delays its start."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = "import json, sys, minikafka.broker.node, minikafka.broker.observe.http; print(json.dumps(sorted(sys.modules)))"
#: What third packages import for their own command lines and versions, and what other parts of the project need.
NOT_NEEDED = {
    "argparse", "bz2", "crc32c", "csv", "difflib", "email", "importlib.metadata", "importlib.resources", "lzma", "numpy",
    "prometheus_client", "pyarrow", "pyspark", "tempfile", "zipfile",
}  # fmt: skip


def test_a_broker_imports_nothing_that_it_does_not_use() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert "minikafka.wire.crc" in loaded
    assert not NOT_NEEDED & loaded
