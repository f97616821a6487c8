"""Keys and users change while a broker runs (KIP-226), and secrets stay secret."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from minikafka.client.admin import BROKER, Admin
from minikafka.client.errors import AuthenticationError
from minikafka.client.producer import Producer
from minikafka.testing import EmbeddedBroker, Security
from minikafka.testing.security import jaas_config

USERS = {"admin": "admin-secret-1", "alice": "alice-secret-1"}
PREFIX = "listener.name.plaintext"
LATER = "bob-secret-1"
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(security=Security("SASL_SSL", users=USERS), topics={"t": 1}, log_level="DEBUG") as made:
        yield made


def alter(broker: EmbeddedBroker, name: str, value: str, node: str = "1") -> None:
    broker.admin.call(lambda admin: admin.alter_configs(BROKER, node, [("set", name, value)]))


def shown_certificate(broker: EmbeddedBroker) -> bytes:
    return ssl.get_server_certificate(("127.0.0.1", broker.port)).encode()


def test_a_new_certificate_for_new_connections(broker: EmbeddedBroker, tmp_path: Path) -> None:
    old = shown_certificate(broker)
    fresh = trustme.CA().issue_cert("127.0.0.1")
    path = tmp_path / "fresh.pem"
    fresh.private_key_and_cert_chain_pem.write_to_path(str(path))
    alter(broker, f"{PREFIX}.ssl.keystore.location", str(tmp_path / "missing.pem"))
    broker.wait_until(lambda: "dynamic security properties are ignored" in broker.logs(200), "the warning")
    assert shown_certificate(broker) == old
    alter(broker, f"{PREFIX}.ssl.keystore.location", str(path))
    broker.wait_until(lambda: shown_certificate(broker) == fresh.cert_chain_pems[0].bytes(), "the new certificate")
    # The same name again: the file has changed.
    again = trustme.CA().issue_cert("127.0.0.1")
    again.private_key_and_cert_chain_pem.write_to_path(str(path))
    alter(broker, f"{PREFIX}.ssl.keystore.location", str(path))
    broker.wait_until(lambda: shown_certificate(broker) == again.cert_chain_pems[0].bytes(), "the newer certificate")
    broker.admin.call(lambda admin: admin.alter_configs(BROKER, "1", [("delete", f"{PREFIX}.ssl.keystore.location", None)]))
    broker.wait_until(lambda: shown_certificate(broker) == old, "the first certificate")


async def test_new_users_of_plain_and_passwords_that_cannot_be_read(broker: EmbeddedBroker) -> None:
    assert broker.secured is not None
    bob = broker.secured.client_properties("bob", LATER)
    with pytest.raises(AuthenticationError):
        async with Admin(broker.bootstrap_servers, security=bob):
            pass
    login = jaas_config("PLAIN", {"username": "admin", "password": USERS["admin"], "user_admin": USERS["admin"], "user_bob": LATER})
    name = f"{PREFIX}.plain.sasl.jaas.config"
    await asyncio.to_thread(alter, broker, name, login)
    await broker.aio.wait_until(lambda: "use new keys, authorities and users" in broker.logs(400), "the new users")
    async with Producer(broker.bootstrap_servers, security=bob) as producer:
        await producer.send("t", b"x")
    async with Admin(broker.bootstrap_servers, security=bob) as admin:
        for node in ("", "1"):
            described = await admin.describe_configs(BROKER, node)
            assert not any(secret in (entry.value or "") for entry in described for secret in (*USERS.values(), LATER))
            assert all(entry.is_sensitive for entry in described if "password" in entry.name or entry.name == name)
    log = (broker.directory / "broker-1" / "broker.log").read_text()
    assert not any(secret in log for secret in (*USERS.values(), LATER))
