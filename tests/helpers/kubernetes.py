"""The Kubernetes of the current kubeconfig as a cluster of Spark, and brokers that its pods reach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from helpers.spark_clusters import SparkCluster, spark_home

from minikafka.spark.spark_pods import own_address
from minikafka.testing.cluster import ClusterNode, ProcessCluster, free_ports

ROOT = Path(__file__).parents[2]
SUBMIT = "local:///opt/minikafka/submit.py"


def kubectl(*arguments: str, check: bool = True) -> str:
    """What it prints."""
    done = subprocess.run(["kubectl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout


class Kubernetes(SparkCluster):
    """A namespace of its own, with the service account of docker/spark/rbac.yaml; gone at the end.

    `image`: made from docker/spark/Dockerfile, and to be had by the nodes.
    """

    def __init__(self, directory: Path, image: str) -> None:
        super().__init__(directory)
        self.namespace = f"minikafka-{uuid.uuid4().hex[:8]}"
        for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
            self.environment.pop(name)
        self.confs = {
            "spark.kubernetes.container.image": image, "spark.kubernetes.namespace": self.namespace, "spark.executor.instances": "2",
            "spark.executor.memory": "512m", "spark.kubernetes.executor.request.cores": "100m",
        }  # fmt: skip

    def _start(self) -> None:
        server = kubectl("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
        self.master = f"k8s://{server}"
        self.host = own_address(self.master) or ""
        kubectl("create", "namespace", self.namespace)
        self._stack.callback(kubectl, "delete", "namespace", self.namespace, "--wait=false")
        kubectl("-n", self.namespace, "apply", "-f", str(ROOT / "docker" / "spark" / "rbac.yaml"))

    def mounted(self, directory: Path, path: str, *of: str) -> dict[str, str]:
        """Properties that show `directory` of the nodes as `path` to pods of the kinds `of` ("executor", "driver")."""
        directory.chmod(0o755)
        name = uuid.uuid4().hex[:8]
        found = {}
        for kind in of:
            volume = f"spark.kubernetes.{kind}.volumes.hostPath.{name}"
            found |= {f"{volume}.mount.path": path, f"{volume}.mount.readOnly": "true", f"{volume}.options.path": str(directory)}
        return found

    def start_minikafka(self, *arguments: str) -> subprocess.Popen[str]:
        """The command line, on this cluster."""
        command = [sys.executable, "-m", "minikafka", *arguments, "--master", self.master, *_confs(self.confs)]
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def submit_inside(self, file: str, *arguments: str) -> tuple[int, str]:
        """spark-submit --deploy-mode cluster: the exit status of the driver's container, and its log."""
        pod = f"driver-{uuid.uuid4().hex[:8]}"
        inside = {**self.confs, "spark.kubernetes.authenticate.driver.serviceAccountName": "spark", "spark.driver.memory": "1g",
                  "spark.kubernetes.driver.request.cores": "100m", "spark.kubernetes.driver.pod.name": pod}  # fmt: skip
        command = [str(spark_home() / "bin" / "spark-submit"), "--master", self.master, "--deploy-mode", "cluster"]
        command += [*_confs(inside), file, *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        state = json.loads(kubectl("-n", self.namespace, "get", "pod", pod, "-o", "json"))["status"]["containerStatuses"][0]["state"]
        return state["terminated"]["exitCode"], kubectl("-n", self.namespace, "logs", pod)

    def executors(self) -> list[str]:
        """Names of running pods."""
        chosen = ["-l", "spark-role=executor", "--field-selector", "status.phase=Running"]
        return kubectl("-n", self.namespace, "get", "pods", *chosen, "-o", "name").split()


def _confs(confs: dict[str, str]) -> list[str]:
    return [part for name, value in confs.items() for part in ("--conf", f"{name}={value}")]


class ReachableCluster(ProcessCluster):
    """Brokers with one more listener, on an address of this machine that pods reach."""

    def __init__(self, host: str, **options: Any) -> None:
        super().__init__(**options)
        self._host, self._pod_ports = host, dict(zip(self.nodes, free_ports(len(self.nodes)), strict=True))

    def _node_properties(self, node: ClusterNode) -> dict[str, str]:
        properties = super()._node_properties(node)
        for name in ("listeners", "advertised.listeners"):
            properties[name] += f",PODS://{self._host}:{self._pod_ports[node.node_id]}"
        properties["listener.security.protocol.map"] += ",PODS:PLAINTEXT"
        return properties

    @property
    def bootstrap_of_pods(self) -> str:
        """`bootstrap.servers` for pods."""
        return ",".join(f"{self._host}:{port}" for port in self._pod_ports.values())


def image_of_spark() -> str:
    """The image to test, from MINIKAFKA_SPARK_IMAGE."""
    image = os.environ.get("MINIKAFKA_SPARK_IMAGE", "")
    assert image, "MINIKAFKA_SPARK_IMAGE names no image; see tests/spark/kubernetes/README.md"
    return image
