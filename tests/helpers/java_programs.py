"""Programs of the Kafka project beside its brokers and tools (Streams, Connect, MirrorMaker 2): from Maven, started and watched."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers import apache_kafka
from helpers.apache_kafka import VERSION, java, wait_until
from helpers.spark_connector import from_maven

STREAMS = (
    *(f"org.apache.kafka:kafka-{part}:{VERSION}{of}" for part, of in (("streams", ""), ("streams", ":jar:test"), ("clients", ":jar:test"))),
    "org.rocksdb:rocksdbjni:10.1.3",
)
COMPILER = ("org.eclipse.jdt:ecj:3.38.0",)
CONNECT = tuple(f"org.apache.kafka:connect-{part}:{VERSION}" for part in ("file", "mirror", "mirror-client"))


def _java_of(jars: list[Path]) -> list[str]:
    """Without the archive of a broker's classes, which is of no use for others."""
    path = ":".join([*map(str, jars), apache_kafka.class_path()])
    return ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path]


def compiled(main_class: str, sources: Sequence[Path], version: str = VERSION) -> Callable[..., str]:
    """A program of the project's own against Apache Kafka's clients: called with its arguments, it returns what it has printed. Raises
    RuntimeError if it cannot be compiled or fails. A Java without a compiler will do."""
    jars = apache_kafka.class_path(version)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources) + jars.encode()).hexdigest()[:16]
    classes = apache_kafka.CACHE / f"{main_class}-{digest}"
    if not classes.exists():
        with tempfile.TemporaryDirectory(dir=apache_kafka.CACHE) as directory:
            made = Path(directory) / "classes"
            clients = ":".join(str(path) for path in sorted(Path(jars).parent.glob("*.jar")))
            compiler = [*_java_of(from_maven("compiler", COMPILER)), "org.eclipse.jdt.internal.compiler.batch.Main"]
            _output([*compiler, "-17", "-nowarn", "-proc:none", "-d", str(made), "-cp", clients, *map(str, sources)])
            with contextlib.suppress(OSError):  # another process was faster
                made.rename(classes)
    return lambda *arguments: _output([*java(jars=[classes], version=version), main_class, *arguments])


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


class JavaProgram:
    """A main class in a process, what it prints in a file; a context manager that ends it."""

    def __init__(self, folder: str, artifacts: tuple[str, ...], main_class: str, output: Path, *, is_first: bool = False) -> None:
        """`is_first`: classes of `artifacts` come before those of the broker's version."""
        jars = from_maven(folder, artifacts)
        self._command = [*(_java_of(jars) if is_first else java(jars=jars)), main_class]
        self._path = output
        self.process: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def running(self, *arguments: str) -> Iterator[JavaProgram]:
        """Started; killed at the end unless it has ended."""
        self.start(*arguments)
        try:
            yield self
        finally:
            self.kill()

    def start(self, *arguments: str) -> None:
        """Start it, for the first time or after it has ended."""
        with self._path.open("ab") as output:
            self.process = subprocess.Popen([*self._command, *arguments], stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        """Send SIGKILL: nothing is flushed or committed."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def output(self) -> str:
        return self._path.read_text(errors="replace")

    def says(self, text: str, timeout_s: float) -> None:
        """Wait until it has printed `text`. Raises RuntimeError if it ends before."""
        wait_until(lambda: text in self.output() or self._ended(text), timeout_s, f"{text!r} of {self._command[-1]}")

    def answers(self, url: str) -> bool:
        """Whether its REST interface does; RuntimeError if it has ended."""
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"ended with status {self.process.returncode}:\n{self.output()[-4000:]}")
        with contextlib.suppress(OSError):
            ask(url)
            return True
        return False

    def _ended(self, text: str) -> bool:
        assert self.process is not None
        if self.process.poll() is not None and text not in self.output():
            raise RuntimeError(f"ended with status {self.process.returncode} and not a word of {text!r}:\n{self.output()[-4000:]}")
        return False


def properties(path: Path, values: Mapping[str, str]) -> str:
    """A properties file as Java reads it; its name."""
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return str(path)


def ask(url: str, method: str = "GET", body: object = None) -> Any:
    """What a REST interface answers, out of its JSON; None for an empty answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None
