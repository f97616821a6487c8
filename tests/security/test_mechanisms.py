"""SASL mechanisms: the test vectors of the RFCs, both sides against each other, and forged messages."""

from __future__ import annotations

import base64
import random
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.security.errors import SecurityError
from minikafka.security.jaas import parse_jaas
from minikafka.security.mechanisms import WRONG_PASSWORD, PlainClient, PlainServer, SaslRefused
from minikafka.security.scram import SCRAM_MECHANISMS, SHA_256, SHA_512, ScramClient, ScramCredential, ScramMechanism, ScramServer

USERS = {"alice": "secret", "bob": "pässword"}
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


@cache
def credential(mechanism: ScramMechanism, password: str) -> ScramCredential:
    return ScramCredential.of_password(mechanism, password, SALT)


def server(mechanism: ScramMechanism = SHA_256, nonce: str = "server", users: dict[str, str] | None = None) -> ScramServer:
    passwords = {"user": "pencil", **USERS} if users is None else users
    stored = {name: credential(mechanism, password) for name, password in passwords.items()}
    return ScramServer(mechanism, stored.get, nonce, b"k" * 32)


def test_vector_of_rfc_7677() -> None:
    client = ScramClient(SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    side = server(nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = side.evaluate(client.first())
    assert challenge == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = client.next(challenge)
    assert final == (b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    end = side.evaluate(final)
    assert end == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert client.next(end) is None
    assert side.complete and side.user == "user"


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values(), ids=SCRAM_MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "bob", "a,b=c"])
def test_both_sides(mechanism: ScramMechanism, user: str) -> None:
    side = server(mechanism, users={**USERS, "a,b=c": "x"})
    client = ScramClient(mechanism, user, {**USERS, "a,b=c": "x"}[user], "abc")
    assert client.next(side.evaluate(client.next(side.evaluate(client.first())) or b"")) is None
    assert side.user == user


def test_wrong_password_and_unknown_user_look_alike() -> None:
    answers = []
    for user in ("alice", "mallory", "mallory"):
        side, client = server(SHA_512), ScramClient(SHA_512, user, "wrong", "abc")
        challenge = side.evaluate(client.first())
        with pytest.raises(SaslRefused) as refused:
            side.evaluate(client.next(challenge) or b"")
        assert refused.value.client_message is None and not side.complete
        answers.append(challenge)
    assert answers[1] == answers[2]
    assert answers[0].split(b",i=")[1] == answers[1].split(b",i=")[1] == b"4096"


def test_every_echo_is_checked() -> None:
    side, client = server(), ScramClient(SHA_256, "alice", "secret", "abc")
    final = client.next(side.evaluate(client.first())) or b""
    echoes = (final.replace(b"r=abcserver", b"r=abcother"), final.replace(b"c=biws", b"c=eSws"))
    for wrong in (*echoes, final[:-8] + b"AAAAAAA=", b"", b"\xff"):
        again, fresh = server(), ScramClient(SHA_256, "alice", "secret", "abc")
        again.evaluate(fresh.first())
        with pytest.raises(SaslRefused):
            again.evaluate(wrong)
        assert not again.complete
    with pytest.raises(SaslRefused, match="does not begin with"):
        ScramClient(SHA_256, "alice", "secret", "abc").next(b"r=other,s=QSXCR+Q6sek8bf92,i=4096")
    with pytest.raises(SaslRefused, match="iterations"):
        ScramClient(SHA_256, "alice", "secret", "abc").next(b"r=abcd,s=QSXCR+Q6sek8bf92,i=1")
    with pytest.raises(SaslRefused, match="iterations"):
        ScramClient(SHA_256, "alice", "secret", "abc").next(b"r=abcd,s=QSXCR+Q6sek8bf92,i=99999999999")


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    side, client = server(), ScramClient(SHA_256, "alice", "secret", "abc")
    side.evaluate(client.next(side.evaluate(client.first())) or b"")
    with pytest.raises(SaslRefused, match="does not know the password"):
        client.next(b"v=" + base64.b64encode(bytes(32)))


def test_authorization_ids() -> None:
    message = "Authentication failed: Client requested an authorization id that is different from username"
    with pytest.raises(SaslRefused) as refused:
        server().evaluate(b"n,a=admin,n=alice,r=abc")
    assert refused.value.client_message == message
    server().evaluate(b"n,a=alice,n=alice,r=abc")
    bound = (b"y,,n=alice,r=abc", b"p=tls-unique,,n=alice,r=abc")
    for wrong in (*bound, b"n,,n=alice", b"n,,r=abc,n=alice", b"n,,n=alice,r=abc,tokenauth=true"):
        with pytest.raises(SaslRefused):
            server().evaluate(wrong)
    with pytest.raises(SaslRefused) as refused:
        PlainServer(USERS).evaluate(b"admin\0alice\0secret")
    assert refused.value.client_message == message


def test_plain() -> None:
    side = PlainServer(USERS)
    assert side.evaluate(PlainClient("bob", "pässword").first()) == b"" and side.complete and side.user == "bob"
    for token, message in (
        (b"\0alice\0wrong", WRONG_PASSWORD),
        (b"\0mallory\0secret", WRONG_PASSWORD),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"", None),
        (b"\0alice\0secret\0", None),
        (b"\0alice\0\xff", None),
    ):
        side = PlainServer(USERS)
        with pytest.raises(SaslRefused) as refused:
            side.evaluate(token)
        assert refused.value.client_message == message and not side.complete


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_no_garbage_authenticates_or_breaks(tokens: list[bytes]) -> None:
    for side in (server(users=USERS), PlainServer(USERS)):
        for token in tokens:
            try:
                side.evaluate(token)
            except SaslRefused:
                break
        assert not side.complete


def test_mutated_messages_never_authenticate() -> None:
    generator = random.Random(7)
    for _ in range(150):
        side, client = server(users={"alice": "secret"}), ScramClient(SHA_256, "alice", "secret", "abc")
        final = bytearray(client.next(side.evaluate(client.first())) or b"")
        position, bit = generator.randrange(len(final)), 1 << generator.randrange(8)
        final[position] ^= bit
        try:
            side.evaluate(bytes(final))
        except SaslRefused:
            continue
        raise AssertionError(f"bit {bit} of byte {position} is not checked")


def test_jaas() -> None:
    text = 'org.apache.kafka.common.security.plain.PlainLoginModule required\n username="admin" password="a\\"b;c" user_admin=\'x y\' n=1;'
    module = parse_jaas(text)
    assert module.name == "PlainLoginModule"
    assert module.options == {"username": "admin", "password": 'a"b;c', "user_admin": "x y", "n": "1"}
    assert module.credentials() == ("admin", 'a"b;c')
    assert 'a"b' not in repr(module)
    for wrong in (
        "", "x", "x required", "x required a=b", 'x required a="b;', "x sometimes a=b;", "x required a;", "x required a=b; y required;",
    ):  # fmt: skip
        with pytest.raises(SecurityError):
            parse_jaas(wrong)
    with pytest.raises(SecurityError, match="username and password"):
        parse_jaas("x required username=a;").credentials()
