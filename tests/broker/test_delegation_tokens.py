"""Delegation tokens (KIP-48): made, described, renewed, ended, and used to log in; without delegation.token.secret.key there are none."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from helpers.acl_node import acl_node, allow, channel_of, set_acls
from helpers.live_node import broker_port, controller_port, live_node

from minikafka.broker.admin.tokens import DelegationTokens
from minikafka.broker.front.forwarding import address_bytes, principal_bytes, principal_of
from minikafka.broker.node import Node
from minikafka.core.authorizer.acl import Operation, ResourceType
from minikafka.core.delegation_token import TokenPrincipal
from minikafka.core.metadata.image import MetadataImage
from minikafka.core.scram import SHA_256
from minikafka.net.channel import Channel
from minikafka.net.network import AuthenticationFailed
from minikafka.net.server import SocketNetwork
from minikafka.security.client import ClientSecurity
from minikafka.wire.errors import ErrorCode
from minikafka.wire.frame import encode_request
from minikafka.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from minikafka.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from minikafka.wire.messages.envelope import EnvelopeRequest
from minikafka.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from minikafka.wire.messages.metadata import MetadataRequest
from minikafka.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from minikafka.wire.records.metadata_records import DelegationTokenRecord

DISABLED, NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def creation(owner: str | None = None, renewer_type: str = "User") -> CreateDelegationTokenRequest:
    renewer = CreateDelegationTokenRequest.CreatableRenewers(principal_type=renewer_type, principal_name="r")
    kind = None if owner is None else "User"
    return CreateDelegationTokenRequest(owner_principal_type=kind, owner_principal_name=owner, renewers=[renewer], max_lifetime_ms=-1)


def others() -> list[Any]:
    return [
        RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1),
        ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1),
        DescribeDelegationTokenRequest(owners=None),
    ]


async def test_an_authenticated_client_learns_that_tokens_are_disabled(tmp_path: Path) -> None:
    async with acl_node(tmp_path) as node:
        alice = await channel_of(node, "alice")
        answer = await alice.request(creation())
        assert (answer.error_code, answer.issue_timestamp_ms, answer.hmac) == (DISABLED, 0, b"")
        assert (answer.principal_name, answer.token_requester_principal_name) == ("alice", "alice")
        assert [(await alice.request(request)).error_code for request in others()] == [DISABLED] * 3
        assert (await alice.request(creation(renewer_type="Group"))).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
        answer = await alice.request(creation("bob"))
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (answer.principal_name, answer.token_requester_principal_name, answer.max_timestamp_ms) == ("bob", "alice", -1)
        set_acls(node, [allow(ResourceType.USER, "User:bob", Operation.CREATE_TOKENS)])
        assert (await alice.request(creation("bob"))).error_code == DISABLED
        alice.close()


async def test_an_anonymous_client_is_refused(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node:
        network = SocketNetwork(asyncio.get_running_loop())
        channel = await Channel.open(network, "127.0.0.1", broker_port(node), client_id="test")
        assert [(await channel.request(request)).error_code for request in (creation(), *others())] == [NOT_ALLOWED] * 4
        channel.close()


async def test_a_controller_refuses_its_own_clients_and_answers_those_of_brokers(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node:
        network = SocketNetwork(asyncio.get_running_loop())
        channel = await Channel.open(network, "127.0.0.1", controller_port(node), client_id="test")
        assert [(await channel.request(request)).error_code for request in (creation(), *others())] == [NOT_ALLOWED] * 4
        data = b"".join(bytes(piece) for piece in encode_request(creation(), 3, 1, "x"))[4:]
        answer: Any = await channel.request(
            EnvelopeRequest(request_data=data, request_principal=principal_bytes("User:alice"), client_host_address=address_bytes("::1"))
        )
        assert answer.error_code == 0
        inner = CreateDelegationTokenResponse.decode(3, answer.response_data, 5)
        assert (inner.error_code, inner.principal_name, inner.token_requester_principal_name) == (DISABLED, "alice", "alice")
        channel.close()


async def test_every_version_is_answered(tmp_path: Path) -> None:
    async with acl_node(tmp_path) as node:
        alice = await channel_of(node, "alice")
        for version in (1, 2, 3):
            answer = await alice.request(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), version=version)
            assert answer.error_code == DISABLED
            assert answer.token_requester_principal_name == ("alice" if version >= 3 else "")


# -- with a secret -------------------------------------------------------------------------------------------------

TOKENS = {"delegation_token_secret_key": "hush", "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}


def login(token: CreateDelegationTokenResponse, mechanism: str = "SCRAM-SHA-256", hmac: bytes | None = None) -> ClientSecurity:
    password = base64.b64encode(bytes(token.hmac if hmac is None else hmac)).decode()
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username="{token.token_id}" password="{password}" tokenauth="true";'
    security = ClientSecurity.from_properties(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    )
    assert security is not None
    return security


async def channel_by(node: Node, security: ClientSecurity) -> Channel:
    network = SocketNetwork(asyncio.get_running_loop())
    return await Channel.open(network, "127.0.0.1", broker_port(node), client_id="test", security=security)


async def seen(channel: Channel, owners: list[str] | None = None) -> list[str]:
    kind = DescribeDelegationTokenRequest
    asked = None if owners is None else [kind.DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
    answer = await channel.request(kind(owners=asked))
    assert answer.error_code == 0
    return sorted(token.token_id for token in answer.tokens)


async def test_a_client_logs_in_with_a_token_as_its_owner(tmp_path: Path) -> None:
    async with acl_node(tmp_path, **TOKENS) as node:
        alice = await channel_of(node, "alice")
        token = await alice.request(creation())
        assert (token.error_code, len(token.hmac), token.principal_name) == (0, 64, "alice")
        set_acls(node, [allow(ResourceType.TOPIC, "t", Operation.DESCRIBE)])
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            by_token = await channel_by(node, login(token, mechanism))
            topics = [MetadataRequest.MetadataRequestTopic(name="t")]
            metadata = await by_token.request(MetadataRequest(topics=topics, allow_auto_topic_creation=False), version=8)
            assert metadata.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "alice may describe it"
            assert [(await by_token.request(request)).error_code for request in (creation(), *others())] == [NOT_ALLOWED] * 4
            by_token.close()
        alice.close()


async def test_a_wrong_hmac_and_an_ended_token_are_refused(tmp_path: Path) -> None:
    async with acl_node(tmp_path, **TOKENS) as node:
        alice = await channel_of(node, "alice")
        token = await alice.request(creation())
        with pytest.raises(AuthenticationFailed):
            await channel_by(node, login(token, hmac=b"guessed"))
        (await channel_by(node, login(token))).close()
        ended = await alice.request(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1))
        assert ended.error_code == 0
        with pytest.raises(AuthenticationFailed):
            await channel_by(node, login(token))
        answer = await alice.request(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1))
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        alice.close()


async def test_a_session_lives_as_long_as_its_token(tmp_path: Path) -> None:
    async with acl_node(tmp_path, **TOKENS) as node:
        alice = await channel_of(node, "alice")
        token = await alice.request(creation())
        soon = await alice.request(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=0))
        assert soon.error_code == 0
        while node.environment.clock.wall_ms() <= soon.expiry_timestamp_ms + 1:
            await asyncio.sleep(0.001)
        by_token = await channel_by(node, login(token))
        with pytest.raises(ConnectionError):
            await by_token.request(MetadataRequest(topics=[]), version=8)
        alice.close()


async def test_tokens_are_seen_by_whom_they_concern_and_who_may_describe_them(tmp_path: Path) -> None:
    async with acl_node(tmp_path, **TOKENS) as node:
        alice, bob, admin = [await channel_of(node, name) for name in ("alice", "bob", "admin")]
        of_alice, of_bob = (await alice.request(creation())).token_id, (await bob.request(creation())).token_id
        assert await seen(alice) == await seen(alice, ["alice"]) == [of_alice]
        assert await seen(alice, ["bob"]) == await seen(alice, []) == []
        assert await seen(admin) == await seen(admin, ["r"]) == sorted([of_alice, of_bob])
        set_acls(node, [allow(ResourceType.DELEGATION_TOKEN, of_bob, Operation.DESCRIBE)])
        assert await seen(alice) == sorted([of_alice, of_bob])
        set_acls(node, [allow(ResourceType.USER, "User:bob", Operation.DESCRIBE_TOKENS)])
        assert await seen(alice, ["bob"]) == [of_bob]
        set_acls(node, [allow(ResourceType.USER, "User:bob", Operation.CREATE_TOKENS)])
        made = await alice.request(creation("bob"))
        assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "bob", "alice")
        assert made.token_id in await seen(alice, ["bob"])
        for channel in (alice, bob, admin):
            channel.close()


async def test_expired_tokens_are_removed(tmp_path: Path) -> None:
    async with acl_node(tmp_path, **TOKENS, delegation_token_expiry_check_interval_ms="5") as node:
        alice = await channel_of(node, "alice")
        kind = CreateDelegationTokenRequest
        short = await alice.request(kind(renewers=[], max_lifetime_ms=1))
        kept = await alice.request(creation())
        while short.token_id in await seen(alice):
            await asyncio.sleep(0)
        assert await seen(alice) == [kept.token_id]
        alice.close()


async def test_a_token_outlives_a_restart(tmp_path: Path) -> None:
    async with acl_node(tmp_path, **TOKENS) as node:
        alice = await channel_of(node, "alice")
        token = await alice.request(creation())
        alice.close()
    async with acl_node(tmp_path, **TOKENS) as node:
        (await channel_by(node, login(token))).close()


async def test_very_many_tokens_are_known_by_their_hmacs(tmp_path: Path) -> None:
    image = MetadataImage()
    tokens = DelegationTokens("hush", lambda: image)
    image.delegation_tokens = {f"token{number}": DelegationTokenRecord(token_id=f"token{number}") for number in range(600)}
    assert await tokens.id_of(tokens.hmac("token599")) == "token599"
    assert await tokens.id_of(b"unknown") is None
    image.delegation_tokens = {"new": DelegationTokenRecord(token_id="new")}
    assert await tokens.id_of(tokens.hmac("new")) == "new"
    assert await tokens.id_of(tokens.hmac("token599")) is None
    assert await DelegationTokens(None, lambda: image).id_of(b"") is None


def test_an_envelope_says_that_a_token_authenticated_its_client() -> None:
    assert isinstance(principal_of(principal_bytes(TokenPrincipal("User:alice"))), TokenPrincipal)
    assert not isinstance(principal_of(principal_bytes("User:alice")), TokenPrincipal)
    assert TokenPrincipal("User:alice") == "User:alice"


@pytest.mark.parametrize(("owner", "is_admitted"), [("User:admin", True), ("Foo:admin", False), (":admin", False), ("admin", False)])
def test_a_token_in_the_metadata_whose_owner_is_no_user_admits_nobody(owner: str, is_admitted: bool) -> None:
    image = MetadataImage()
    image.delegation_tokens["t"] = DelegationTokenRecord(
        owner=owner, requester="User:eve", renewers=[], issue_timestamp=0, max_timestamp=9, expiration_timestamp=9, token_id="t"
    )
    login = DelegationTokens("secret", lambda: image).login("t", SHA_256)
    assert (login is not None) is is_admitted
