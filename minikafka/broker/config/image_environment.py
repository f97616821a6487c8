"""Translates the environment variables of Apache Kafka's image (`KAFKA_*`), Confluent's cp-kafka and Bitnami's (`KAFKA_CFG_*`).

Sources: KafkaDockerWrapper.scala and docker/resources of Apache Kafka; the scripts of confluentinc/kafka-images; libkafka.sh of
bitnami/containers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path

from minikafka.broker.config.properties import ConfigurationError
from minikafka.late_dataclass import dataclass

#: The default cluster id, that of Apache Kafka's image: nodes that are started separately must agree.
DEFAULT_CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
#: Variables that are not properties in any of the images.
NOT_PROPERTIES = frozenset(
    {
        "KAFKA_VERSION", "KAFKA_HEAP_OPTS", "KAFKA_LOG4J_OPTS", "KAFKA_OPTS", "KAFKA_JMX_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS", "KAFKA_LOG4J_ROOT_LOGLEVEL", "KAFKA_LOG4J_LOGGERS", "KAFKA_TOOLS_LOG4J_LOGLEVEL", "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_PORT", "KAFKA_CREATE_TOPICS", "KAFKA_CREATE_TOPICS_SEPARATOR", "KAFKA_BOOTSTRAP_SERVERS", "KAFKA_HOME",
        "KAFKA_CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID_FILE", "KAFKA_CLUSTER_ID_FILE", "KAFKA_ENABLE_KRAFT",
        "KAFKA_SKIP_KRAFT_STORAGE_INIT", "KAFKA_KRAFT_VERSION", "KAFKA_INITIAL_CONTROLLERS", "KAFKA_CERTIFICATE_PASSWORD",
        "KAFKA_MOUNTED_CONF_DIR", "KAFKA_DATA_DIRS", "KAFKA_DATA_DIR", "KAFKA_BASE_DIR", "KAFKA_VOLUME_DIR", "KAFKA_CONF_DIR",
        "KAFKA_CONF_FILE", "KAFKA_CERTS_DIR", "KAFKA_INITSCRIPTS_DIR", "KAFKA_DAEMON_USER", "KAFKA_DAEMON_GROUP", "KAFKA_CUB_ZK_TIMEOUT",
    }
)  # fmt: skip
#: Prefixes of variables of other images that have no meaning here -> the reason, for one log line each.
IGNORED_FAMILIES = {
    "KAFKA_CONFLUENT_": "Confluent Server only",
    "CONFLUENT_": "Confluent Server only",
    "KAFKA_ZOOKEEPER_": "there is no ZooKeeper",
    "KAFKA_CFG_ZOOKEEPER_": "there is no ZooKeeper",
    "KAFKA_CLIENT_USERS": "Bitnami's, for SASL",
    "KAFKA_CLIENT_PASSWORDS": "Bitnami's, for SASL",
    "KAFKA_CLIENT_LISTENER_NAME": "Bitnami's, for SASL",
    "KAFKA_CLIENT_SASL_MECHANISM": "Bitnami's, for SASL",
    "KAFKA_INTER_BROKER_USER": "Bitnami's, for SASL",
    "KAFKA_INTER_BROKER_PASSWORD": "Bitnami's, for SASL",
    "KAFKA_CONTROLLER_USER": "Bitnami's, for SASL",
    "KAFKA_CONTROLLER_PASSWORD": "Bitnami's, for SASL",
    "KAFKA_TLS_": "Bitnami's, for TLS",
    "KAFKA_SERVICE_": "set by Kubernetes for a service called kafka",
    "KAFKA_PORT_": "set by Kubernetes for a service called kafka",
}
#: Old names of Bitnami's image.
ALIASES = {"logs.dirs": "log.dirs", "segment.bytes": "log.segment.bytes", "max.message.bytes": "message.max.bytes"}
#: Properties that compose files still set: those of Kafka before 4.0, and of clients.
GONE = frozenset(
    {
        "inter.broker.protocol.version", "log.message.format.version", "broker.id.generation.enable", "reserved.broker.max.id",
        "control.plane.listener.name", "log.message.timestamp.difference.max.ms", "max.request.size",
        "max.partition.fetch.bytes", "security.protocol",
    }
)  # fmt: skip
#: Variable with the name of a file in /etc/kafka/secrets -> (property, whether it gets the contents of the file), as in Apache's and
#: Confluent's images.
SECRETS_DIRECTORY = "/etc/kafka/secrets"
SECRETS = {
    "KAFKA_SSL_KEYSTORE_FILENAME": ("ssl.keystore.location", False),
    "KAFKA_SSL_TRUSTSTORE_FILENAME": ("ssl.truststore.location", False),
    "KAFKA_SSL_KEY_CREDENTIALS": ("ssl.key.password", True),
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": ("ssl.keystore.password", True),
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": ("ssl.truststore.password", True),
}
#: Possible paths of a mounted server.properties: Apache's, Bitnami's.
MOUNTED_CONFIGS = (
    "/mnt/shared/config/server.properties",
    "/bitnami/kafka/config/server.properties",
    "/opt/bitnami/kafka/config/server.properties",
)
#: Data directories by default: the first mounted one of the images' directories, else our own.
DATA_DIRECTORIES = {
    "/bitnami/kafka": "/bitnami/kafka/data",
    "/bitnami": "/bitnami/kafka/data",
    "/var/lib/kafka/data": "/var/lib/kafka/data",
}
OWN_DATA_DIRECTORY = "/var/lib/minikafka/data"
#: A container without any settings is a cluster of one node, for clients on its host.
SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
QUORUM_PROPERTIES = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
YES = frozenset({"1", "yes", "true"})


@dataclass(slots=True)
class ImageEnvironment:
    """The result: properties, and settings that are not properties. `notes` are log lines."""

    properties: dict[str, str] = field(default_factory=dict)
    cluster_id: str = DEFAULT_CLUSTER_ID
    initial_controllers: str | None = None
    formats: bool = True
    debug: bool = False
    notes: list[str] = field(default_factory=list)


def properties_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Only the properties. Raises ConfigurationError."""
    return read_environment(environment).properties


