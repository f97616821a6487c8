"""max.connections and max.connection.creation.rate of single listeners, altered with the command line while a broker with two of them runs.

What is asserted was seen at Apache Kafka 4.3.0 with the same steps."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from helpers.apache_kafka import free_ports
from helpers.shell import minikafka

from minikafka.testing.cluster import ProcessCluster

pytestmark = pytest.mark.timeout(120)
MOST = "max.connections"
OWN_MOST, OWN_RATE = f"listener.name.client.{MOST}", "listener.name.client.max.connection.creation.rate"
UNKNOWN = "listener.name.client.nobody.knows"
API_VERSIONS = (11).to_bytes(4, "big") + bytes([0, 18, 0, 0, 0, 0, 0, 1, 0, 1, 120])


class TwoListeners:
    """A broker with CLIENT for clients and PLAINTEXT for brokers and, here, administrators."""

    def __init__(self, cluster: ProcessCluster, client_port: int) -> None:
        self.cluster = cluster
        self.ports = {"client": client_port, "plaintext": cluster.nodes[1].port}

    def configs(self, *arguments: str, entity: str | None = None) -> str:
        of = ["--entity-default"] if entity is None else ["--entity-name", entity]
        done = minikafka("configs", "-b", self.cluster.bootstrap, "--entity-type", "brokers", *of, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, text: str) -> str:
        alter = ["--entity-default", "--alter", "--add-config", text]
        done = minikafka("configs", "-b", self.cluster.bootstrap, "--entity-type", "brokers", *alter)
        assert done.returncode != 0
        return done.stderr

    def said(self, text: str) -> None:
        output = self.cluster.nodes[1].output_path
        self.cluster.wait_for(lambda: text in output.read_text(), f"the broker to say: {text}")

    def connect(self, listener: str) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.ports[listener]), timeout=5)
        connection.sendall(API_VERSIONS)
        return connection

    def seconds(self, listener: str, count: int) -> float:
        """How long `count` connections take, one after the other, each of which is answered."""
        began = time.monotonic()
        for _ in range(count):
            with self.connect(listener) as connection:
                assert connection.recv(4)
        return time.monotonic() - began


def is_answered(connection: socket.socket, within_s: float) -> bool:
    connection.settimeout(within_s)
    try:
        return connection.recv(4096) != b""
    except TimeoutError:
        return False


def is_open(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


@pytest.fixture(scope="module")
def broker() -> Iterator[TwoListeners]:
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT",
        "quota.window.num": "2",
        OWN_MOST: "500",
    }
    (client,) = free_ports(1)
    cluster = ProcessCluster(1, properties=properties)
    try:
        cluster.format()
        path = cluster.nodes[1].config_path
        path.write_text(path.read_text().replace("listeners=PLAINTEXT:", f"listeners=CLIENT://127.0.0.1:{client},PLAINTEXT:"))
        cluster.start()
        yield TwoListeners(cluster, client)
    finally:
        cluster.close()


def test_a_rate_of_one_listener(broker: TwoListeners) -> None:
    broker.configs("--alter", "--add-config", f"{OWN_RATE}=2")
    broker.said(f"dynamic configuration: {OWN_RATE} = 2")
    # Two at once, and three for which there must be time.
    assert broker.seconds("client", 5) > 1
    assert broker.seconds("plaintext", 5) < 1
    broker.configs("--alter", "--add-config", f"{OWN_RATE}=1000", entity="1")
    broker.said(f"dynamic configuration: {OWN_RATE} = 1000")
    broker.cluster.wait_for(lambda: broker.seconds("client", 5) < 1, "the pause to be over")
    broker.configs("--alter", "--delete-config", OWN_RATE, entity="1")
    broker.configs("--alter", "--delete-config", OWN_RATE)
    broker.said(f"dynamic configuration: {OWN_RATE} = as for all listeners")


def test_connections_of_one_listener_wait_for_a_place(broker: TwoListeners) -> None:
    broker.configs("--alter", "--add-config", f"{OWN_MOST}=5", entity="1")
    held = [broker.connect("client") for _ in range(7)]
    try:
        assert all(is_answered(connection, 5) for connection in held[:5])
        assert not is_answered(held[5], 0.3)
        broker.seconds("plaintext", 7)
        held[0].close()
        assert is_answered(held[5], 5)
        assert not is_answered(held[6], 0.1)
        broker.configs("--alter", "--delete-config", OWN_MOST, entity="1")
        assert is_answered(held[6], 5)
        broker.said(f"dynamic configuration: {OWN_MOST} = 500")
    finally:
        for connection in held:
            connection.close()


def test_the_quietest_make_room_for_brokers(broker: TwoListeners) -> None:
    broker.configs("--alter", "--add-config", f"{MOST}=6")
    broker.said("dynamic configuration: max.connections = 6")
    held = [broker.connect("client") for _ in range(6)]
    try:
        assert all(is_answered(connection, 5) for connection in held)
        with broker.connect("client") as waiting:
            assert not is_answered(waiting, 0.2)
            with broker.connect("plaintext") as first, broker.connect("plaintext") as second:
                assert is_answered(first, 5) and is_answered(second, 5)
                assert [is_open(connection) for connection in held] == [False, False, True, True, True, True]
                assert not is_answered(waiting, 0.1)
            assert is_answered(waiting, 5)
    finally:
        for connection in held:
            connection.close()
        broker.configs("--alter", "--delete-config", MOST)


def test_listener_settings_are_shown(broker: TwoListeners) -> None:
    broker.configs("--alter", "--add-config", f"{OWN_MOST}=50,{MOST}=200")
    broker.configs("--alter", "--add-config", f"{MOST}=300,{UNKNOWN}=1", entity="1")
    assert (
        f"  {OWN_MOST}=50 sensitive=false synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG:{OWN_MOST}=50, "
        f"DYNAMIC_DEFAULT_BROKER_CONFIG:{MOST}=200, STATIC_BROKER_CONFIG:{OWN_MOST}=500, DEFAULT_CONFIG:{MOST}=2147483647}}"
    ) in broker.configs("--describe", "--all", entity="1").splitlines()
    shown = broker.configs("--describe", entity="1").splitlines()
    assert f"  {UNKNOWN}=null sensitive=true synonyms={{DYNAMIC_BROKER_CONFIG:{UNKNOWN}=null}}" in shown
    assert f"{OWN_MOST}=50 sensitive=false synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG:{OWN_MOST}=50}}" in broker.configs("--describe")
    broker.configs("--alter", "--delete-config", f"{MOST},{UNKNOWN}", entity="1")
    broker.configs("--alter", "--delete-config", f"{OWN_MOST},{MOST}")
    after = broker.configs("--describe", "--all", entity="1")
    assert f"  {OWN_MOST}=500 sensitive=false synonyms={{STATIC_BROKER_CONFIG:{OWN_MOST}=500, DEFAULT" in after
    assert UNKNOWN not in after and OWN_RATE not in after


def test_impossible_listener_settings(broker: TwoListeners) -> None:
    assert "Invalid value many for configuration max.connections: Not a number of type INT" in broker.refused(f"{OWN_MOST}=many")
    assert "Value must be at least 0" in broker.refused(f"{OWN_RATE}=-3")
    assert "Invalid max.connections 0" in broker.refused(f"{OWN_MOST}=0")
