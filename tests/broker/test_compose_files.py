"""docker-compose.yml, the default of the image, and Apache Kafka's published single-node environment make valid configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minikafka.broker.config.broker_config import BrokerConfig, Endpoint
from minikafka.broker.config.image_environment import properties_from_environment

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = {name: service for name, service in COMPOSE["services"].items() if "profiles" not in service}

#: What Apache Kafka publishes for one node in a container, apart from the name of the image.
APACHE_SINGLE_NODE = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://:19092,CONTROLLER://:9093,PLAINTEXT_HOST://:9092",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:9093",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
}


def config_of(environment: dict[str, Any]) -> BrokerConfig:
    return BrokerConfig.from_properties(properties_from_environment({name: str(value) for name, value in environment.items()}))


def published(service: dict[str, Any]) -> dict[int, int]:
    """Port in the container -> port of the host."""
    entries = [entry.split(":") for entry in service["ports"]]
    assert all(address == "127.0.0.1" for address, _, _ in entries), "published for other machines"
    return {int(inside): int(outside) for _, outside, inside in entries}


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_has_a_valid_configuration(name: str) -> None:
    service = SERVICES[name]
    config = config_of(service["environment"])
    assert config.warnings == []
    internal, external = config.advertised["INTERNAL"], config.advertised["EXTERNAL"]
    listening = {endpoint.name: endpoint.port for endpoint in config.broker_listeners}
    assert (internal.host, internal.port) == (service["hostname"], listening["INTERNAL"])
    assert (external.host, external.port) == ("localhost", published(service)[listening["EXTERNAL"]])
    assert config.inter_broker_listener == "INTERNAL"
    assert config.voters[config.node_id] == (name, config.controller_listeners[0].port)


def test_the_services_make_one_cluster() -> None:
    configs = [config_of(service["environment"]) for service in SERVICES.values()]
    assert len({config.node_id for config in configs}) == len(configs)
    assert len({tuple(sorted(config.voters.items())) for config in configs}) == 1
    assert set(configs[0].voters) == {config.node_id for config in configs}
    assert len({service["environment"]["CLUSTER_ID"] for service in SERVICES.values()}) == 1
    assert {volume.partition(":")[0] for service in SERVICES.values() for volume in service["volumes"]} == set(COMPOSE["volumes"])
    outside = [port for service in SERVICES.values() for port in published(service).values()]
    assert len(set(outside)) == len(outside)


def test_apache_kafkas_single_node_environment() -> None:
    config = config_of(APACHE_SINGLE_NODE)
    assert config.broker_listeners == [Endpoint("PLAINTEXT", "", 19092), Endpoint("PLAINTEXT_HOST", "", 9092)]
    assert config.controller_listeners == [Endpoint("CONTROLLER", "", 9093)]
    assert config.directories == ["/tmp/kraft-combined-logs"]


def test_without_listeners_they_follow_from_what_is_advertised_and_from_the_voters() -> None:
    config = config_of({name: value for name, value in APACHE_SINGLE_NODE.items() if name != "KAFKA_LISTENERS"})
    assert config.broker_listeners == [Endpoint("PLAINTEXT_HOST", "0.0.0.0", 9092), Endpoint("PLAINTEXT", "0.0.0.0", 19092)]
    assert config.controller_listeners == [Endpoint("CONTROLLER", "0.0.0.0", 9093)]
    assert config.inter_broker_listener == "PLAINTEXT"


def test_services_beside_the_cluster_are_configured_for_it() -> None:
    beside = {name: service for name, service in COMPOSE["services"].items() if "profiles" in service}
    assert set(beside) == {"prometheus", "grafana", "ui", "audit"}
    assert beside["ui"]["environment"]["KAFKA_CLUSTERS_0_BOOTSTRAPSERVERS"] == ",".join(f"{name}:19092" for name in SERVICES)
    directories = [f"/logs/{volume.partition(':')[0]}/data" for service in SERVICES.values() for volume in service["volumes"]]
    assert beside["audit"]["command"] == ["minikafka", "audit", *directories]
    assert [volume.split(":")[1] for volume in beside["audit"]["volumes"]] == [directory.removesuffix("/data") for directory in directories]


def test_the_image_is_built_once_and_asked_of_no_registry() -> None:
    """Compose 2 makes one image a `build`, all of one name, and at the next `up` replaces containers of the others."""
    own = {name: service for name, service in COMPOSE["services"].items() if service["image"] == "minikafka:0.1.0"}
    assert set(own) == {*SERVICES, "audit"}
    assert [name for name, service in own.items() if "build" in service] == ["broker-1"]
    assert {service["pull_policy"] for service in own.values()} == {"never"}
