"""What modules of a node import inside functions is imported before the node starts, or only before it serves, or is small."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from minikafka.broker.early_imports import NEEDED_LATER, OF_PAGE
from minikafka.net.garbage import GarbagePauses

ROOT = Path(__file__).parents[2]
ROOMS = ("minikafka/broker", "minikafka/core", "minikafka/net", "minikafka/security", "wire", "storage")
#: In a thread (`otlp.load`, `LateImport`), or only another name of what is there.
ELSEWHERE = {
    "google.protobuf.message", "opentelemetry.proto.metrics.v1.metrics_pb2", "minikafka.broker.front.dispatch", "crc32c",
    "minikafka.core.group.coordinator",
}  # fmt: skip
#: Imported by the first request that needs it, in 2 to 6 ms each. Together they take 1 MB, and many brokers never need them.
SMALL = {"cramjam", "lz4.frame", "re2", "zstandard"}
#: Functions that nobody calls while the node serves: those that open stores of keys and formats, that a tool calls, or that compile.
BEFORE_SERVICE = {
    "cryptography", "cryptography.hazmat.primitives", "cryptography.hazmat.primitives.serialization", "difflib", "importlib", "tempfile",
}  # fmt: skip


def late_imports() -> Iterator[tuple[str, str]]:
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for function in ast.walk(ast.parse(path.read_text())):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    for node in ast.walk(function):
                        if isinstance(node, ast.Import):
                            yield from ((str(path.relative_to(ROOT)), name.name) for name in node.names)
                        elif isinstance(node, ast.ImportFrom) and node.module:
                            yield str(path.relative_to(ROOT)), node.module
                            yield from ((str(path.relative_to(ROOT)), f"{node.module}.{name.name}") for name in node.names)


def test_every_late_import_is_early_or_before_service() -> None:
    early = (*NEEDED_LATER, *OF_PAGE)
    known = {*early, *SMALL, *BEFORE_SERVICE, *ELSEWHERE, *(name.rpartition(".")[0] for name in early)}
    unknown = {(path, name) for path, name in late_imports() if name not in known and name.rpartition(".")[0] not in known}
    assert not unknown


STARTED = """
import asyncio, sys
from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.early_imports import NEEDED_LATER, OF_PAGE
from minikafka.cli import start

class Runner:
    def __init__(self, loop_factory):
        pass

    def run(self, work):
        work.close()
        print(all(name in sys.modules for name in ("minikafka.broker.node", *NEEDED_LATER)), [name in sys.modules for name in OF_PAGE])

asyncio.Runner, start._leave_process = Runner, lambda status: None
start.run(BrokerConfig.from_properties({
    "process.roles": "broker,controller", "node.id": "1", "controller.quorum.voters": "1@127.0.0.1:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093", "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data", "minikafka.http.port": sys.argv[1],
}))
"""


@pytest.mark.parametrize(("http_port", "has_page"), [("8080", True), ("-1", False)])
def test_a_node_imports_before_its_loop_runs(http_port: str, has_page: bool) -> None:
    """The modules of the page took a turn of 65 to 113 ms."""
    done = subprocess.run([sys.executable, "-c", STARTED, http_port], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == f"True {[has_page] * len(OF_PAGE)}"


def test_what_the_start_has_made_is_frozen_without_a_collection() -> None:
    calls: list[str] = []
    collector = SimpleNamespace(freeze=lambda: calls.append("freeze"), collect=lambda: calls.append("collect"))
    GarbagePauses(collector=collector).keep()  # type: ignore[arg-type]
    assert calls == ["freeze"]
