"""The engine on PySpark: an RDD over a list of splits, one Python task per split. Only summaries go to the driver.

A Python task costs about 50 ms whatever it does, so a split covers hundreds of MiB. The tasks open the files.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from minikafka.spark import spark_master
from minikafka.spark.spark_master import VOICE, MasterUnreachable, SparkUnavailable
from minikafka.spark.spark_pods import LABEL, PodWatch, client_settings, is_kubernetes

Item = TypeVar("Item")
Result = TypeVar("Result")
Value = TypeVar("Value")
Context = TypeVar("Context")
Key = tuple[str, int]
GROUPS_A_TASK = 64
#: Options of a JVM that lives for seconds and only passes tasks on.
SIMPLE_COMPILER = "-XX:TieredStopAtLevel=1"


def _is_no_interruption(record: logging.LogRecord) -> bool:
    """py4j reports Ctrl-C with a stack trace, to the root logger, and then raises it."""
    return record.msg != "KeyboardInterrupt while sending command."


def what_spark_says(error: Exception) -> str:
    """A Spark exception as one line: the Java exception's message, without the name of the failed call."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    chosen = lines[1].removeprefix(": ") if len(lines) > 1 and lines[0].startswith("An error occurred while calling") else lines[0]
    name, found, message = chosen.partition(": ")
    return message if found and "." in name and " " not in name else chosen


def what_a_task_says(error: Exception) -> str | None:
    """A failed task as one line: the Python exception's message, from the end of two stack traces. None if the error is not Spark's."""
    if isinstance(error, SparkUnavailable):
        return str(error)
    if type(error).__name__ != "Py4JJavaError" and not type(error).__module__.startswith("pyspark."):
        return None
    given_up = re.search(rf"cancelled {spark_master.NO_EXECUTOR}(.*?)(?: SQLSTATE: \w+)?$", str(error), re.MULTILINE)
    if given_up is not None:
        return given_up[1].strip()
    found = re.search(r"No module named '([^']+)'", str(error))
    if found is not None:
        return f"a worker has no module {found[1]} (install minikafka with its extra `spark` where the executors run)"
    program = re.search(r'Cannot run program "([^"]+)"', str(error))
    if program is not None:
        return f"executors have no Python {program[1]} (set spark.pyspark.python or PYSPARK_PYTHON)"
    worker = re.search(r"Error from python worker:\n(.*?)\n\s*PYTHONPATH was", str(error), re.DOTALL)  # one that did not even start
    if worker is not None:
        return f"a Spark task failed: {worker[1].splitlines()[-1].strip()}"
    lines = [line.strip() for line in str(error).splitlines() if "Error: " in line or "Exception: " in line]
    linkage = next((line for line in lines if re.search(r"java\.lang\.(NoSuch\w+|NoClassDefFound|AbstractMethod)Error", line)), None)
    if linkage is not None:
        return f"a JAR of the packages was built for another version of Spark: {linkage.removeprefix(': ')}"
    return f"a Spark task failed: {lines[-1] if lines else what_spark_says(error)}"


def is_unreachable(error: Exception) -> bool:
    """Whether a failure means that the cluster provides no executor."""
    return isinstance(error, MasterUnreachable) or f"cancelled {spark_master.NO_EXECUTOR}" in str(error)


