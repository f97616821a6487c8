"""Delegation tokens beside Apache Kafka 4.4: the same requests get the same answers, and its tool has the same output."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from helpers import apache_kafka
from helpers.acl_node import PROPERTIES, acl_node, channel_to, login_of
from helpers.live_node import broker_port

from minikafka.cli.main import cli
from minikafka.net.channel import Channel
from minikafka.net.network import AuthenticationFailed
from minikafka.net.server import SocketNetwork
from minikafka.security.client import ClientSecurity
from minikafka.wire.message import Struct
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from minikafka.wire.messages.describe_acls import DescribeAclsRequest
from minikafka.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from minikafka.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from minikafka.wire.messages.metadata import MetadataRequest
from minikafka.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.timeout(240)]
SECURE = {"delegation.token.secret.key": "hush", "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}
MINUTE_MS = 60_000
USER, DELEGATION_TOKEN, CREATE_TOKENS, DESCRIBE_TOKENS, DESCRIBE = 7, 6, 13, 14, 8


def create(owner: str | None = None, lifetime_ms: int = -1, renewers: tuple[str, ...] = (), renewer_type: str = "User") -> Any:
    kind = CreateDelegationTokenRequest
    of = [kind.CreatableRenewers(principal_type=renewer_type, principal_name=name) for name in renewers]
    return kind(
        owner_principal_type=owner and "User", owner_principal_name=owner, renewers=of, max_lifetime_ms=lifetime_ms
    )  # fmt: skip


def describe(*owners: str) -> Any:
    kind = DescribeDelegationTokenRequest
    return kind(owners=[kind.DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners])


def acl(kind: int, name: str, operation: int) -> Any:
    made = CreateAclsRequest.AclCreation(resource_type=kind, resource_name=name, resource_pattern_type=3, permission_type=3)
    made.principal, made.host, made.operation = "User:alice", "*", operation
    return CreateAclsRequest(creations=[made])


def renew(number: int, period_ms: int = -1) -> Any:
    return lambda hmacs: RenewDelegationTokenRequest(hmac=hmacs[number] if number >= 0 else b"no token", renew_period_ms=period_ms)


def expire(number: int, period_ms: int = -1) -> Any:
    return lambda hmacs: ExpireDelegationTokenRequest(hmac=hmacs[number] if number >= 0 else b"no token", expiry_time_period_ms=period_ms)


#: Who asks, and for what; a function gets the HMACs of the tokens made so far.
STORY: list[tuple[str, Any]] = [
    ("alice", create()), ("alice", create(renewers=("bob",))), ("bob", create(lifetime_ms=5 * MINUTE_MS)), ("alice", create("bob")),
    ("admin", create("bob", renewers=("alice", "admin"))), ("alice", create("alice")),
    ("alice", create(renewers=("x",), renewer_type="Group")),
    ("alice", create(lifetime_ms=1 << 62)), ("alice", create(lifetime_ms=0)), ("admin", acl(USER, "User:bob", CREATE_TOKENS)),
    ("alice", create("bob")), ("alice", describe()), ("alice", DescribeDelegationTokenRequest(owners=None)), ("alice", describe("bob")),
    ("alice", describe("alice", "bob")), ("bob", DescribeDelegationTokenRequest(owners=None)), ("bob", describe("nobody")),
    ("admin", DescribeDelegationTokenRequest(owners=None)), ("admin", acl(USER, "User:bob", DESCRIBE_TOKENS)), ("alice", describe("bob")),
    ("alice", renew(0)), ("bob", renew(1, 2 * MINUTE_MS)), ("bob", renew(0)), ("alice", renew(-1)), ("alice", renew(2)), ("bob", renew(2)),
    ("alice", renew(1, 1 << 62)), ("alice", expire(1, 3 * MINUTE_MS)), ("bob", expire(0)), ("alice", expire(0)), ("alice", expire(0)),
    ("alice", expire(-1)), ("bob", expire(2, 1 << 62)), ("alice", expire(3, 0)), ("admin", DescribeDelegationTokenRequest(owners=None)),
]  # fmt: skip
OLDER = frozenset({38, 39, 40, 41})


async def told(port: int) -> tuple[list[Any], dict[str, bytes]]:
    """The answers to the story, in words, first in the newest versions and then in old ones; and the HMACs by token id."""
    channels = {name: await channel_to(port, name) for name in ("alice", "bob", "admin")}
    answers: list[Any] = []
    ids: list[str] = []
    hmacs: list[bytes] = []
    for is_old in (False, True):
        for who, asked in STORY:
            request = asked(hmacs) if callable(asked) else asked
            if is_old and getattr(request, "owner_principal_name", None):
                continue
            answer = await channels[who].request(request, 1 if is_old and request.API_KEY in OLDER else None)
            if getattr(answer, "token_id", ""):
                ids.append(answer.token_id)
                hmacs.append(bytes(answer.hmac))
            await settled(channels["admin"], request, answer)
            answers.append(words(answer, ids, hmacs, issued_ms=getattr(answer, "issue_timestamp_ms", 0)))
    for channel in channels.values():
        channel.close()
    return answers, dict(zip(ids, hmacs, strict=True))


async def settled(admin: Channel, request: Any, answer: Any) -> None:
    """Wait until the broker knows of a change: Apache Kafka answers before."""
    if isinstance(request, CreateAclsRequest):
        made = request.creations[0]
        wanted = DescribeAclsRequest(resource_name_filter=None, principal_filter=None, host_filter=None, pattern_type_filter=3)
        wanted.resource_type_filter, wanted.operation, wanted.permission_type = made.resource_type, made.operation, 1
        while not (await admin.request(wanted)).resources:
            pass
        return
    if isinstance(request, DescribeDelegationTokenRequest) or answer.error_code:
        return
    hmac = bytes(getattr(answer, "hmac", b"") or request.hmac)
    is_ended = getattr(request, "expiry_time_period_ms", 0) < 0
    while True:
        known = {
            bytes(token.hmac): token.expiry_timestamp for token in (await admin.request(DescribeDelegationTokenRequest(owners=None))).tokens
        }
        if known.get(hmac) == (None if is_ended else answer.expiry_timestamp_ms):
            return


def words(value: Any, ids: list[str], hmacs: list[bytes], issued_ms: int) -> Any:
    """A message without what two brokers cannot have in common: times are minutes since the first."""
    if isinstance(value, Struct):
        names = [name for name in type(value).__annotations__ if name[0].islower() and name != "throttle_time_ms"]
        issued_ms = getattr(value, "issue_timestamp", issued_ms)
        return {name: _word(name, getattr(value, name), ids, hmacs, issued_ms) for name in names}
    if isinstance(value, list):
        return sorted((words(one, ids, hmacs, issued_ms) for one in value), key=str)
    return value


def _word(name: str, value: Any, ids: list[str], hmacs: list[bytes], issued_ms: int) -> Any:
    if name == "token_id" and value in ids:
        return ids.index(value)
    if name == "hmac":
        return hmacs.index(bytes(value)) if bytes(value) in hmacs else bytes(value)
    if "timestamp" in name and value > 1 << 40:
        # Without the time of issue: the answer to a renewal.
        return round((value - issued_ms) / MINUTE_MS) if issued_ms > 0 else "a time"
    return words(value, ids, hmacs, issued_ms)


def token_login(token_id: str, hmac: bytes, mechanism: str) -> Mapping[str, str]:
    password = base64.b64encode(hmac).decode()
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username="{token_id}" password="{password}" tokenauth="true";'
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


async def refusals(port: int, tokens: Mapping[str, bytes]) -> list[str]:
    """What each token's log-in, one with a wrong HMAC and one with an unknown id come to, and what a client that is logged in may ask."""
    found, network = [], SocketNetwork(asyncio.get_running_loop())
    tries = [*tokens.items(), (next(iter(tokens)), b"guessed"), ("unknown", b"guessed")]
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        for token_id, hmac in tries:
            security = ClientSecurity.from_properties(token_login(token_id, hmac, mechanism))
            try:
                channel = await Channel.open(network, "127.0.0.1", port, client_id="test", security=security)
                code = (await channel.request(create())).error_code
                await channel.request(MetadataRequest(topics=[]), 8)
                channel.close()
                found.append(f"in, {code}")
            except AuthenticationFailed as error:
                found.append(str(error).partition(" ")[2])
            except ConnectionError:
                found.append("closed")
    return found


