"""`minikafka --help` stays quick: what is slow to import is imported by the command that needs it."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys
from minikafka.cli.main import cli
try:
    cli.main(["--help"], prog_name="minikafka", standalone_mode=True)
except SystemExit:
    pass
sys.stderr.write(json.dumps(sorted(sys.modules)))
"""
SLOW = {"asyncio", "rich", "numpy", "pyarrow", "pyspark", "prometheus_client", "uvloop", "construct", "zstandard", "ssl", "http.client"}


def test_help_imports_nothing_that_is_slow() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert "Commands:" in done.stdout
    loaded = set(json.loads(done.stderr))
    assert not SLOW & loaded
    assert not {name for name in loaded if name.startswith("minikafka.") and not name.startswith("minikafka.cli")}
