"""Apache Kafka's tools as clients of secured clusters."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from helpers.apache_kafka import java

from minikafka.testing import EmbeddedCluster
from minikafka.testing.security import SecuredCluster


def written(path: Path, properties: Mapping[str, str]) -> str:
    """A properties file as Java reads it."""
    path.write_text("".join(f"{name}={value.replace(chr(10), chr(92) + 'n')}\n" for name, value in properties.items()))
    return str(path)


def secured(made: EmbeddedCluster) -> SecuredCluster:
    assert made.secured is not None
    return made.secured


def fails(main_class: str, *arguments: str) -> str:
    done = subprocess.run([*java(), main_class, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stdout + done.stderr
