"""Kubernetes without one: what a driver tells its executors, what pods say, the image's entry point. The real thing: kubernetes/."""

from __future__ import annotations

import importlib.util
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from minikafka.spark import spark_pods
from minikafka.spark.engine_spark import is_unreachable, what_a_task_says
from minikafka.spark.spark_master import ExecutorWatch, MasterUnreachable, reason
from minikafka.spark.spark_pods import LABEL, cause, client_settings, is_kubernetes, own_address, what_pods_say

ROOT = Path(__file__).parents[2]


def pod(name: str, *conditions: dict[str, str], **state: Any) -> dict[str, Any]:
    """As Kubernetes gives it in JSON, cut to what is read."""
    containers = [{"name": "spark-kubernetes-executor", "image": "i:1", "state": state}] if state else []
    return {"metadata": {"name": name}, "status": {"conditions": list(conditions), "containerStatuses": containers}}


LOG = """26/11/21 20:29:46 ERROR KubernetesExecutorBackend: Error
Exception in thread "main" java.lang.reflect.UndeclaredThrowableException
\tat org.apache.hadoop.security.UserGroupInformation.doAs(UserGroupInformation.java:1948)
Caused by: java.io.IOException: Failed to connect to vm:35777
\tat org.apache.spark.network.client.TransportClientFactory.createClient(TransportClientFactory.java:321)
Caused by: java.net.UnknownHostException: vm
\tat java.base/java.net.InetAddress$CachedAddresses.get(InetAddress.java:801)
\t... 9 more
"""
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: 1 Insufficient memory."}


@pytest.mark.parametrize(("pods", "expected"), [
    ([], ("", False)),
    ([{"metadata": {"name": "a"}}], ("", False)),
    ([pod("a", running={"startedAt": "now"})], ("", False)),
    ([pod("a", waiting={"reason": "ContainerCreating"})], ("", False)),
    ([pod("a", terminated={"exitCode": 0})], ("", False)),
    ([pod("a", waiting={"reason": "ImagePullBackOff", "message": "Back-off pulling\n image \"i:1\""})],
     ("executor pod a: ImagePullBackOff: Back-off pulling image \"i:1\"", True)),
    ([pod("a", waiting={"reason": "InvalidImageName"})], ("executor pod a: InvalidImageName: i:1", True)),
    ([pod("a", UNSCHEDULABLE)], ("executor pod a is not scheduled: 0/1 nodes: 1 Insufficient memory.", False)),
    ([pod("b", terminated={"exitCode": 137, "reason": "OOMKilled"})], ("executor pod b ended with status 137: OOMKilled", False)),
    ([pod("b", terminated={"exitCode": 1, "reason": "Error"}), pod("c", UNSCHEDULABLE), pod("d", waiting={"reason": "ErrImagePull"})],
     ("executor pod d: ErrImagePull: i:1", True)),
])  # fmt: skip
def test_messages_of_pods(pods: list[Any], expected: tuple[str, bool]) -> None:
    assert what_pods_say(pods, {}) == expected


def test_an_executor_that_ends_says_why_in_its_log() -> None:
    said, hopeless = what_pods_say([pod("a", terminated={"exitCode": 1, "reason": "Error"})], {"a": LOG})
    assert said == (
        "executor pod a ended with status 1: java.net.UnknownHostException: vm (pods must be able to reach this driver: "
        "--conf spark.driver.host=ADDRESS)"
    )
    assert not hopeless  # Spark counts the failures, and gives up by itself
    assert cause("all is well\n") == ""
    assert cause("x\njava.lang.OutOfMemoryError: Java heap space\n") == "java.lang.OutOfMemoryError: Java heap space"


def test_the_watch_reads_so_many_logs_each_time() -> None:
    read: list[str] = []

    class Pods:
        def withLabel(self, name: str, value: str) -> Pods:
            return self

        def list(self) -> str:
            return json.dumps({"items": [{**pod(name), "status": {"phase": "Running"}} for name in "abcd"]})

        def withName(self, name: str) -> Pods:
            read.append(name)
            return self

        def tailingLines(self, count: int) -> Pods:
            return self

        def getLog(self) -> str:
            return LOG

    watch = spark_pods.PodWatch((LABEL, "x"), {})
    watch.stop()
    watch._look(Pods(), type("Serialization", (), {"asJson": staticmethod(str)}))
    assert len(read) == spark_pods.LOGS_EACH_MAX and len(watch._pods) == 4


def test_a_driver_has_an_address_that_others_may_reach() -> None:
    assert own_address("k8s://https://127.0.0.1:6443") not in {"127.0.0.1", "127.0.1.1"}
    assert own_address("k8s://localhost") == own_address("k8s://https://127.0.0.1:6443")
    settings = client_settings("k8s://https://127.0.0.1:6443")
    assert len(settings.pop(f"spark.kubernetes.executor.label.{LABEL}")) == 32
    assert settings in ({}, {"spark.driver.host": own_address("k8s://127.0.0.1")})
    assert is_kubernetes("k8s://x") and not is_kubernetes("yarn") and not is_kubernetes(None)


