"""Apache Kafka's own tools and nodes with TLS and SASL, against ours and in one cluster with ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.apache_kafka import run_tool
from helpers.java_clients import fails, secured, written
from helpers.mixed_cluster import BOTH, KAFKA, MINI, MixedCluster

from minikafka.client.admin import Admin
from minikafka.client.producer import Producer
from minikafka.testing import EmbeddedCluster, Security
from minikafka.testing.security import SecuredCluster, jaas_config

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]
USERS = {"admin": "admin-secret", "alice": "alice-secret"}
RECORDS = 2000


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    security = Security("SASL_SSL", mechanism="SCRAM-SHA-256", users=USERS)
    with EmbeddedCluster(brokers=3, security=security, config={"sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"}) as made:
        yield made


@pytest.mark.security
def test_topics_over_sasl_ssl_with_scram(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    server = ("--bootstrap-server", cluster.bootstrap_servers)
    login = ("--command-config", written(tmp_path / "c.properties", secured(cluster).client_properties("alice")))
    created = run_tool("org.apache.kafka.tools.TopicCommand", *server, *login, "--create", "--topic", "java", "--partitions", "3")
    assert "Created topic java." in created


@pytest.mark.security
def test_performance_tools_and_users(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    server = ("--bootstrap-server", cluster.bootstrap_servers)
    cluster.create_topic("perf", 3)
    config = written(tmp_path / "c.properties", secured(cluster).client_properties())
    produced = run_tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", "perf", "--num-records", str(RECORDS), "--record-size", "2000",
        "--throughput", "-1", "--command-config", config,
        "--command-property", f"bootstrap.servers={cluster.bootstrap_servers}", "acks=all",
    )  # fmt: skip
    assert f"{RECORDS} records sent" in produced
    consumed = run_tool(
        "org.apache.kafka.tools.ConsumerPerformance", *server, "--command-config", config,
        "--topic", "perf", "--num-records", str(RECORDS), "--group", "g",
    )  # fmt: skip
    assert f" {RECORDS}, " in consumed
    users = ("kafka.admin.ConfigCommand", *server, "--command-config", config, "--entity-type", "users", "--entity-name", "dora")
    run_tool(*users, "--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=dora-secret]")
    shown = run_tool(*users, "--describe")
    assert "SCRAM credential configs for user-principal 'dora' are SCRAM-SHA-512=iterations=8192" in shown
    dora = secured(cluster).client_properties("dora", "dora-secret") | {"sasl.mechanism": "SCRAM-SHA-512"}
    config = written(tmp_path / "dora.properties", dora)
    assert "perf" in run_tool("org.apache.kafka.tools.TopicCommand", *server, "--command-config", config, "--list")


@pytest.mark.security
def test_javas_words_for_a_refusal(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    import trustme

    topics = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", cluster.bootstrap_servers, "--list")
    wrong = written(tmp_path / "wrong.properties", secured(cluster).client_properties("alice", "nope"))
    said = fails(*topics, "--command-config", wrong)
    assert "SaslAuthenticationException: Authentication failed during authentication due to invalid credentials" in said
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    other = secured(cluster).client_properties() | {"ssl.truststore.location": str(tmp_path / "other.pem")}
    said = fails(*topics, "--command-config", written(tmp_path / "other.properties", other))
    assert "SslAuthenticationException" in said and "PKIX path" in said
    login = jaas_config("PLAIN", {"username": "alice", "password": "x"})
    plain = secured(cluster).client_properties() | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
    said = fails(*topics, "--command-config", written(tmp_path / "plain.properties", plain))
    assert "UnsupportedSaslMechanismException: Client SASL mechanism 'PLAIN' not enabled in the server" in said


@pytest.mark.security
def test_mutual_tls(tmp_path: Path) -> None:
    rules = {"listener.name.plaintext.ssl.principal.mapping.rules": "RULE:^CN=(.*?)\\,.*$/$1/"}
    with EmbeddedCluster(brokers=1, security="mtls", topics={"t": 1}, config=rules) as made:
        server = ("--bootstrap-server", made.bootstrap_servers)
        config = written(tmp_path / "c.properties", secured(made).client_properties())
        assert "t" in run_tool("org.apache.kafka.tools.TopicCommand", *server, "--command-config", config, "--list").split()
        bare = {name: value for name, value in secured(made).client_properties().items() if not name.startswith("ssl.keystore")}
        fails("org.apache.kafka.tools.TopicCommand", *server, "--command-config", written(tmp_path / "b.properties", bare), "--list")
        assert "showed no certificate" in made.logs(100)


@pytest.mark.security
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_nodes_of_both_kinds_in_one_secured_cluster(mechanism: str, tmp_path: Path) -> None:
    """Controllers in PLAIN, brokers in `mechanism`, all of it under TLS with certificates of one authority."""
    made = SecuredCluster(Security("SASL_SSL", users=USERS), tmp_path)
    properties = made.broker_properties("PLAINTEXT", "CONTROLLER")
    if mechanism != "PLAIN":
        login = jaas_config(mechanism, {"username": "admin", "password": USERS["admin"]})
        properties |= {
            f"listener.name.plaintext.{mechanism.lower()}.sasl.jaas.config": login,
            "listener.name.plaintext.sasl.enabled.mechanisms": mechanism,
            "sasl.mechanism.inter.broker.protocol": mechanism,
        }
        properties.pop("listener.name.plaintext.plain.sasl.jaas.config")
    nodes = [(1, KAFKA, BOTH), (2, MINI, BOTH), (3, MINI, BOTH)]
    client = SecuredCluster(Security("SASL_SSL", mechanism=mechanism, users=USERS), tmp_path).client_properties()
    with MixedCluster(tmp_path / "cluster", nodes, properties=properties, security=client) as cluster:
        cluster.format(options=("--add-scram", f"SCRAM-SHA-256=[name=admin,password={USERS['admin']}]"))
        cluster.start()
        async with Admin(cluster.bootstrap, security=client) as admin:
            await admin.create_topic("t", partitions=6, replication_factor=3)
            leaders = {p.leader for p in (await admin.cluster.fresh_topic("t")).partitions}
        assert leaders == {1, 2, 3}
        async with Producer(cluster.bootstrap, security=client) as producer:
            for number in range(300):
                await producer.send("t", str(number).encode())
        cluster.wait_for_isr("t", {1, 2, 3})
        cluster.check_errors()
