"""What the compose files say that are published with the images of Apache Kafka, Confluent and Bitnami: environment, host name and ports of
each service that is a broker or a controller. A helper runs such a file on one machine without Docker."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


@dataclass(frozen=True)
class Service:
    """One container: `published` is port of the host -> port of the container."""

    environment: dict[str, str]
    published: dict[int, int] = field(default_factory=dict)


def _apache(node: int, roles: str, **more: str) -> dict[str, str]:
    return {
        "KAFKA_NODE_ID": str(node), "KAFKA_PROCESS_ROLES": roles, "CLUSTER_ID": CLUSTER_ID, "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1", "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1", "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1", "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": "1",
        "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs", **more,
    }  # fmt: skip


MAP = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT"


def _apache_broker(node: int, name: str, host_port: int, roles: str, voters: str, controller: str = "") -> Service:
    return Service(
        _apache(
            node,
            roles,
            KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=MAP,
            KAFKA_CONTROLLER_QUORUM_VOTERS=voters,
            KAFKA_LISTENERS=f"PLAINTEXT://:19092,{controller}PLAINTEXT_HOST://:9092",
            KAFKA_INTER_BROKER_LISTENER_NAME="PLAINTEXT",
            KAFKA_ADVERTISED_LISTENERS=f"PLAINTEXT://{name}:19092,PLAINTEXT_HOST://localhost:{host_port}",
        ),
        {host_port: 9092},
    )


def _voters(prefix: str, first: int = 1) -> str:
    return ",".join(f"{first + n}@{prefix}-{first + n}:9093" for n in range(3))


def _bitnami(node: int, **more: str) -> dict[str, str]:
    return {
        "KAFKA_CFG_NODE_ID": str(node), "KAFKA_CFG_PROCESS_ROLES": "controller,broker",
        "KAFKA_CFG_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093", "KAFKA_CFG_ADVERTISED_LISTENERS": "PLAINTEXT://:9092",
        "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER", "KAFKA_CFG_INTER_BROKER_LISTENER_NAME": "PLAINTEXT", **more,
    }  # fmt: skip


#: apache/kafka docker/examples, confluentinc/cp-all-in-one, bitnami/containers.
FILES: dict[str, dict[str, Service]] = {
    "apache single node": {
        "broker": Service(
            _apache(
                1,
                "broker,controller",
                KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=MAP,
                KAFKA_ADVERTISED_LISTENERS="PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092",
                KAFKA_CONTROLLER_QUORUM_VOTERS="1@broker:29093",
                KAFKA_LISTENERS="CONTROLLER://:29093,PLAINTEXT_HOST://:9092,PLAINTEXT://:19092",
                KAFKA_INTER_BROKER_LISTENER_NAME="PLAINTEXT",
            ),
            {9092: 9092},
        )
    },
    "apache combined": {
        f"kafka-{n}": _apache_broker(n, f"kafka-{n}", 10_000 * n + 19_092, "broker,controller", _voters("kafka"), "CONTROLLER://:9093,")
        for n in (1, 2, 3)
    },
    "apache isolated": {
        **{
            f"controller-{n}": Service(
                _apache(n, "controller", KAFKA_CONTROLLER_QUORUM_VOTERS=_voters("controller"), KAFKA_LISTENERS="CONTROLLER://:9093")
            )
            for n in (1, 2, 3)
        },
        **{f"kafka-{n}": _apache_broker(n + 3, f"kafka-{n}", 10_000 * n + 19_092, "broker", _voters("controller")) for n in (1, 2, 3)},
    },
    "confluent": {
        "broker": Service(
            {
                "KAFKA_NODE_ID": "1",
                "KAFKA_BROKER_ID": "1",
                "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": MAP,
                "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:9092",
                "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
                "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
                "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
                "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
                "KAFKA_JMX_PORT": "9101",
                "KAFKA_JMX_HOSTNAME": "localhost",
                "KAFKA_PROCESS_ROLES": "broker,controller",
                "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
                "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
                "KAFKA_LISTENERS": "PLAINTEXT://broker:29092,CONTROLLER://broker:29093,PLAINTEXT_HOST://0.0.0.0:9092",
                "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
                "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
                "KAFKA_METRIC_REPORTERS": "io.confluent.metrics.reporter.ConfluentMetricsReporter",
                "KAFKA_CONFLUENT_LICENSE_TOPIC_REPLICATION_FACTOR": "1",
                "KAFKA_CONFLUENT_BALANCER_TOPIC_REPLICATION_FACTOR": "1",
                "KAFKA_CONFLUENT_SCHEMA_REGISTRY_URL": "http://schema-registry:8081",
                "CONFLUENT_METRICS_ENABLE": "true",
                "CONFLUENT_METRICS_REPORTER_BOOTSTRAP_SERVERS": "broker:29092",
                "CONFLUENT_SUPPORT_CUSTOMER_ID": "anonymous",
                "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qk",
            },
            {9092: 9092, 9101: 9101},
        )
    },
    "bitnami single node": {"kafka": Service(_bitnami(0, ALLOW_PLAINTEXT_LISTENER="yes", KAFKA_ENABLE_KRAFT="yes"), {9092: 9092})},
    "bitnami cluster": {
        f"kafka-{n}": Service(
            _bitnami(
                n,
                KAFKA_CFG_CONTROLLER_QUORUM_VOTERS=_voters("kafka", 0),
                KAFKA_KRAFT_CLUSTER_ID="abcdefghijklmnopqrstuv",
                KAFKA_CFG_OFFSETS_TOPIC_REPLICATION_FACTOR="3",
                KAFKA_CFG_TRANSACTION_STATE_LOG_REPLICATION_FACTOR="3",
                KAFKA_CFG_TRANSACTION_STATE_LOG_MIN_ISR="2",
            )
        )
        for n in (0, 1, 2)
    },
}


class OneMachine:
    """Runs such a file as processes here: every port is a free one, every host 127.0.0.1; a context manager."""

    def __init__(self, services: Mapping[str, Service], directory: Path) -> None:
        self._services = services
        self._directory = directory
        self._ports: dict[tuple[str, int], int] = {}
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        # Bound together, so that they differ.
        wanted = sorted({(name, port) for name, service in self._services.items() for port in self._inside(service)})
        with ExitStack() as stack:
            for key in wanted:
                probe = stack.enter_context(socket.socket())
                probe.bind(("127.0.0.1", 0))
                self._ports[key] = probe.getsockname()[1]
        for name, service in self._services.items():
            with (self._directory / f"{name}.log").open("wb") as log:
                self._processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "minikafka", "start", "--container"],
                        env=self.environment(name, service),
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()

    @staticmethod
    def _inside(service: Service) -> list[int]:
        listeners = next(value for name, value in service.environment.items() if name.endswith("_LISTENERS") and "ADVERTISED" not in name)
        return [int(port) for port in re.findall(r":(\d+)", listeners)]

    def environment(self, name: str, service: Service) -> dict[str, str]:
        """The service's, with the addresses of this machine."""

        def bound(match: re.Match[str]) -> str:
            return f"://127.0.0.1:{self._ports[name, int(match[2])]}"

        def replacement(match: re.Match[str]) -> str:
            host, port = match[1], int(match[2])
            if host == "localhost":
                return f"127.0.0.1:{self._ports[name, service.published[port]]}"
            return f"127.0.0.1:{self._ports[host or name, port]}"

        found = {}
        for variable, value in service.environment.items():
            if variable.endswith("_ADVERTISED_LISTENERS"):
                value = re.sub(r"(?<=://)([\w.-]*):(\d+)", replacement, value)
            elif variable.endswith("_LISTENERS"):
                value = re.sub(r"://([\w.-]*):(\d+)", bound, value)
            elif variable.endswith("_QUORUM_VOTERS"):
                value = re.sub(r"(?<=@)([\w.-]+):(\d+)", replacement, value)
            found[variable] = value
        found[next((v for v in found if v.endswith("LOG_DIRS")), "KAFKA_LOG_DIRS")] = str(self._directory / name)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("KAFKA_", "CLUSTER_ID"))}
        return {**kept, **found}

    @property
    def bootstrap(self) -> str:
        """What a client on the host uses."""
        ports = [self._ports[name, inside] for name, s in self._services.items() for inside in s.published.values() if inside == 9092]
        return ",".join(f"127.0.0.1:{port}" for port in ports or [self._ports[name, 9092] for name in self._services])

    def log(self, name: str) -> str:
        """What the container printed."""
        return (self._directory / f"{name}.log").read_text()