def read_environment(environment: Mapping[str, str], read_file: Callable[[str], str] | None = None) -> ImageEnvironment:
    """Translate the variables of any of the three images: `_` is `.`, `__` is `_`, `___` is `-`. Raises ConfigurationError."""
    read = read_file or (lambda path: Path(path).read_text(encoding="utf-8").strip())
    found = ImageEnvironment()
    problems: list[str] = []
    ignored: dict[str, list[str]] = {}
    for variable in sorted(environment):
        value = environment[variable]
        why = _reason_ignored(variable, value)
        if why is not None:
            ignored.setdefault(why, []).append(variable)
        elif variable in SECRETS:
            _secret(found, variable, value, read, problems)
        elif variable.startswith("KAFKA_") and variable not in NOT_PROPERTIES:
            name = _property_name(variable)
            if name in GONE:
                ignored.setdefault("not a broker property of Kafka 4", []).append(variable)
            else:
                found.properties[name] = value
    if any(variable.startswith("KAFKA_CFG_") for variable in environment):
        # Bitnami's image applies its variables to Kafka's example of a server.properties, which sets these to 1.
        for name in ("offsets.topic.replication.factor", "transaction.state.log.replication.factor", "transaction.state.log.min.isr"):
            found.properties.setdefault(name, "1")
    _identity(found, environment, read, problems)
    if problems:
        raise ConfigurationError(problems)
    found.notes += [f"{', '.join(names)}: no effect ({why})" for why, names in ignored.items()]
    return found


def _property_name(variable: str) -> str:
    name = variable.removeprefix("KAFKA_").removeprefix("CFG_").lower()
    name = name.replace("_", ".").replace("...", "-").replace("..", "_")
    return ALIASES.get(name, name)


def _reason_ignored(variable: str, value: str) -> str | None:
    if variable in NOT_PROPERTIES:
        return None
    if variable == "KAFKA_PORT":
        return IGNORED_FAMILIES["KAFKA_PORT_"] if value.startswith("tcp://") else None
    return next((why for family, why in IGNORED_FAMILIES.items() if variable.startswith(family)), None)


def _secret(found: ImageEnvironment, variable: str, value: str, read: Callable[[str], str], problems: list[str]) -> None:
    name, is_contents = SECRETS[variable]
    path = f"{SECRETS_DIRECTORY}/{value}"
    try:
        found.properties[name] = read(path) if is_contents else path
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{variable}={value}: cannot read {path}: {getattr(error, 'strerror', None) or error}")


def _identity(found: ImageEnvironment, environment: Mapping[str, str], read: Callable[[str], str], problems: list[str]) -> None:
    for variable in ("CLUSTER_ID", "KAFKA_CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID"):
        if environment.get(variable):
            found.cluster_id = environment[variable]
            break
        path = environment.get(f"{variable}_FILE")
        if path:
            try:
                found.cluster_id = read(path)
                break
            except (OSError, UnicodeDecodeError) as error:
                problems.append(f"{variable}_FILE={path}: {getattr(error, 'strerror', None) or error}")
    else:
        found.notes.append(f"no CLUSTER_ID: the cluster is {DEFAULT_CLUSTER_ID}, as in Apache Kafka's image")
    found.initial_controllers = environment.get("KAFKA_INITIAL_CONTROLLERS") or None
    found.formats = environment.get("KAFKA_SKIP_KRAFT_STORAGE_INIT", "").lower() not in YES
    found.debug = environment.get("BITNAMI_DEBUG", "").lower() in YES


def old_names(properties: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """Problems with settings of Kafka 3 that would be misunderstood now. `properties`: those of file and environment together."""
    problems = []
    zookeeper = environment.get("KAFKA_ZOOKEEPER_CONNECT") or environment.get("KAFKA_CFG_ZOOKEEPER_CONNECT")
    if zookeeper and "process.roles" not in properties:
        problems.append(
            f"zookeeper.connect={zookeeper}: Kafka 4 and minikafka have no ZooKeeper. Set KAFKA_PROCESS_ROLES=broker,controller,"
            " KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER and KAFKA_CONTROLLER_QUORUM_VOTERS=1@host:9093, or no KAFKA_* variable for a"
            " single node"
        )
    problems += [
        f"{name}={properties[name]}: Kafka no longer has this property; set KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://host:9092"
        for name in ("advertised.host.name", "advertised.port", "host.name", "port")
        if name in properties
    ]
    return problems


def own_quorum(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties for a controller without other controllers: it finds the quorum at its own listener (KIP-853)."""
    if "controller" not in properties.get("process.roles", "") or any(properties.get(name) for name in QUORUM_PROPERTIES):
        return {}
    names = properties.get("controller.listener.names", "").split(",")
    for entry in properties.get("listeners", "").split(","):
        name, _, address = entry.strip().partition("://")
        if name in names:
            return {"controller.quorum.bootstrap.servers": f"localhost:{address.rpartition(':')[2]}"}
    return {}


def mounted_config(exists: Callable[[str], bool]) -> str | None:
    """The path of a mounted server.properties, or None."""
    return next((path for path in MOUNTED_CONFIGS if exists(path)), None)


def data_directory(is_mount: Callable[[str], bool]) -> str:
    """The data directory if log.dirs is not set."""
    return next((target for place, target in DATA_DIRECTORIES.items() if is_mount(place)), OWN_DATA_DIRECTORY)