def under_spark_submit() -> bool:
    """Whether spark-submit started this process. It then provides the master and the properties."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def start_session(master: str | None = None, application: str = "minikafka", settings: Mapping[str, str] | None = None) -> Any:
    """A SparkSession with the settings that Python jobs need. `settings` are further Spark properties and take precedence. Under
    spark-submit only `settings` are applied. Raises SparkUnavailable.
    """
    return _session_of(start_context(master, application, settings), settings)


def _session_of(context: Any, settings: Mapping[str, str] | None) -> Any:
    """The SparkSession of a running context."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(context.appName)
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def start_context(
    master: str | None = None, application: str = "minikafka", settings: Mapping[str, str] | None = None, java_computes: bool = True
) -> Any:
    """A SparkContext with the settings of start_session. A session, which is half of the JVM's start, is not needed to run Python tasks.
    If the JVM does no more than that (`java_computes` is False), a JVM that starts here compiles simply, which takes half the CPU time.

    On local Spark, PYSPARK_PYTHON is set to this interpreter, because workers would start any `python3` in the PATH, which may lack the
    packages. On a cluster it is set only if nothing else sets it. Kubernetes executors use the `python3` of their image.
    """
    try:
        from pyspark import SparkConf, SparkContext
    except ImportError as error:
        missing = error.name or str(error)
        raise SparkUnavailable(f"the Python package {missing} is not installed (pip install pyspark pyarrow pandas)") from error
    submitted = under_spark_submit()
    if not submitted:
        _check_java()
        master = master or "local[*]"
    is_local = not submitted and (master or "").startswith("local")
    named = (settings or {}).get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = sys.executable if is_local or not named else named
    if not submitted:
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    logging.getLogger("py4j").setLevel(logging.ERROR)
    logging.getLogger().addFilter(_is_no_interruption)
    chosen = {"spark.app.name": application}
    if master:
        spark_master.probe(master)
        chosen["spark.master"] = master
    chosen |= {**({} if submitted else _settings(master or "")), **(settings or {})}
    pods = _pods_of(chosen)
    with VOICE.listen(), _java_options("" if java_computes or not is_local else SIMPLE_COMPILER):
        try:
            context = SparkContext.getOrCreate(SparkConf().setAll(list(chosen.items())))
        except Exception as error:
            reason, unreachable = spark_master.reason(VOICE.last_words(), what_spark_says(error))
            seen = pods.says()[0] if pods is not None else ""
            kind = MasterUnreachable if unreachable or seen else SparkUnavailable
            raise kind(f"Spark does not start{'' if is_local or not master else f' on {master}'}: {seen or reason}") from error
        finally:
            if pods is not None:
                pods.stop()
    if not named and is_kubernetes(context.master):
        context.pythonExec = "python3"
        del os.environ["PYSPARK_PYTHON"]  # it was set only for the JVM, not by the user
    context.setLogLevel("ERROR")
    return context


@contextlib.contextmanager
def _java_options(options: str) -> Iterator[None]:
    """Options for a JVM that is started meanwhile. Those of Spark's properties follow them, so they take precedence."""
    before = os.environ.get("SPARK_SUBMIT_OPTS")
    if options:
        os.environ["SPARK_SUBMIT_OPTS"] = f"{options} {before or ''}".strip()
    try:
        yield
    finally:
        if before is not None:
            os.environ["SPARK_SUBMIT_OPTS"] = before
        else:
            os.environ.pop("SPARK_SUBMIT_OPTS", None)


def _settings(master: str) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR",
        "spark.python.worker.reuse": "true", "spark.speculation": "false",
    }  # fmt: skip
    if master.startswith("local"):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if master == "local" or master.startswith("local["):
        settings["spark.python.daemon.module"] = "minikafka.spark.worker_daemon"  # its workers share what they import
    if master.startswith(("local", "spark:")):
        # Spark 4.1 and later: half the fixed cost of a task over TCP. In a container of YARN a socket's path becomes too long.
        settings["spark.python.unix.domain.socket.enabled"] = "true"
    if is_kubernetes(master):
        settings |= client_settings(master)
    if master.startswith("yarn"):
        settings["spark.hadoop.yarn.resourcemanager.connect.max-wait.ms"] = "30000"  # instead of a quarter of an hour
    return settings


def _pods_of(settings: Mapping[str, str]) -> PodWatch | None:
    """A PodWatch on the executors that carry the label in `settings`."""
    name = f"spark.kubernetes.executor.label.{LABEL}"
    return PodWatch((LABEL, settings[name]), settings) if name in settings else None


