"""The real `minikafka` command in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping


def minikafka(
    *arguments: str, stdin: str = "", environment: Mapping[str, str] | None = None, timeout_s: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a subcommand to its end."""
    return subprocess.run(
        [sys.executable, "-m", "minikafka", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, **(environment or {})},
    )
