"""Sets the suite up (jars by Maven, the shim by the compiler among them) and runs its classes in JVMs, one after the other."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helpers import apache_kafka

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: What brokers of minikafka have, for clusters that the kits format with everything that Kafka's own tests have.
FEATURES = {
    "metadata.version": 33,
    "kraft.version": 1,
    "group.version": 1,
    "transaction.version": 2,
    "eligible.leader.replicas.version": 1,
    "share.version": 1,
    "streams.version": 1,
}
JAVA = ["-XX:+EnableDynamicAgentLoading", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx900m"]
LOG4J = """\
rootLogger.level=warn
rootLogger.appenderRef.c.ref=C
appender.c.type=Console
appender.c.name=C
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=[%d] %p %m (%c)%n
"""
MANIFEST = """\
Manifest-Version: 1.0
Premain-Class: kafkasuite.Agent
Can-Redefine-Classes: true
Can-Retransform-Classes: true
"""
KINDS = ("minikafka", "kafka", "inprocess")


@dataclass(slots=True, frozen=True)
class Options:
    """How to run classes. `methods` is a regular expression; `kind` says whose brokers: those of minikafka, processes of Apache Kafka,
    or Apache Kafka inside of the tests' process, as its own build runs them. `node_libraries`: jars of another version for its
    processes."""

    kind: str = "minikafka"
    methods: str = ""
    test_timeout_s: int = 150
    class_timeout_s: int = 900
    combined: bool = False
    consumer_protocol: bool = True
    node_libraries: Path | None = None


@dataclass(slots=True, frozen=True)
class Installed:
    """The directory of Apache Kafka's jars, and that of the shim."""

    libraries: Path
    shim: Path

    @property
    def class_path(self) -> str:
        """For java -cp."""
        return f"{self.shim / 'shim.jar'}:{self.libraries}/*"


def missing() -> str | None:
    """Why the suite cannot run here; None if it can."""
    return apache_kafka.missing()


def classes() -> list[str]:
    """Every class of classes.txt, in its order."""
    lines = (HERE / "classes.txt").read_text().splitlines()
    return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]


def set_up() -> Installed:
    """What the suite runs with; made on first use, and again when its sources have changed. One process at a time."""
    sources = sorted((HERE / "java").rglob("*.java"))
    apache_kafka.CACHE.mkdir(parents=True, exist_ok=True)
    with (apache_kafka.CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        libraries = _made("kafka-suite-libs", [HERE / "pom.xml"], _jars)
        return Installed(libraries, _made("kafka-suite-shim", sources, lambda directory: _compile(directory, libraries, sources)))


def _made(name: str, sources: Sequence[Path], make: Callable[[Path], None]) -> Path:
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    directory = apache_kafka.CACHE / f"{name}-{digest}"
    if not (directory / "complete").exists():
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        make(directory)
        (directory / "complete").touch()
    return directory


def _jars(directory: Path) -> None:
    command = ("mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={directory}")
    _run(*command, "-DexcludeArtifactIds=bcprov-jdk15on")  # old, and before the newer one by its name


def _compile(directory: Path, libraries: Path, sources: Sequence[Path]) -> None:
    out = directory / "classes"
    (directory / "log4j2.properties").write_text(LOG4J)
    jars = ":".join(str(path) for path in sorted(libraries.glob("*.jar")))
    compiler = ("java", "-cp", f"{libraries}/*", "org.eclipse.jdt.internal.compiler.batch.Main")
    _run(*compiler, "-17", "-nowarn", "-proc:none", "-d", str(out), "-cp", jars, *map(str, sources))
    with zipfile.ZipFile(directory / "shim.jar", "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", MANIFEST)
        archive.writestr("META-INF/services/org.junit.jupiter.api.extension.Extension", "kafkasuite.Selection\n")
        for path in sorted(out.rglob("*.class")):
            archive.write(path, path.relative_to(out))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


@contextmanager
def launcher(work: Path) -> Iterator[Path]:
    """The socket of a process that starts nodes of minikafka; they end with it. Its name is short: the system allows 107 bytes."""
    sockets = tempfile.TemporaryDirectory(prefix="ks-")
    address = Path(sockets.name) / "launcher"
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(HERE / "launcher.py"), str(address)]
    environment = {**os.environ, "PYTHONPATH": path}
    # Tests name directories as seen from where they run.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, cwd=work)
    assert process.stdin and process.stdout
    try:
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the launcher of nodes does not start")
        yield address
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(60)
        sockets.cleanup()


def run_classes(names: Sequence[str], results: Path, work: Path, options: Options) -> int:
    """Run classes one after the other in one JVM, in `work` (nodes' properties and logs, the JVM's output `output.log`); lines are
    appended to `results`. Returns the JVM's exit status, 124 when it was killed for its time."""
    installed, work = set_up(), work.absolute()
    (work / "tmp").mkdir(parents=True)
    with launcher(work) as address:
        command = ["java", *JAVA, *_settings(installed, work, address, options)]
        if options.kind != "inprocess":
            command.append(f"-javaagent:{installed.shim / 'shim.jar'}")
        command += ["-cp", installed.class_path, "kafkasuite.Recorder", str(results.absolute()), *names]
        with (work / "output.log").open("w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=work)
            try:
                return process.wait(options.class_timeout_s * len(names))
            except subprocess.TimeoutExpired:
                return 124
            finally:
                process.kill()
                process.wait()


def _settings(installed: Installed, work: Path, address: Path, options: Options) -> list[str]:
    settings = {
        "java.io.tmpdir": work / "tmp",
        "log4j2.configurationFile": installed.shim / "log4j2.properties",
        "kafkasuite.libs": options.node_libraries or installed.libraries,
        "kafkasuite.work": work,
        "kafkasuite.methods": options.methods,
        "kafkasuite.test.timeout": f"{options.test_timeout_s} s",
        "kafkasuite.combined": str(options.combined).lower(),
        "kafkasuite.consumer": str(options.consumer_protocol).lower(),
    }
    if options.kind == "minikafka":
        settings["kafkasuite.launcher"] = address
        settings["kafkasuite.features"] = ",".join(f"{name}={level}" for name, level in FEATURES.items())
    return [f"-D{name}={value}" for name, value in settings.items()]
