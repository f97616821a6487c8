"""Kubernetes: where executors find this driver, and what their pods say while none has come. Spark itself says it only in their logs, and
removes those with the pods."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

LABEL = "minikafka-driver"
POLL_SECONDS = 0.5
LOGS_EACH_MAX = 2
LOG_LINES = 200
NAMESPACE = "spark.kubernetes.namespace"
CONTEXT = "spark.kubernetes.context"
#: Why a container waits that will not begin by waiting (kubelet's images and kuberuntime packages).
_HOPELESS = {
    "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "CreateContainerConfigError",
    "CreateContainerError", "RunContainerError",
}  # fmt: skip
#: An address of documentation (RFC 5737): nothing is sent there, it stands for what is not on this machine.
_ELSEWHERE = "198.51.100.1"


def is_kubernetes(master: str | None) -> bool:
    """Whether `master` is k8s://[https://|http://]HOST[:PORT]."""
    return (master or "").startswith("k8s:")


def own_address(master: str) -> str | None:
    """This machine's address on the way to the API server, or on the way out where that is this machine: unlike its name, pods know it.

    None when there is no such way. Connecting a datagram socket sends nothing.
    """
    url = master.removeprefix("k8s://")
    host = urlsplit(url if "://" in url else f"https://{url}").hostname
    for target in filter(None, (host, _ELSEWHERE)):
        with contextlib.suppress(OSError):
            family, kind, _, _, place = socket.getaddrinfo(target, 443, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as probe:
                probe.connect(place)
                found = str(probe.getsockname()[0])
            if not found.startswith("127.") and found != "::1":
                return found
    return None


def client_settings(master: str) -> dict[str, str]:
    """Properties of a driver outside of any spark-submit: an address that pods can connect to, and a label on its executors."""
    address = own_address(master)
    return {f"spark.kubernetes.executor.label.{LABEL}": uuid.uuid4().hex, **({"spark.driver.host": address} if address else {})}


def what_pods_say(pods: list[Mapping[str, Any]], logs: Mapping[str, str]) -> tuple[str, bool]:
    """One line of what keeps executors from coming ("" if nothing is seen), and whether waiting cannot help.

    `pods`: Kubernetes' own objects as it gives them in JSON. `logs`: the end of a pod's log by its name.
    """
    lines: list[tuple[int, str, bool]] = []
    for pod in pods:
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        for condition in status.get("conditions") or []:
            if condition.get("reason") == "Unschedulable":
                lines.append((1, f"executor pod {name} is not scheduled: {condition.get('message', '')}", False))
        for container in status.get("containerStatuses") or []:
            state = container.get("state") or {}
            waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
            if waiting.get("reason") in _HOPELESS:
                text = f"executor pod {name}: {waiting['reason']}: {waiting.get('message') or container.get('image', '')}"
                lines.append((0, text, True))
            elif ended.get("exitCode"):
                why = cause(logs.get(name, "")) or ended.get("message") or ended.get("reason") or "its log is empty"
                lines.append((2, f"executor pod {name} ended with status {ended['exitCode']}: {why}", False))
    if not lines:
        return "", False
    _, text, hopeless = min(lines)
    return " ".join(text.split()), hopeless


def cause(log: str) -> str:
    """The innermost exception in the end of an executor's log, with what to do where that is known."""
    found = re.findall(r"^Caused by: (.+)$", log, re.MULTILINE) or re.findall(r"(\S*(?:Exception|Error): .+)$", log, re.MULTILINE)
    if not found:
        return ""
    text = str(found[-1]).strip()
    if re.search(r"UnknownHost|ConnectException|ConnectTimeout|NoRouteToHost|Connection refused|timed out", text):
        text += " (pods must be able to reach this driver: --conf spark.driver.host=ADDRESS)"
    return text


class PodWatch:
    """Looks at the executors' pods twice a second until it is stopped, and keeps what was seen of those that are gone.

    `label`: name and value that those pods have; `settings`: properties of Spark. Uses the client that Spark brings, in its JVM, and the
    current context of the kubeconfig (in a pod its service account), as Spark does. Without it nothing is known, and nothing fails.
    """

    def __init__(self, label: tuple[str, str], settings: Mapping[str, str]) -> None:
        self._label, self._settings = label, settings
        self._pods: dict[str, Mapping[str, Any]] = {}
        self._logs: dict[str, str] = {}
        self._stop = threading.Event()
        threading.Thread(target=self._run, name="pod-watch", daemon=True).start()

    def says(self) -> tuple[str, bool]:
        """See what_pods_say."""
        return what_pods_say(list(self._pods.values()), self._logs)

    def stop(self) -> None:
        """End it; what was seen stays."""
        self._stop.set()

    def _run(self) -> None:
        found = None
        while not self._stop.wait(POLL_SECONDS):
            with contextlib.suppress(Exception):  # no JVM yet or any more, an API server that is busy or says no
                found = found or self._connect()
                if found is not None:
                    self._look(*found[1:])
        with contextlib.suppress(Exception):
            if found is not None:
                found[0].close()

    def _connect(self) -> tuple[Any, Any, Any] | None:
        """The client, the pods of the namespace, and what makes JSON. None while there is no JVM."""
        from pyspark import SparkContext

        jvm: Any = SparkContext._jvm
        if jvm is None:
            return None
        kubernetes = jvm.io.fabric8.kubernetes.client
        config = kubernetes.Config.autoConfigure(self._settings.get(CONTEXT) or None)
        client = kubernetes.KubernetesClientBuilder().withConfig(config).build()
        return client, client.pods().inNamespace(self._settings.get(NAMESPACE) or "default"), kubernetes.utils.Serialization

    def _look(self, pods: Any, serialization: Any) -> None:
        found = json.loads(serialization.asJson(pods.withLabel(*self._label).list())).get("items") or []
        self._pods |= {pod["metadata"]["name"]: pod for pod in found}
        begun = [pod["metadata"]["name"] for pod in found if (pod.get("status") or {}).get("phase") in {"Running", "Failed"}]
        for name in begun[:LOGS_EACH_MAX]:
            with contextlib.suppress(Exception):  # it has gone meanwhile, or logs are not ours to read
                self._logs[name] = str(pods.withName(name).tailingLines(LOG_LINES).getLog() or "") or self._logs.get(name, "")