def _pods_in(context: Any) -> PodWatch | None:
    """A PodWatch on the executors of a Spark context on Kubernetes."""
    if not is_kubernetes(context.master):
        return None
    return PodWatch(("spark-app-selector", context.applicationId), dict(context.getConf().getAll()))


JAVA_MIN = 17


def _check_java() -> None:
    """Raise SparkUnavailable if there is no Java that this Spark can run on."""
    import re
    import subprocess

    home = os.path.join(os.environ.get("JAVA_HOME", ""), "bin", "java")
    java = home if os.environ.get("JAVA_HOME") and os.path.exists(home) else shutil.which("java")
    if java is None:
        raise SparkUnavailable(f"no Java on this machine (Spark needs Java {JAVA_MIN} or later; set JAVA_HOME or PATH)")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkUnavailable(f"{java} does not run: {error}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if found is None or int(found[1]) < JAVA_MIN:
        version = f"Java {found[1]}" if found else "a Java of unknown version"
        raise SparkUnavailable(f"{java} is {version}, Spark needs Java {JAVA_MIN} or later (set JAVA_HOME)")


def _watch(context: Any) -> spark_master.ExecutorWatch:
    return spark_master.ExecutorWatch(context, pods=_pods_in(context))


class SparkEngine:
    """Runs an audit or a load as tasks of a given Spark session or of a newly started Spark. `java_computes`: True if you use DataFrames.
    Raises SparkUnavailable."""

    name = "spark"

    def __init__(
        self, session: Any = None, master: str | None = None, settings: Mapping[str, str] | None = None, java_computes: bool = False
    ) -> None:
        self._session, self._settings = session, settings
        self._own = session is None
        self.context = (
            session.sparkContext if session is not None else start_context(master, settings=settings, java_computes=java_computes)
        )
        self._watch = _watch(self.context) if self._own else None
        self.parallelism: int = self.context.defaultParallelism
        self.is_elsewhere = not self.context.master.startswith("local[") and self.context.master != "local"

    @property
    def session(self) -> Any:
        """The SparkSession, for DataFrames. It starts when you first access it."""
        if self._session is None:
            self._session = _session_of(self.context, self._settings)
        return self._session

    def open(self) -> None:
        """Do nothing: the session already runs."""

    def map(self, function: Callable[[Item], Result], items: list[Item]) -> Iterator[Result]:
        """The results in the order of the items."""
        if not items:
            return
        yield from self._collected(self.context.parallelize(items, len(items)).mapPartitions(_Apply(function)))

    def _collected(self, rdd: Any) -> Iterator[Any]:
        try:
            results = rdd.collect()
        except Exception as error:
            seen = self._watch.what_pods_say() if self._watch is not None else ""
            if "SparkContext was shut down" in str(error) and seen:  # the executors died one after another
                raise MasterUnreachable(f"Spark gave up: {seen}") from error
            raise
        yield from results

    def gather(
        self, function: Callable[[Item], list[Value]], items: list[Item], key_of: Callable[[Value], Key],
        groups: dict[Key, tuple[Context, int]], finish: Callable[[tuple[Context, list[Value]]], Result],
        watch: Callable[[list[Value]], None], keys_of: Callable[[Item], Iterable[Key]],
    ) -> Iterator[Result]:  # fmt: skip
        """For this package: as audit.Engine.gather. The task that gets all values of its groups finishes them. Other values go from task
        to task. Only the results of `finish` come to the driver."""
        if not groups:
            return
        whole, parts, begun = _apart(items, groups, keys_of)
        rest = {key: context for key, (context, _) in groups.items() if key not in begun}
        rdds = []
        if whole:
            rdd = self.context.parallelize(whole, len(whole)).mapPartitions(_Apply(_Whole(function, key_of, finish)))
            rdds.append(rdd.mapPartitions(itertools.chain.from_iterable))
        if rest:
            rdds.append(self._shuffled(function, parts, key_of, rest, finish))
        yield from self._collected(rdds[0] if len(rdds) == 1 else rdds[0].union(rdds[1]))

    def _shuffled(
        self, function: Callable[[Item], list[Value]], items: list[Item], key_of: Callable[[Value], Key], contexts: dict[Key, Context],
        finish: Callable[[tuple[Context, list[Value]]], Result],
    ) -> Any:  # fmt: skip
        """An RDD of the results of groups whose values come from several tasks, or that have none."""
        spark, parts = self.context, self._parts(len(contexts))
        numbers = {key: number for number, key in enumerate(contexts)}
        both = spark.parallelize([(number, (True, contexts[key])) for key, number in numbers.items()], parts)
        if items:
            both = both.union(spark.parallelize(items, len(items)).flatMap(_Numbered(function, key_of, numbers)))
        return both.groupByKey(parts, partitionFunc=int).mapPartitions(_Apply(_Finish(finish)))

    def _parts(self, groups: int) -> int:
        """The number of tasks for this many groups: some tens of groups per task, and work for every core. A task costs more than the
        judgement of a few groups, so few groups get no more tasks than there are cores."""
        return min(groups, max(self.parallelism, groups // GROUPS_A_TASK))

    def close(self) -> None:
        """Stop Spark if this engine started it."""
        if self._watch is not None:
            self._watch.stop()
        if self._own:
            (self._session or self.context).stop()


def _apart(
    items: list[Item], groups: dict[Key, tuple[Context, int]], keys_of: Callable[[Item], Iterable[Key]]
) -> tuple[list[tuple[Item, dict[Key, Context]]], list[Item], set[Key]]:
    """Items that give all values of their groups, with the groups' contexts; the other items; and the groups of the first."""
    whole: list[tuple[Item, dict[Key, Context]]] = []
    parts: list[Item] = []
    begun: set[Key] = set()
    for item in items:
        counts = Counter(keys_of(item))
        if counts and all(groups[key][1] == count for key, count in counts.items()):
            whole.append((item, {key: groups[key][0] for key in counts}))
            begun.update(counts)
        else:
            parts.append(item)
    return whole, parts, begun


class _Whole:
    """Calls a function, and `finish` with each of its groups."""

    def __init__(
        self, function: Callable[[Any], list[Any]], key_of: Callable[[Any], Key], finish: Callable[[tuple[Any, list[Any]]], Any]
    ) -> None:
        self.function, self.key_of, self.finish = function, key_of, finish

    def __call__(self, work: tuple[Any, dict[Key, Any]]) -> list[Any]:
        item, contexts = work
        held: dict[Key, list[Any]] = {key: [] for key in contexts}
        for value in self.function(item):
            held[self.key_of(value)].append(value)
        return [self.finish((context, held.pop(key))) for key, context in contexts.items()]


class _Numbered:
    """Calls a function, and pairs each value with the number of its group."""

    def __init__(self, function: Callable[[Any], list[Any]], key_of: Callable[[Any], Key], numbers: dict[Key, int]) -> None:
        self.function, self.key_of, self.numbers = function, key_of, numbers

    def __call__(self, item: Any) -> list[tuple[int, tuple[bool, Any]]]:
        return [(self.numbers[self.key_of(value)], (False, value)) for value in self.function(item)]


class _Finish:
    """Calls `finish` with a group's context and its values."""

    def __init__(self, finish: Callable[[tuple[Any, list[Any]]], Any]) -> None:
        self.finish = finish

    def __call__(self, group: tuple[int, Any]) -> Any:
        contexts: list[Any] = []
        values: list[Any] = []
        for is_context, value in group[1]:
            (contexts if is_context else values).append(value)
        return self.finish((contexts[0], values))


class _Apply:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, items: Iterator[Any]) -> Iterator[Any]:
        # A Python worker collects garbage after every task. Freeze the imported modules so that they are not scanned each time.
        if gc.get_freeze_count() == 0:
            gc.freeze()
        for item in items:  # not `map`: a StopIteration inside a function would pass for the end
            yield self.function(item)
