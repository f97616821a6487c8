"""Pages of docs/ as scripts: which blocks run, and what they must print.

```bash title="first terminal"   started in the background, ended at the end of the page
```bash                          run, in order, in one shell with `set -euo pipefail`
```python title="Python"         run by this interpreter
```python title="NAME.py"        written to NAME.py
```text                          what the block before it prints to the standard output, numbers and ids apart

The site shows the titles. Any other word behind the language would keep it from recognising the block.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

FENCE = re.compile(r'^```(\w+)(?: title="([^"\n]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
FIRST_TERMINAL = "first terminal"
UUID = re.compile(r"(?<![\w-])(?=[\w-]*[A-Z])[\w-]{22}(?![\w-])")
END = "-- end of the block --"


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block that `Reader` uses; `expected` is the text block that follows it."""

    language: str
    note: str
    code: str
    expected: str | None


def blocks(text: str) -> list[Block]:
    """Those of a page, in order."""
    found = [(match[1], match[2] or "", match[3]) for match in FENCE.finditer(text)]
    result = []
    for index, (language, note, code) in enumerate(found):
        following = found[index + 1] if index + 1 < len(found) else ("", "", "")
        if language == "bash" or (language == "python" and note):
            result.append(Block(language, note, code, following[2] if following[0] == "text" else None))
    return result


def indented_blocks(text: str, heading: str) -> list[Block]:
    """Those of a section of a page whose blocks are indented: commands, and what the last of them prints."""
    section = text.split(f"\n## {heading}\n")[1].split("\n## ", maxsplit=1)[0]
    found = [textwrap.dedent(part) for part in re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)]
    result: list[Block] = []
    for code in found:
        if code.startswith("PARTITION"):
            result[-1] = replace(result[-1], expected=code)
        elif "pip install" not in code:
            result.append(Block("bash", "", code, None))
        elif (line := code.splitlines()[-1]).startswith("minikafka"):
            result.append(Block("bash", FIRST_TERMINAL, line + "\n", None))
    return result


def normal(text: str) -> list[str]:
    """Lines with every id and number made alike, and space between words made one; how long a list of numbers is, and which controller is
    active, does not count."""
    text = UUID.sub("ID", text)
    text = re.sub(r"\d+(\.\d+)?", "N", text)
    text = re.sub(r"N(, ?N)+", "N", text)
    text = re.sub(r"\b(active|voter)\b", "role", text)
    lines = (re.sub(r"-{2,}", "--", " ".join(line.split())) for line in text.splitlines())
    return [line for line in lines if line]


class Reader:
    """Runs a page as if it were pasted into two terminals; a context manager. `minikafka` is this tree's, port 9092 becomes a free one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = _free_port()
        self._background: list[subprocess.Popen[bytes]] = []
        self._shell: subprocess.Popen[str] | None = None

    def __enter__(self) -> Reader:
        programs = self.directory / "bin"
        programs.mkdir(parents=True)
        root = Path(__file__).resolve().parents[2]
        _program(programs / "minikafka", f'exec {shlex.quote(sys.executable)} -m minikafka "$@"')
        _program(programs / "python", f'exec {shlex.quote(sys.executable)} "$@"')
        self._environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(root),
            "MINIKAFKA_BOOTSTRAP": f"127.0.0.1:{self.port}",
            "TMPDIR": str(self.directory),
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }
        self._environment.pop("PYTEST_ADDOPTS", None)
        return self

    def __exit__(self, *_: object) -> None:
        if self._shell is not None:
            self._end(self._shell)
        self.end_terminals()

    def end_terminals(self) -> None:
        """Ctrl-C in every other terminal."""
        for process in self._background:
            self._end(process)
        self._background.clear()

    @staticmethod
    def _end(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        if process.stdin is not None:
            process.stdin.close()

    def run(self, block: Block) -> str:
        """Run the block and return its output. Raises AssertionError if it fails."""
        code = block.code.replace("localhost:9092", f"localhost:{self.port}")
        for offset in (1, 2):
            code = code.replace(f"localhost:{9092 + offset}", f"localhost:{self.port + offset}")
        if block.note.endswith(".py"):
            (self.directory / block.note).write_text(code)
            return ""
        if block.language == "python":
            path = self.directory / "block.py"
            path.write_text(code)
            return self._type("python block.py\n")
        if block.note == FIRST_TERMINAL:
            self._background.append(self._in_background(code))
            return ""
        return self._type(code)

    def _in_background(self, code: str) -> subprocess.Popen[bytes]:
        code = code.replace("cluster up", f"cluster up --port {self.port} --http-port 0")
        with (self.directory / "terminal.log").open("ab") as log:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {code.strip()}"], cwd=self.directory, env=self._environment, stdout=subprocess.PIPE, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        # `cluster up` prints its address when it is up.
        assert process.stdout is not None and process.stdout.readline(), (self.directory / "terminal.log").read_text()
        return process

    def _type(self, code: str) -> str:
        if self._shell is None:
            self._shell = subprocess.Popen(
                ["bash", "-s"], cwd=self.directory, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True, start_new_session=True,
            )  # fmt: skip
            self._write(f"exec 2> {shlex.quote(str(self.directory / 'stderr.log'))}\nset -euo pipefail\n")
        shell = self._shell
        self._write(f"{code}\necho {shlex.quote(END)}\n")
        printed: list[str] = []
        try:
            for line in shell.stdout or ():
                if line.strip() == END:
                    return "".join(printed)
                printed.append(line)
        except BaseException:
            # The test's time is over: pytest shows what is printed here.
            print(self._so_far(code, printed))
            raise
        raise AssertionError(f"failed: {self._so_far(code, printed)}")

    def _so_far(self, code: str, printed: list[str]) -> str:
        complaints = "".join(path.read_text() for path in sorted(self.directory.glob("*.log")))
        return f"{code}\nprinted:\n{''.join(printed)}{complaints}"

    def _write(self, text: str) -> None:
        assert self._shell is not None and self._shell.stdin is not None
        self._shell.stdin.write(text)
        self._shell.stdin.flush()


@contextlib.contextmanager
def _bound(port: int) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))
        yield int(probe.getsockname()[1])


def _free_port() -> int:
    """The first of three free ports in a row, below those that the system gives to clients."""
    for first in random.SystemRandom().sample(range(12_000, 30_000, 4), 100):
        with contextlib.suppress(OSError), _bound(first), _bound(first + 1), _bound(first + 2):
            return first
    raise AssertionError("no three free ports in a row")


def _program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