async def test_answers_and_log_ins_are_those_of_apache_kafka(tmp_path: Path) -> None:
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    of_scram = {f"listener.name.plaintext.scram-sha-{size}.sasl.jaas.config": scram for size in (256, 512)}
    properties = {**PROPERTIES, **SECURE, **of_scram}
    broker = apache_kafka.KafkaBroker(tmp_path / "kafka", properties, version=apache_kafka.NEXT)
    broker.format()
    with broker.running(60):
        port = int(broker.bootstrap.rpartition(":")[2])
        theirs, their_tokens = await told(port)
        their_logins = await refusals(port, their_tokens)
    async with acl_node(tmp_path, **{name.replace(".", "_"): value for name, value in SECURE.items()}) as node:
        ours, our_tokens = await told(broker_port(node))
        our_logins = await refusals(broker_port(node), our_tokens)
    for (who, asked), one, other in zip(STORY, theirs, ours, strict=False):
        assert other == one, (who, asked)
    assert ours == theirs
    assert our_logins == their_logins


async def test_apache_kafkas_tool_makes_tokens_here(tmp_path: Path) -> None:
    file = tmp_path / "alice.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in login_of("alice").items()))
    async with acl_node(tmp_path, **{name.replace(".", "_"): value for name, value in SECURE.items()}) as node:
        where = ("--bootstrap-server", f"127.0.0.1:{broker_port(node)}", "--command-config", str(file))
        made = ("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob", "--renewer-principal", "User:carol")

        def both(*words: str) -> tuple[str, str]:
            theirs = apache_kafka.run_tool("org.apache.kafka.tools.DelegationTokenCommand", *where, *words)
            return theirs, CliRunner().invoke(cli, ["delegation-tokens", *where, *words]).stdout

        theirs, ours = await asyncio.to_thread(both, *made)
        assert shape(ours) == shape(theirs)
        hmac = re.findall(r"\S{86}==", theirs)[0]
        theirs, ours = await asyncio.to_thread(both, "--renew", "--renew-time-period", "60000", "--hmac", hmac)
        assert shape(ours) == shape(theirs) and "Completed renew" in ours
        theirs, ours = await asyncio.to_thread(both, "--describe", "--owner-principal", "User:alice")
        assert sorted(ours.split()) == sorted(theirs.split())


def shape(text: str) -> list[str]:
    """The words of an output, without ids, HMACs and times."""
    return [re.sub(r"\S{86}==|[\w-]{22}$|\d{4}-\d\d-\d\dT\d\d:\d\d", "..", word) for word in text.split()]
