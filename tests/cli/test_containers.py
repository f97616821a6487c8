"""Environments of the images of Apache Kafka, Confluent and Bitnami: what is understood, and published compose files that come up."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest
from helpers.published_environments import CLUSTER_ID, FILES, OneMachine, Service
from helpers.shell import minikafka

from minikafka.broker.config.broker_config import BrokerConfig, ConfigurationError, Endpoint
from minikafka.broker.config.image_environment import DEFAULT_CLUSTER_ID, data_directory, mounted_config, own_quorum, read_environment
from minikafka.broker.config.login_file import login_sections, properties_of_login_file
from minikafka.cli.listeners import Listener, problems, table
from minikafka.cli.start import read_configuration
from minikafka.security.jaas import parse_jaas


def test_names_are_decoded() -> None:
    found = read_environment({"KAFKA_NODE_ID": "3", "KAFKA_CFG_LOG_DIRS": "/d", "KAFKA_A___B": "1", "KAFKA_A__B": "2", "PATH": "/bin",
                              "KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_LOGS_DIRS": "/d", "KAFKA_CLIENT_QUOTA_CALLBACK_CLASS": "x"})  # fmt: skip
    assert found.properties == {"node.id": "3", "log.dirs": "/d", "a-b": "1", "a_b": "2", "client.quota.callback.class": "x",
                                "offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1",
                                "transaction.state.log.min.isr": "1"}  # fmt: skip
    assert found.cluster_id == DEFAULT_CLUSTER_ID


def test_ignored_settings_are_reported_in_one_line_per_reason() -> None:
    found = read_environment(FILES["confluent"]["broker"].environment)
    assert [note for note in found.notes if "Confluent Server only" in note] == [
        "CONFLUENT_METRICS_ENABLE, CONFLUENT_METRICS_REPORTER_BOOTSTRAP_SERVERS, CONFLUENT_SUPPORT_CUSTOMER_ID,"
        " KAFKA_CONFLUENT_BALANCER_TOPIC_REPLICATION_FACTOR, KAFKA_CONFLUENT_LICENSE_TOPIC_REPLICATION_FACTOR,"
        " KAFKA_CONFLUENT_SCHEMA_REGISTRY_URL: no effect (Confluent Server only)"
    ]
    of_clients = read_environment({"KAFKA_SECURITY_PROTOCOL": "SSL"})  # in Apache's files for clusters with TLS
    assert of_clients.properties == {} and "KAFKA_SECURITY_PROTOCOL: no effect (not a broker property of Kafka 4)" in of_clients.notes
    kubernetes = read_environment({"KAFKA_PORT": "tcp://10.0.0.1:9092", "KAFKA_SERVICE_HOST": "10.0.0.1", "KAFKA_PORT_9092_TCP": "x"})
    assert kubernetes.properties == {} and any("Kubernetes" in note for note in kubernetes.notes)


@pytest.mark.parametrize("variables", [
    {"CLUSTER_ID": "a" * 22}, {"KAFKA_KRAFT_CLUSTER_ID": "a" * 22}, {"KAFKA_CLUSTER_ID": "a" * 22}, {"KAFKA_KRAFT_CLUSTER_ID_FILE": "/id"},
    {"CLUSTER_ID": "a" * 22, "KAFKA_KRAFT_CLUSTER_ID": "b" * 22},
])  # fmt: skip
def test_the_clusters_id(variables: dict[str, str]) -> None:
    assert read_environment(variables, {"/id": "a" * 22}.__getitem__).cluster_id == "a" * 22


def test_secrets_are_named_as_apache_and_confluent_name_them() -> None:
    variables = {"KAFKA_SSL_KEYSTORE_FILENAME": "k.jks", "KAFKA_SSL_KEY_CREDENTIALS": "creds"}
    found = read_environment(variables, lambda path: f"contents of {path}")
    assert found.properties["ssl.keystore.location"] == "/etc/kafka/secrets/k.jks"
    assert found.properties["ssl.key.password"] == "contents of /etc/kafka/secrets/creds"
    with pytest.raises(ConfigurationError, match="cannot read /etc/kafka/secrets/nowhere"):
        read_environment({"KAFKA_SSL_KEY_CREDENTIALS": "nowhere"})


def test_zookeeper_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_ZOOKEEPER_CONNECT", "zookeeper:2181")
    with pytest.raises(ConfigurationError, match="have no ZooKeeper"):
        read_configuration(None, read_environment({"KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181"}), container=True)
    given = read_environment({"KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181", **FILES["apache single node"]["broker"].environment})
    assert "process.roles" in read_configuration(None, given, container=True)


def test_a_container_without_settings_is_one_node() -> None:
    config = BrokerConfig.from_properties(read_configuration(None, read_environment({"KAFKA_NUM_PARTITIONS": "3"}), container=True))
    assert config.is_broker and config.is_controller and config.num_partitions == 3
    assert config.advertised["PLAINTEXT"] == Endpoint("PLAINTEXT", "localhost", 9092)
    assert config.directories == ["/var/lib/minikafka/data"]


def test_places_of_the_other_images() -> None:
    assert mounted_config({"/bitnami/kafka/config/server.properties"}.__contains__) == "/bitnami/kafka/config/server.properties"
    assert mounted_config(lambda _: False) is None
    assert data_directory({"/bitnami/kafka"}.__contains__) == "/bitnami/kafka/data"
    assert data_directory({"/var/lib/kafka/data"}.__contains__) == "/var/lib/kafka/data"
    lonely = {"process.roles": "broker,controller", "controller.listener.names": "C", "listeners": "P://:1,C://:93"}
    assert own_quorum(lonely) == {"controller.quorum.bootstrap.servers": "localhost:93"}
    assert own_quorum({**lonely, "controller.quorum.voters": "1@a:1"}) == {}


# -- login files -----------------------------------------------------------------------------------------------------------

LOGIN_FILE = """\
// users of the cluster
KafkaServer {
    org.apache.kafka.common.security.plain.PlainLoginModule required
    username="admin" password="a \\"};\\" b" /* as whom
    brokers log in */
    user_admin="a \\"};\\" b" user_alice='//no comment';
    org.apache.kafka.common.security.scram.ScramLoginModule required username="s" password="#1";
};
outside.KafkaServer { x.PlainLoginModule required user_bob="b"; };  # for one listener
Client {};
"""
SASL = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,INSIDE:SASL_PLAINTEXT,OUTSIDE:SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}
LOGIN_OPTION = "-Xmx1g -Djava.security.auth.login.config=/etc/kafka/secrets/broker_jaas.conf -Dx=y"


def test_a_login_file_says_what_the_properties_would() -> None:
    found = properties_of_login_file(LOGIN_OPTION, SASL, {"/etc/kafka/secrets/broker_jaas.conf": LOGIN_FILE}.__getitem__)
    modules = {name: parse_jaas(text) for name, text in found.items()}
    assert {name: (module.name, module.options) for name, module in modules.items()} == {
        "listener.name.inside.plain.sasl.jaas.config": (
            "PlainLoginModule",
            {"username": "admin", "password": 'a "};" b', "user_admin": 'a "};" b', "user_alice": "//no comment"},
        ),
        "listener.name.inside.scram-sha-512.sasl.jaas.config": ("ScramLoginModule", {"username": "s", "password": "#1"}),
        "listener.name.outside.plain.sasl.jaas.config": ("PlainLoginModule", {"user_bob": "b"}),
    }


def test_a_login_file_is_read_only_for_what_is_open() -> None:
    given = {"listener.name.inside.plain.sasl.jaas.config": "x", "listeners": "SASL_SSL://:1,P://:2", "sasl.enabled.mechanisms": "PLAIN"}
    read = {"/f": LOGIN_FILE}.__getitem__
    assert list(properties_of_login_file("-Djava.security.auth.login.config=/f", given, read)) == [
        "listener.name.sasl_ssl.plain.sasl.jaas.config"
    ]
    assert properties_of_login_file("-Djava.security.auth.login.config=/nowhere", {"listeners": "P://:1"}, read) == {}
    assert properties_of_login_file("-Xmx1g", SASL, read) == {}


@pytest.mark.parametrize(
    "text", ["KafkaServer { a required", "KafkaServer { a required }", "a required;", "A B { };", 'A { m required p="secret; };', "A { B {"]
)
def test_a_damaged_login_file_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ConfigurationError, match="login file /f") as caught:
        properties_of_login_file("-Djava.security.auth.login.config=/f", SASL, lambda path: text)
    assert "secret" not in str(caught.value)
    assert login_sections(LOGIN_FILE)["Client"] == []


def test_a_login_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read the login file .*missing\.conf: No such file"):
        properties_of_login_file(f"-Djava.security.auth.login.config={tmp_path}/missing.conf", SASL, lambda path: Path(path).read_text())


def test_a_login_file_counts_outside_of_a_container_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with kafka-server-start.sh."""
    (tmp_path / "jaas.conf").write_text(LOGIN_FILE)
    (tmp_path / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in SASL.items()))
    monkeypatch.setenv("KAFKA_OPTS", f"-Djava.security.auth.login.config={tmp_path}/jaas.conf")
    found = read_configuration(str(tmp_path / "server.properties"), read_environment({}))
    assert "user_alice" in found["listener.name.inside.plain.sasl.jaas.config"]


