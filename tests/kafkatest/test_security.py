"""Follows Apache Kafka's `core/security_rolling_upgrade_test.py`: an open cluster gets a listener with SASL, and then uses it between its
brokers, one rolling bounce after the other, while records are written over each of the listeners."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.apache_kafka import free_ports
from kafkatest.verifiable import Producer, bounce, create, in_sync, read_all

from minikafka.testing.cluster import ProcessCluster

pytestmark = [pytest.mark.java, pytest.mark.kafkatest, pytest.mark.timeout(500)]
TOPIC, RECORDS = "test_topic", 150
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{MODULE} required username="alice" password="secret";',
}
USERS = 'username="broker" password="b" user_broker="b" user_alice="secret"'
SECURED = {
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.secured.plain.sasl.jaas.config": f"{MODULE} required {USERS};",
}


def change(cluster: ProcessCluster, node_id: int, **added: str) -> None:
    """Change properties of a node; the values of lists are added to."""
    path = cluster.nodes[node_id].config_path
    values = dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
    for name, value in added.items():
        key = name.replace("_", ".")
        is_list = key in ("listeners", "advertised.listeners", "listener.security.protocol.map")
        values[key] = f"{values[key]},{value}" if is_list and key in values else value
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))


def roll(cluster: ProcessCluster, *producers: Producer) -> None:
    for node_id in cluster.nodes:
        bounce(cluster, node_id, hard=False)
        in_sync(cluster, TOPIC)
        for producer in producers:
            producer.more(RECORDS)


def test_rolling_upgrade_to_a_secured_listener(tmp_path: Path) -> None:
    with ProcessCluster(3, controllers=3) as cluster:
        create(cluster, TOPIC, 3)
        ports = free_ports(3)
        secured = ",".join(f"127.0.0.1:{port}" for port in ports)
        open_one = Producer(tmp_path, cluster.bootstrap, TOPIC)
        with open_one.running():
            open_one.more(RECORDS)
            for node_id, port in zip(cluster.nodes, ports, strict=True):
                where = f"SECURED://127.0.0.1:{port}"
                change(cluster, node_id, listeners=where, listener_security_protocol_map="SECURED:SASL_PLAINTEXT")
                change(cluster, node_id, **{name.replace(".", "_"): value for name, value in SECURED.items()})
                if "advertised.listeners=" in cluster.nodes[node_id].config_path.read_text():
                    change(cluster, node_id, advertised_listeners=where)
            roll(cluster, open_one)
            (tmp_path / "secured").mkdir()
            closed_one = Producer(tmp_path / "secured", secured, TOPIC, properties=LOGIN)
            closed_one.command += ["--value-prefix", "9"]
            with closed_one.running():
                closed_one.more(RECORDS)
                for node_id in cluster.nodes:
                    change(cluster, node_id, inter_broker_listener_name="SECURED")
                roll(cluster, open_one, closed_one)
                closed_one.stop()
            open_one.stop()
        found = read_all(cluster, TOPIC)
        acknowledged = open_one.acknowledged | closed_one.acknowledged
        assert {place: found.get(place) for place in acknowledged} == acknowledged
        assert len(acknowledged) == len(open_one.acknowledged) + len(closed_one.acknowledged), "an offset was given out twice"
