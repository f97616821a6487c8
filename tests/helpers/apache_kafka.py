"""A real Apache Kafka for round-trip tests: its jars from Maven (kept in ~/.cache/minikafka-tests), its tools, a broker."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import random
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import IO

from minikafka.testing.wait import LoadAdjustedDeadline

#: The release that most tests run, and the one that follows it.
VERSION = "4.3.0"
NEXT = "4.4.0"
POM = Path(__file__).parents[1] / "system" / "kafka-pom.xml"
CACHE = Path.home() / ".cache" / "minikafka-tests"


@cache
def missing() -> str | None:
    """Why a real Kafka cannot run here; None if it can."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', shown.stderr + shown.stdout)
    if found is None or int(found[1]) < 17:
        return f"Java 17 or newer is needed, not {found[1] if found else 'unknown'}"
    return None


@cache
def class_path(version: str = VERSION) -> str:
    """Downloads the jars on first use and when the list of them has changed; one process at a time."""
    target = CACHE / f"kafka-{version}"
    wanted = hashlib.sha256(POM.read_bytes()).hexdigest()
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        complete = target / "complete"
        if not complete.exists() or complete.read_text() != wanted:
            command = ["mvn", "-q", "-B", "-f", str(POM), f"-Dkafka.version={version}", "dependency:copy-dependencies"]
            command += [f"-DoutputDirectory={target}", "-DincludeScope=runtime"]
            done = subprocess.run(command, capture_output=True, text=True, cwd=CACHE, check=False)
            if done.returncode:
                raise RuntimeError(f"Maven could not fetch Apache Kafka {version}:\n{done.stdout}{done.stderr}")
            complete.write_text(wanted)
    return f"{target}/*"


#: For processes that live only for seconds: no second compiler, no threads for garbage collection.
_SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def java(*options: str, heap_mb: int = 256, jars: Iterable[Path] = (), version: str = VERSION) -> list[str]:
    """The command before a main class of Apache Kafka `version` or of `jars`. Its classes come parsed and verified from an archive, so that
    a broker starts with three fifths of the processor time, a tool with half."""
    path = ":".join([class_path(version), *map(str, jars)])
    # A JVM that cannot use the archive works without it, but prints a warning between a tool's lines.
    return ["java", f"-Xmx{heap_mb}m", *_SHORT_LIVED, "-Xlog:disable", f"-XX:SharedArchiveFile={_archive(version)}", *options, "-cp", path]


@cache
def _archive(version: str) -> Path:
    """An archive of the classes of a started broker, which its JVM writes when it stops; created once per JVM and set of jars."""
    jvm = subprocess.run(["java", "-version"], capture_output=True, check=True).stderr
    path = class_path(version)
    archive = CACHE / f"kafka-{version}-{hashlib.sha256(jvm + path.encode() + POM.read_bytes()).hexdigest()[:16]}.jsa"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as directory:
                made = Path(directory) / "classes.jsa"
                command = ["java", "-Xmx256m", *_SHORT_LIVED, "-Xlog:disable", f"-XX:ArchiveClassesAtExit={made}", "-cp", path]
                broker = KafkaBroker(Path(directory), command=["java", *_SHORT_LIVED, "-cp", path])
                broker.format()
                broker.command = command
                with broker.running(stop_s=180):
                    pass
                made.touch()  # a JVM that can write none reads none either
                made.rename(archive)
    return archive


def prepare() -> None:
    """Download and create what is needed once per machine. It takes longer than a test may."""
    _archive(VERSION)


def run_tool(main_class: str, *arguments: str, version: str = VERSION, timeout_s: float | None = None) -> str:
    """Output of a Kafka tool; raises RuntimeError if it fails, and subprocess.TimeoutExpired, after its end, if it takes too long."""
    return _run([*java(version=version), main_class, *arguments], timeout_s)


def _run(command: list[str], timeout_s: float | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def dump_log(files: list[Path], *options: str) -> str:
    """Output of DumpLogSegments."""
    names = ",".join(str(file) for file in files)
    return run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", names, *options)


#: Locked files of the ports that this process has given out.
_given_out: list[IO[str]] = []


def free_ports(count: int) -> list[int]:
    """Free ports below the kernel's range for clients, so that no client takes one before its node has started. They are this process's
    until it ends, so that another one does not take a port while its node restarts."""
    directory = Path(tempfile.gettempdir()) / "minikafka-test-ports"
    directory.mkdir(exist_ok=True)
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(12_000, 32_000)
        with ExitStack() as stack, contextlib.suppress(OSError):
            lock = stack.enter_context((directory / str(port)).open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            socket.create_server(("127.0.0.1", port), reuse_port=False).close()
            stack.pop_all()
            _given_out.append(lock)
            found.append(port)
    return found


def wait_until(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Ask again, at most 10 times a second, until `condition()` is true."""
    deadline = LoadAdjustedDeadline(timeout_s)
    waiter = socket.socketpair()
    try:
        waiter[0].settimeout(0.1)
        while not condition():
            if deadline.is_over:
                raise TimeoutError(f"{what} took longer than {timeout_s} s")
            with_timeout(waiter[0])
    finally:
        for end in waiter:
            end.close()


def with_timeout(waiter: socket.socket) -> None:
    """Let other processes go on for the socket's timeout."""
    try:
        waiter.recv(1)
    except TimeoutError:
        return


class KafkaBroker:
    """One combined broker and controller on a directory of its own. `format` once, then `running` any number of times."""

    def __init__(
        self, directory: Path, properties: Mapping[str, str] | None = None, command: list[str] | None = None, version: str = VERSION
    ) -> None:
        """`command` is the command line before its main classes."""
        self.command = java(heap_mb=384, version=version) if command is None else command
        self.data = directory / "data"
        self._directory = directory
        broker, controller = free_ports(2)
        self.bootstrap = f"127.0.0.1:{broker}"
        self._properties = directory / "server.properties"
        directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.ms": "-1",
            "log.cleaner.dedupe.buffer.size": "10485760",
            **(properties or {}),
        }
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def format(self, cluster_id: str = "minikafka-round-tripAA", *, release: str | None = None) -> None:
        """Format the directories, with the features of an older `release` if it is given."""
        options = ["--release-version", release] if release else []
        _run([*self.command, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._properties), *options])

    @contextmanager
    def running(self, stop_s: float = 30) -> Iterator[subprocess.Popen[bytes]]:
        """A broker that answers; stopped cleanly at the end. It has `stop_s` to stop, and twice that to start."""
        output = (self._directory / "output.txt").open("ab")
        process = subprocess.Popen([*self.command, "kafka.Kafka", str(self._properties)], stdout=output, stderr=output)
        try:
            wait_until(lambda: self._answers(process), 2 * stop_s, "the start of Apache Kafka")
            yield process
        finally:
            process.terminate()
            try:
                process.wait(stop_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            output.close()

    def output(self) -> str:
        return (self._directory / "output.txt").read_text(errors="replace")

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"Apache Kafka ended with status {process.returncode}:\n{self.output()[-4000:]}")
        host, _, port = self.bootstrap.partition(":")
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            return False
        return True
