"""What Spark expects of an image on Kubernetes: it is run as `driver ARGUMENT...` or as `executor`, with the rest in the environment
(https://spark.apache.org/docs/latest/running-on-kubernetes.html). Anything else is run as it is.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"


def command(arguments: list[str], environment: Mapping[str, str]) -> list[str]:
    """What the container runs."""
    home = environment["SPARK_HOME"]
    if arguments[:1] == ["driver"]:
        bind = f"spark.driver.bindAddress={environment['SPARK_DRIVER_BIND_ADDRESS']}"
        return [f"{home}/bin/spark-submit", "--conf", bind, "--deploy-mode", "client", *arguments[1:]]
    if arguments[:1] != ["executor"]:
        return arguments or ["minikafka", "--help"]
    numbered = sorted((int(name[15:]), value) for name, value in environment.items() if re.fullmatch(r"SPARK_JAVA_OPT_\d+", name))
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    java = f"{environment['JAVA_HOME']}/bin/java" if environment.get("JAVA_HOME") else "java"
    classpath = [environment.get("SPARK_CONF_DIR") or f"{home}/conf", f"{home}/jars/*", environment.get("SPARK_EXTRA_CLASSPATH", "")]
    return [
        java, *(option for _, option in numbered), f"-Xms{memory}", f"-Xmx{memory}", "-cp", ":".join(filter(None, classpath)), BACKEND,
        "--driver-url", environment["SPARK_DRIVER_URL"], "--executor-id", environment["SPARK_EXECUTOR_ID"],
        "--cores", environment["SPARK_EXECUTOR_CORES"], "--app-id", environment["SPARK_APPLICATION_ID"],
        "--hostname", environment["SPARK_EXECUTOR_POD_IP"], "--resourceProfileId", environment["SPARK_RESOURCE_PROFILE_ID"],
        "--podName", environment["SPARK_EXECUTOR_POD_NAME"],
    ]  # fmt: skip


if __name__ == "__main__":
    wanted = command(sys.argv[1:], os.environ)
    os.execvp("tini", ["tini", "-s", "--", *wanted])
