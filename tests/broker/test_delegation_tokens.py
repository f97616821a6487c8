"""A broker has no delegation tokens and says so, as an Apache Kafka without delegation.token.secret.key does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from helpers.acl_node import acl_node, allow, channel_of, set_acls
from helpers.live_node import broker_port, controller_port, live_node

from minikafka.broker.front.forwarding import address_bytes, principal_bytes
from minikafka.core.authorizer.acl import Operation, ResourceType
from minikafka.net.channel import Channel
from minikafka.net.server import SocketNetwork
from minikafka.wire.errors import ErrorCode
from minikafka.wire.frame import encode_request
from minikafka.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from minikafka.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from minikafka.wire.messages.envelope import EnvelopeRequest
from minikafka.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from minikafka.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

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
