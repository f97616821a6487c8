"""Real clients against secured clusters, and what both sides say when they do not accept each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest
import trustme

from minikafka.client.admin import Admin
from minikafka.client.consumer import Consumer
from minikafka.client.errors import AuthenticationError
from minikafka.client.producer import Producer
from minikafka.testing import EmbeddedBroker, Security

USERS = {"admin": "admin-secret", "alice": "alice-secret"}
KINDS: dict[str, Security] = {
    "ssl": Security("SSL"),
    "mtls": Security("SSL", mutual=True),
    "sasl_plaintext": Security("SASL_PLAINTEXT", users=USERS),
    "sasl_ssl": Security("SASL_SSL", users=USERS),
}
COUNT = 20

pytestmark = pytest.mark.timeout(60)


LONG = pytest.mark.security
PARAMETERS = [pytest.param("ssl", marks=LONG), pytest.param("mtls", marks=LONG), pytest.param("sasl_plaintext", marks=LONG), "sasl_ssl"]


@pytest.fixture(scope="module", params=PARAMETERS)
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(security=KINDS[request.param], topics={"t": 1}) as made:
        yield made


def test_mutual_tls_in_short() -> None:
    with EmbeddedBroker(security="mtls", topics={"t": 1}) as made:
        producer = confluent_kafka.Producer(made.client_config("confluent"))
        producer.produce("t", b"x")
        assert producer.flush(20) == 0


@pytest.fixture(scope="module")
def sasl_ssl() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(security=KINDS["sasl_ssl"], topics={"t": 1}) as made:
        yield made


def messages(name: str) -> list[bytes]:
    return [f"{name}-{number}".encode() for number in range(COUNT)]


def test_confluent_kafka(broker: EmbeddedBroker) -> None:
    broker.create_topic("confluent")
    producer = confluent_kafka.Producer(broker.client_config("confluent"))
    for value in messages("confluent"):
        producer.produce("confluent", value)
    assert producer.flush(20) == 0
    settings = broker.client_config("confluent", **{"group.id": "g-confluent", "auto.offset.reset": "earliest"})
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["confluent"])
    got: list[bytes] = []
    while len(got) < COUNT:
        message = consumer.poll(20)
        assert message is not None and message.error() is None
        got.append(message.value())
    consumer.close()
    assert got == messages("confluent")


def test_kafka_python(broker: EmbeddedBroker) -> None:
    broker.create_topic("kafka-python")
    producer = kafka.KafkaProducer(**broker.client_config("kafka-python"))
    for value in messages("kafka-python"):
        producer.send("kafka-python", value)
    producer.flush(20)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "kafka-python", **broker.client_config("kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    )
    got = [next(consumer).value for _ in range(COUNT)]
    consumer.close()
    assert got == messages("kafka-python")


async def test_aiokafka(broker: EmbeddedBroker) -> None:
    await broker.aio.create_topic("aiokafka")
    async with aiokafka.AIOKafkaProducer(**broker.client_config("aiokafka")) as producer:
        for value in messages("aiokafka"):
            await producer.send_and_wait("aiokafka", value)
    settings = broker.client_config("aiokafka", auto_offset_reset="earliest")
    async with aiokafka.AIOKafkaConsumer("aiokafka", **settings) as consumer:
        got = [(await consumer.getone()).value for _ in range(COUNT)]
    assert got == messages("aiokafka")


async def test_our_client(broker: EmbeddedBroker) -> None:
    await broker.aio.create_topic("ours")
    assert broker.secured is not None
    security = broker.secured.client_properties()
    async with Producer(broker.bootstrap_servers, security=security) as producer:
        for value in messages("ours"):
            await producer.send("ours", value)
    consumer = Consumer(broker.bootstrap_servers, group_id="g-ours", auto_offset_reset="earliest", security=security)
    async with consumer:
        await consumer.subscribe(["ours"])
        got: list[bytes | None] = []
        while len(got) < COUNT:
            got += [record.value for record in await consumer.poll(timeout_ms=20_000)]
    assert got == messages("ours")


# -- refusals ----------------------------------------------------------------------------------------------------------


def librdkafka_errors(settings: dict[str, Any]) -> str:
    """What librdkafka says while it tries to connect."""
    said: list[str] = []
    admin = confluent_kafka.admin.AdminClient({**settings, "error_cb": lambda error: said.append(str(error)), "log_level": 0})
    for _ in range(40):
        admin.poll(0.25)
        if any("rdkafka" in line or "SSL" in line or "SASL" in line or "uthentication" in line for line in said):
            break
    return "\n".join(said)


def test_wrong_password(sasl_ssl: EmbeddedBroker) -> None:
    assert sasl_ssl.secured is not None
    wrong = {"bootstrap.servers": sasl_ssl.bootstrap_servers, **sasl_ssl.secured.client_config("confluent", "alice", "wrong")}
    assert "Authentication failed: Invalid username or password" in librdkafka_errors(wrong)
    unknown = {"bootstrap.servers": sasl_ssl.bootstrap_servers, **sasl_ssl.secured.client_config("confluent", "mallory", "alice-secret")}
    assert "Authentication failed: Invalid username or password" in librdkafka_errors(unknown)
    for line in ("wrong password of user 'alice'", "there is no PLAIN user 'mallory'"):
        sasl_ssl.wait_until(lambda: f"authentication failed (PLAIN): {line}" in sasl_ssl.logs(200), line)  # noqa: B023 - called here
    logs = sasl_ssl.logs(200)
    assert not any(password in logs for password in USERS.values())


async def refusal(bootstrap: str, security: dict[str, str]) -> str:
    """Our client's words; it gives up at once."""
    with pytest.raises(AuthenticationError) as refused:
        async with Admin(bootstrap, security=security, timeout_ms=20_000):
            pass
    return str(refused.value)


async def test_our_client_says_what_is_wrong(sasl_ssl: EmbeddedBroker, tmp_path: Path) -> None:
    assert sasl_ssl.secured is not None
    properties = sasl_ssl.secured.client_properties("alice", "wrong")
    assert "Invalid username or password" in await refusal(sasl_ssl.bootstrap_servers, properties)
    scram = sasl_ssl.secured.client_properties() | {"sasl.mechanism": "SCRAM-SHA-256"}
    assert "SCRAM-SHA-256 is not enabled there; enabled: PLAIN" in await refusal(sasl_ssl.bootstrap_servers, scram)
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    other = sasl_ssl.secured.client_properties() | {"ssl.truststore.location": str(tmp_path / "other.pem")}
    assert "certificate is not accepted" in await refusal(sasl_ssl.bootstrap_servers, other)


async def test_plain_text_to_a_secured_port(broker: EmbeddedBroker) -> None:
    with pytest.raises(Exception) as refused:
        async with Admin(broker.bootstrap_servers, timeout_ms=500):
            pass
    assert "127.0.0.1" in str(refused.value)
    said = ("speaks plain text", "came during the SASL handshake")
    await broker.aio.wait_until(lambda: any(words in broker.logs(200) for words in said), "the broker's line")