@pytest.mark.timeout(120)
def test_the_users_of_a_login_file_log_in(tmp_path: Path) -> None:
    """As in Apache Kafka's published file with SASL for one node."""
    (tmp_path / "jaas.conf").write_text(LOGIN_FILE.replace("outside.", "elsewhere."))
    service = Service({
        **FILES["apache single node"]["broker"].environment,
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_PLAINTEXT_HOST:SASL_PLAINTEXT",
        "KAFKA_LISTENERS": "CONTROLLER://:29093,SASL_PLAINTEXT_HOST://:9092,SASL_PLAINTEXT://:19092",
        "KAFKA_ADVERTISED_LISTENERS": "SASL_PLAINTEXT_HOST://localhost:9092,SASL_PLAINTEXT://broker:19092",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "SASL_PLAINTEXT", "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN",
        "KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "PLAIN",
        "KAFKA_OPTS": f"-Djava.security.auth.login.config={tmp_path}/jaas.conf",
    }, {9092: 9092})  # fmt: skip
    with OneMachine({"broker": service}, tmp_path) as running:
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
        producer = confluent_kafka.Producer({"bootstrap.servers": running.bootstrap, **login, "sasl.password": "//no comment"})
        errors: list[object] = []
        producer.produce("t", b"v", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(20) == 0 and errors == [None], running.log("broker")


# -- listeners -------------------------------------------------------------------------------------------------------------


def listener(name: str, host: str, port: int, bound: int = 9092) -> Listener:
    return Listener(name, "PLAINTEXT", "0.0.0.0", bound, (host, port))


@pytest.mark.parametrize(("listeners", "words"), [
    ([listener("A", "kafka-1", 9092)], "cannot be resolved"),
    ([listener("A", "here", 9093)], "nothing listens on 9093; did you mean 9092?"),
    ([listener("A", "localhost", 29092)], "Give brokers a separate listener"),
    ([listener("B", "here", 9092), listener("C", "here", 9092, 9093)], "clients reach the wrong one"),
])  # fmt: skip
def test_what_cannot_work_is_said(listeners: list[Listener], words: str) -> None:
    addresses = {"kafka-1": None, "here": ["10.0.0.5"], "localhost": ["127.0.0.1"]}
    found = problems(listeners, addresses, inter_broker="A", other_hosts=["kafka-2"], is_own=lambda address: True)
    assert len(found) == 1 and words in found[0]


def test_working_settings_give_no_warnings() -> None:
    listeners = [listener("A", "here", 19092, 19092), listener("B", "localhost", 29092), Listener("C", "PLAINTEXT", "", 9093, None)]
    addresses = {"here": ["10.0.0.5"], "localhost": ["127.0.0.1"]}
    assert problems(listeners, addresses, inter_broker="A", other_hosts=["x"], is_own=lambda address: True) == []
    assert problems(listeners[1:], addresses, inter_broker="B", other_hosts=["localhost"], is_own=lambda address: True) == []
    lines = table(listeners)
    assert lines[2].split("  ")[-1].strip() == "this machine; for a container: its host, when port 29092 is published as 9092"


# -- published compose files, apart from the image's name --------------------------------------------------------------------

SINGLE = ["apache single node", "confluent", "bitnami single node"]
CLUSTERS = ["apache combined", "apache isolated", "bitnami cluster"]


@pytest.mark.parametrize("name", FILES)
def test_published_files_are_understood(name: str) -> None:
    configs = [
        BrokerConfig.from_properties(read_configuration(None, read_environment(service.environment), container=True))
        for service in FILES[name].values()
    ]
    assert len({config.node_id for config in configs}) == len(configs)
    assert all(warning.endswith("without effect") for config in configs for warning in config.warnings)


def come_up(name: str, directory: Path) -> None:
    """Start the file, wait until all brokers are there, write and read by a group."""
    services = FILES[name]
    brokers = sum("broker" in value for s in services.values() for key, value in s.environment.items() if key.endswith("PROCESS_ROLES"))
    with OneMachine(services, directory) as running:
        waited = minikafka("health", "-e", "--timeout", "40", "--brokers", str(brokers), "-b", running.bootstrap)
        assert waited.returncode == 0, waited.stderr + "".join(map(running.log, services))
        ids = minikafka("cluster", "cluster-id", "-b", running.bootstrap).stdout.split()[-1]
        asked = {value for s in services.values() for key, value in s.environment.items() if key.endswith("CLUSTER_ID")}
        assert ids == (asked.pop() if asked else DEFAULT_CLUSTER_ID)
        producer = confluent_kafka.Producer({"bootstrap.servers": running.bootstrap})
        errors: list[object] = []
        producer.produce("t", b"v", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(20) == 0 and errors == [None]
        consumer = confluent_kafka.Consumer({"bootstrap.servers": running.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        message = consumer.poll(20)
        assert message is not None and message.value() == b"v"
        consumer.close()
        logs = [running.log(service) for service in services]
        assert all("works from" in log for log in logs)
        # A blocked loop is a sign of a busy machine; other tests bound the length of a turn.
        warnings = [line for log in logs for line in log.splitlines() if "WARNING" in line and "event loop was blocked" not in line]
        assert all("accepted without effect" in line for line in warnings), warnings


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", [*SINGLE, *(pytest.param(name, marks=pytest.mark.docs) for name in CLUSTERS)])
def test_published_files_come_up(name: str, tmp_path: Path) -> None:
    assert CLUSTER_ID != DEFAULT_CLUSTER_ID
    come_up(name, tmp_path)
