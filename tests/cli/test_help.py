"""The command answers at once: what is slow to import is imported by the command that needs it, after its first line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
from minikafka.cli.main import cli
try:
    cli.main(["--help"], prog_name="minikafka", standalone_mode=True)
except SystemExit:
    pass
sys.stderr.write(json.dumps(sorted(sys.modules)))
"""
SLOW = {
    "tempfile", "difflib", "asyncio", "rich", "numpy", "pyarrow", "pyspark", "prometheus_client",
    "uvloop", "construct", "zstandard", "ssl", "http.client",
}  # fmt: skip


def test_help_imports_nothing_that_is_slow() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert "Commands:" in done.stdout
    loaded = set(json.loads(done.stderr))
    assert not SLOW & loaded
    assert not {name for name in loaded if name.startswith("minikafka.") and not name.startswith("minikafka.cli")}


FIRST_LINE = """
import os, sys
at_first = set(sys.modules)

def end(text):
    if text:
        loaded = sorted(set(sys.modules) - at_first)
        import json
        os.write(1, json.dumps([text.decode() if isinstance(text, bytes) else text, loaded]).encode())
        os._exit(0)

sys.stderr.write = end
from minikafka.cli.main import cli
cli.main(sys.argv[1:], prog_name="minikafka")
"""


@pytest.mark.parametrize("words", [["cluster", "up", "--port", "0"], ["demo"]], ids=" ".join)
def test_the_first_line_waits_for_no_imports(words: list[str]) -> None:
    """Named, not timed: a sign of life within 300 ms is a matter of what is imported before it."""
    command = [sys.executable, "-c", FIRST_LINE, *words]
    said, loaded = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert said.startswith("starting")
    assert not SLOW & set(loaded)
    assert {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names <= {"click", "minikafka"}
    assert not [name for name in loaded if name.startswith("minikafka.") and not name.startswith("minikafka.cli")]


COLLECTIONS = """
import gc, sys
started = []
gc.callbacks.append(lambda phase, info: phase == "start" and started.append(info["generation"]))
from minikafka.cli.main import cli
at_first = len(started)
cli.get_command(None, "start")
print(len(started) - at_first, gc.isenabled())
"""


def test_a_command_is_imported_without_garbage_collections() -> None:
    said = subprocess.run([sys.executable, "-c", COLLECTIONS], capture_output=True, text=True, check=True).stdout
    collections, is_enabled = said.split()
    assert int(collections) <= 1, "one is due as soon as collections are allowed again"
    assert is_enabled == "True"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["topics", "--create", "orders"], "--topic"),
        (["consumer-groups", "--describe", "shop"], "--topic or --group"),
        (["dump-log", "x.log"], ""),
    ],
)
def test_a_misplaced_name_gets_a_hint(words: list[str], option: str) -> None:
    from click.testing import CliRunner

    from minikafka.cli.main import cli

    found = CliRunner().invoke(cli, words)
    assert found.exit_code == 2
    assert f"Names follow {option}." in found.output if option else "--files" in found.output


@pytest.mark.parametrize("group", ["cluster", "features", "metadata-quorum", "storage", "transactions"])
def test_no_command_of_a_group_is_described_in_part(group: str) -> None:
    """click ends what does not fit into a line with three dots."""
    from click.testing import CliRunner

    from minikafka.cli.main import cli

    said = CliRunner().invoke(cli, [group, "--help"], terminal_width=80).output
    commands = said[said.index("Commands:") :]
    assert "..." not in commands and commands.count("\n") > 2
