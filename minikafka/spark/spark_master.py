"""Whether a Spark cluster can be reached, why Spark did not start, whether anybody takes the job: what Spark says late or nowhere."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from minikafka.addresses import split_host_port
from minikafka.spark.spark_pods import PodWatch


class SparkUnavailable(Exception):
    """Spark cannot run here; the text is one line that says what is missing."""


class MasterUnreachable(SparkUnavailable):
    """The cluster that was named does not answer."""


PROBE_SECONDS = 5.0
#: Begins the reason for which a job is cancelled that no executor will ever take.
NO_EXECUTOR = "NO EXECUTOR: "
SILENCE_SECONDS = 20.0
#: What Spark's JVM writes on standard error when it gives up, most telling first. True: the cluster does not answer.
_REASONS = (
    (re.compile(r"Reason: (All masters are unresponsive)"), True),
    (re.compile(r"ExecutorPodsLifecycleManager: (Max number of executor failures \(\d+\) reached)"), True),
    (re.compile(r"(?:ConnectException|ConnectTimeoutException|UnknownHostException|NoRouteToHostException): (.+)"), True),
    (re.compile(r"((?:unresolved dependency|download failed): [^]\n]+)"), False),
    (re.compile(r"Exception in thread \"main\" (?:[\w.$]+: )?(.+)"), False),
    (re.compile(r"^Error: (.+)", re.MULTILINE), False),
    (re.compile(r"ERROR SparkContext: .*\n(?:[\w.$]+: )?(.+)"), False),
)


def probe(master: str, timeout_s: float = PROBE_SECONDS) -> None:
    """Connect to a standalone master, which Spark itself tries for a minute and then blames on something else; other kinds are not tried.

    `master`: spark://HOST:PORT[,HOST:PORT...], one of which has to answer. Raises MasterUnreachable, SparkUnavailable.
    """
    if not master.startswith("spark://"):
        return
    refused = ""
    for place in master.removeprefix("spark://").split(","):
        try:
            address = split_host_port(place)
        except ValueError:
            raise SparkUnavailable(f"--master {master}: expected spark://HOST:PORT") from None
        try:
            socket.create_connection(address, timeout_s).close()
        except OSError as error:
            refused = refused or f"{getattr(error, 'strerror', None) or error}"
        else:
            return
    raise MasterUnreachable(f"no Spark master answers at {master}: {refused}")


class JvmVoice:
    """The last of what a JVM, and the Python workers that it starts, wrote on standard error; nobody else sees it."""

    KEPT_BYTES = 1 << 18

    def __init__(self) -> None:
        self._heard = bytearray()

    @contextlib.contextmanager
    def listen(self) -> Iterator[None]:
        """Descriptor 2 is a pipe to here meanwhile; a JVM that is started inherits it for its life."""
        sys.stderr.flush()
        ears, mouth = os.pipe()
        saved = os.dup(2)
        os.dup2(mouth, 2)
        os.close(mouth)
        threading.Thread(target=self._hear, args=(ears,), name="jvm-stderr", daemon=True).start()
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)

    def _hear(self, ears: int) -> None:
        while said := os.read(ears, 1 << 16):
            self._heard += said
            del self._heard[: -self.KEPT_BYTES]
        os.close(ears)

    def last_words(self) -> str:
        """What is kept of it, when nothing has been added for a tenth of a second."""
        count = -1
        while count != (count := len(self._heard)):
            time.sleep(0.1)
        return self._heard.decode(errors="replace")


VOICE = JvmVoice()


def reason(said: str, otherwise: str) -> tuple[str, bool]:
    """Why Spark did not start, in one line, and whether it is because the cluster does not answer."""
    for pattern, unreachable in _REASONS:
        found = pattern.search(said)
        if found is not None:
            return found[1].split("; For more details")[0].split(". Received status:")[0].strip().rstrip("."), unreachable
    if "stopped SparkContext" in otherwise:  # started by spark-submit, whose output is not ours
        return "the cluster does not answer, or it gave up on the application; Spark's own log says why", True
    return otherwise, False


class ExecutorWatch:
    """Says once that a job waits and no executor of the cluster has come: Spark waits for ever, and says so only in its own log.

    `pods`, on Kubernetes: what they say is told, and where waiting cannot help the jobs are cancelled for that reason.
    """

    def __init__(self, context: Any, silence_s: float = SILENCE_SECONDS, pods: PodWatch | None = None) -> None:
        self._context, self._silence_s, self._pods = context, silence_s, pods
        self._stop = threading.Event()
        if not context.master.startswith("local"):
            threading.Thread(target=self._run, name="executor-watch", daemon=True).start()

    def stop(self) -> None:
        """End it."""
        self._stop.set()
        if self._pods is not None:
            self._pods.stop()

    def what_pods_say(self) -> str:
        """What keeps executors from coming, as far as their pods told it; "" where that is not known."""
        return self._pods.says()[0] if self._pods is not None else ""

    def _run(self) -> None:
        waited, reported = 0.0, ""
        with contextlib.suppress(Exception):  # the session ends whenever it likes
            while not self._stop.wait(1.0):
                if self._context._jsc.sc().getExecutorMemoryStatus().size() > 1:  # the driver is one
                    break
                jobs = list(self._context.statusTracker().getActiveJobsIds())
                waited = waited + 1.0 if jobs else 0.0
                if waited < self._silence_s:
                    continue
                seen, hopeless = self._pods.says() if self._pods is not None else ("", False)
                if hopeless:
                    for job in jobs:
                        self._context._jsc.sc().cancelJob(job, f"{NO_EXECUTOR}{self._context.master} provides no executor: {seen}")
                elif reported != (reported := seen or "are there workers with free cores and memory, and can they reach this driver "
                              "(spark.executor.memory, spark.cores.max, spark.driver.host)?"):  # fmt: skip
                    sys.stderr.write(f"minikafka: {self._context.master} has given no executor for {waited:.0f} s; {reported}; waiting\n")
        if self._pods is not None:
            self._pods.stop()