def test_a_job_that_no_executor_will_take_is_cancelled_for_what_the_pods_say() -> None:
    seen: list[tuple[int, str]] = []
    stopped = threading.Event()

    class Pods:
        def says(self) -> tuple[str, bool]:
            return "executor pod a: ErrImagePull: i:1", True

        def stop(self) -> None:
            stopped.set()

    class Context:
        """As much of a SparkContext as is looked at."""

        master = "k8s://here"

        @property
        def _jsc(self) -> Context:
            return self

        sc = getExecutorMemoryStatus = statusTracker = lambda self: self

        def size(self) -> int:
            return 2 if seen else 1

        def getActiveJobsIds(self) -> list[int]:
            return [7]

        def cancelJob(self, job: int, why: str) -> None:
            seen.append((job, why))

    watch = ExecutorWatch(Context(), silence_s=1.0, pods=Pods())  # type: ignore[arg-type]
    assert watch.what_pods_say() == "executor pod a: ErrImagePull: i:1"
    assert stopped.wait(10) and [job for job, _ in seen] == [7]
    wrapped = (
        "An error occurred while calling z:x.\n: org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] "
        f"Job 7 cancelled {seen[0][1]} SQLSTATE: XXKDA\n\tat y"
    )
    error = type("Py4JJavaError", (Exception,), {})(wrapped)
    assert what_a_task_says(error) == "k8s://here provides no executor: executor pod a: ErrImagePull: i:1"
    assert is_unreachable(error) and is_unreachable(MasterUnreachable("x"))
    no_python = type(error)('x\n\tat y\nCaused by: java.io.IOException: Cannot run program "/p": error=2, No such file\n\tat z')
    assert not is_unreachable(no_python)
    assert what_a_task_says(no_python) == "executors have no Python /p (set spark.pyspark.python or PYSPARK_PYTHON)"
    assert what_a_task_says(MasterUnreachable("Spark gave up: x")) == "Spark gave up: x"


@pytest.mark.parametrize(("said", "expected"), [
    ("26/11/21 ERROR ExecutorPodsLifecycleManager: Max number of executor failures (3) reached\n",
     ("Max number of executor failures (3) reached", True)),
    ("Exception in thread \"main\" io.x.ClientException: Message: configmaps is forbidden: User \"u\" cannot. Received status: S(\n",
     ("Message: configmaps is forbidden: User \"u\" cannot", False)),
])  # fmt: skip
def test_why_spark_does_not_start_there(said: str, expected: tuple[str, bool]) -> None:
    assert reason(said, "") == expected


def entry_point() -> Any:
    found = importlib.util.spec_from_file_location("entrypoint", ROOT / "docker" / "spark" / "entrypoint.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_image_runs_drivers_and_executors() -> None:
    command = entry_point().command
    home = {"SPARK_HOME": "/s"}
    assert command(["driver", "--class", "x"], {**home, "SPARK_DRIVER_BIND_ADDRESS": "10.1.2.3"}) == [
        "/s/bin/spark-submit", "--conf", "spark.driver.bindAddress=10.1.2.3", "--deploy-mode", "client", "--class", "x",
    ]  # fmt: skip
    executor = {
        **home, "SPARK_JAVA_OPT_10": "-Db=10", "SPARK_JAVA_OPT_2": "-Da=2 3", "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_DRIVER_URL": "spark://d",
        "SPARK_EXECUTOR_ID": "1", "SPARK_EXECUTOR_CORES": "2", "SPARK_APPLICATION_ID": "app", "SPARK_EXECUTOR_POD_IP": "10.1.2.4",
        "SPARK_RESOURCE_PROFILE_ID": "0", "SPARK_EXECUTOR_POD_NAME": "p", "SPARK_CONF_DIR": "/c", "JAVA_HOME": "/j",
    }  # fmt: skip
    given = command(["executor"], executor)
    assert given[:7] == ["/j/bin/java", "-Da=2 3", "-Db=10", "-Xms512m", "-Xmx512m", "-cp", "/c:/s/jars/*"]
    assert given[8:] == [
        "--driver-url", "spark://d", "--executor-id", "1", "--cores", "2", "--app-id", "app", "--hostname", "10.1.2.4",
        "--resourceProfileId", "0", "--podName", "p",
    ]  # fmt: skip
    assert command(["minikafka", "audit"], home) == ["minikafka", "audit"]


@pytest.mark.parametrize(("settings", "expected"), [({}, "python3"), ({"spark.pyspark.python": "/its/own/python"}, "/its/own/python")])
def test_executors_of_kubernetes_have_a_python_of_their_own(
    settings: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of this process's means nothing in their image."""
    pytest.importorskip("pyspark")
    import pyspark

    from minikafka.spark import engine_spark

    class Context:
        """What start_context asks of a SparkContext."""

        chosen: dict[str, str] = {}
        pythonExec = ""
        master = "k8s://https://127.0.0.1:6443"

        @classmethod
        def getOrCreate(cls, conf: Any) -> Context:
            cls.chosen = dict(conf.getAll())
            context = cls()
            context.pythonExec = os.environ["PYSPARK_PYTHON"]
            return context

        def setLogLevel(self, _: str) -> None: ...

    monkeypatch.setattr(pyspark, "SparkContext", Context)
    monkeypatch.setattr(engine_spark, "_check_java", lambda: None)
    for name in ("PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "")  # what is set meanwhile is undone
    context = engine_spark.start_context("k8s://https://127.0.0.1:6443", settings=settings)
    assert context.pythonExec == expected
    assert os.environ.pop("PYSPARK_PYTHON", "") == settings.get("spark.pyspark.python", "")
    assert f"spark.kubernetes.executor.label.{LABEL}" in context.chosen
