"""JKS stores that keytool made: `key.jks` (store-secret, key-secret) and `trust.jks`, which trusts its certificate."""

from __future__ import annotations

from pathlib import Path

import pytest
from security.test_stores import shake_hands

from minikafka.security.errors import SecurityError
from minikafka.security.java_key_store import decrypted, read_java_key_store
from minikafka.security.stores import certificate_warning, client_context, server_context

STORES = Path(__file__).parents[1] / "golden" / "key_stores"
KEY = {
    "ssl.keystore.location": str(STORES / "key.jks"), "ssl.keystore.type": "JKS",
    "ssl.keystore.password": "store-secret", "ssl.key.password": "key-secret",
}  # fmt: skip
TRUST = {"ssl.truststore.location": str(STORES / "trust.jks"), "ssl.truststore.password": "store-secret"}


def test_a_key_store_and_a_trust_store() -> None:
    assert shake_hands(server_context(KEY), client_context(TRUST)).version() == "TLSv1.3"
    without_password = {"ssl.truststore.location": TRUST["ssl.truststore.location"]}
    shake_hands(server_context(KEY), client_context(without_password))
    assert certificate_warning(KEY) is None


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({**KEY, "ssl.keystore.password": "wrong"}, "the password is wrong, or the store is damaged"),
        ({**KEY, "ssl.key.password": "wrong"}, "the password of the private key is wrong"),
        ({**KEY, "ssl.key.password": ""}, "the password of the private key is wrong"),
        ({**KEY, "ssl.keystore.location": str(STORES / "trust.jks")}, "contains no private key"),
    ],
)
def test_what_cannot_be_used_is_named(properties: dict[str, str], text: str) -> None:
    with pytest.raises(SecurityError, match=text):
        server_context(properties)
    with pytest.raises(SecurityError, match="the password is wrong"):
        client_context({**TRUST, "ssl.truststore.password": "wrong"})


def test_no_damage_ends_in_anything_but_a_value_error() -> None:
    content = (STORES / "key.jks").read_bytes()
    for end in range(len(content)):
        with pytest.raises(ValueError, match=r"."):
            read_java_key_store(content[:end], "store-secret")
        with pytest.raises(ValueError, match=r"."):
            read_java_key_store(content[:end], None)
    [(key, _)] = read_java_key_store(content, "store-secret").keys
    for end in range(len(key)):
        with pytest.raises(ValueError, match=r"."):
            decrypted(key[:end], "key-secret")
    for at in range(len(content)):
        with pytest.raises(ValueError, match="damaged"):
            read_java_key_store(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :], "store-secret")
