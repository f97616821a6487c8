"""The states of SASL on a real socket: what is answered, what ends the connection, and that garbage gets nowhere."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from helpers.live_node import live_node

from minikafka.broker.node import Node
from minikafka.broker.security.sasl_session import SaslSession
from minikafka.net.network import ConnectionLimits
from minikafka.wire.errors import ErrorCode
from minikafka.wire.frame import encode_request
from minikafka.wire.header import decode_response_header
from minikafka.wire.message import Request
from minikafka.wire.messages.api_versions import ApiVersionsRequest
from minikafka.wire.messages.metadata import MetadataRequest
from minikafka.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from minikafka.wire.messages.sasl_handshake import SaslHandshakeRequest
from minikafka.wire.registry import api

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="a" user_admin="a" user_alice="secret";'
GOOD, WRONG = b"\0alice\0secret", b"\0alice\0wrong"
FAILED_DELAY_MS = 150


@contextlib.asynccontextmanager
async def node(tmp_path: Path, **more: str) -> AsyncIterator[Node]:
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
        "connection.failed.authentication.delay.ms": str(FAILED_DELAY_MS),
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    async with live_node(tmp_path, properties) as made:
        yield made


class Client:
    """Speaks frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, made: Node) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", made.listeners["PLAINTEXT"].port))

    def send(self, request: Request, version: int) -> None:
        for piece in encode_request(request, version, 7, "test"):
            self.writer.write(cast(bytes, piece))

    async def raw(self) -> bytes:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)

    async def ask(self, request: Request, version: int) -> Any:
        self.send(request, version)
        frame = memoryview(await self.raw())
        _, position = decode_response_header(frame, request.API_KEY, version, 0)
        entry = api(request.API_KEY)
        assert entry is not None
        return entry.response.decode(version, frame, position)

    async def shake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return await self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    async def token(self, token: bytes, version: int = 2) -> Any:
        return await self.ask(SaslAuthenticateRequest(auth_bytes=token), version)

    async def ended(self) -> None:
        with contextlib.suppress(ConnectionError):
            assert await self.reader.read() == b""
        self.writer.close()


async def is_in(client: Client) -> None:
    answer = await client.ask(MetadataRequest(topics=[]), 12)
    assert answer.brokers
    client.writer.close()


async def test_the_states_one_after_the_other(tmp_path: Path) -> None:
    async with node(tmp_path) as made:
        client = await Client.to(made)
        assert (await client.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)).error_code == 0
        agreed = await client.shake()
        assert agreed.error_code == 0 and agreed.mechanisms == ["PLAIN"]
        answer = await client.token(GOOD)
        assert answer.error_code == 0 and answer.session_lifetime_ms == 0
        await is_in(client)


async def test_bare_tokens_after_a_handshake_of_version_0(tmp_path: Path) -> None:
    async with node(tmp_path) as made:
        client = await Client.to(made)
        await client.shake(version=0)
        client.writer.write(struct.pack(">i", len(GOOD)) + GOOD)
        assert await client.raw() == b""
        await is_in(client)
        client = await Client.to(made)
        await client.shake(version=0)
        client.writer.write(struct.pack(">i", len(WRONG)) + WRONG)
        await client.ended()


async def test_refusals_come_late_and_end_the_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    async with node(tmp_path) as made:
        client = await Client.to(made)
        await client.shake()
        began = loop.time()
        answer = await client.token(WRONG)
        assert loop.time() - began >= FAILED_DELAY_MS / 1000 - 0.02
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED, "Authentication failed: Invalid username or password",
        )  # fmt: skip
        await client.ended()
        assert "authentication failed (PLAIN): wrong password of user 'alice'" in caplog.text and "secret" not in caplog.text
        client = await Client.to(made)
        answer = await client.shake("GSSAPI")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM and answer.mechanisms == ["PLAIN"]
        await client.ended()
        client = await Client.to(made)
        await client.shake()
        assert (await client.shake()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        await client.ended()
        client = await Client.to(made)
        await client.shake()
        assert (await client.ask(ApiVersionsRequest(), 0)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        await client.ended()


async def test_nothing_else_is_served_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with node(tmp_path) as made:
        for first, second in (
            ([], (MetadataRequest(topics=[]), 12)),
            ([], (SaslAuthenticateRequest(auth_bytes=GOOD), 2)),
            ([(SaslHandshakeRequest(mechanism="PLAIN"), 1)], (MetadataRequest(topics=[]), 12)),
            ([(ApiVersionsRequest(), 0)], (ApiVersionsRequest(), 0)),
        ):
            client = await Client.to(made)
            for request, version in first:
                await client.ask(request, version)
            client.send(*second)
            await client.ended()
        assert "a request of type Metadata came during the SASL handshake" in caplog.text
        assert "a request of type Metadata came during SASL authentication" in caplog.text


async def test_frames_are_small_until_the_client_is_known(tmp_path: Path) -> None:
    async with node(tmp_path, sasl_server_max_receive_size="1000") as made:
        client = await Client.to(made)
        client.writer.write(struct.pack(">i", 1001) + bytes(10))
        await client.ended()
        client = await Client.to(made)
        await client.shake()
        # The limit is gone for what has come in one piece with the last token.
        client.send(SaslAuthenticateRequest(auth_bytes=GOOD), 2)
        names = [MetadataRequest.MetadataRequestTopic(name=f"{'x' * 200}{number}") for number in range(100)]
        client.send(MetadataRequest(topics=names, allow_auto_topic_creation=False), 12)
        await client.raw()
        assert len(await client.raw()) > 10_000
        client.writer.close()


async def test_authenticating_anew(tmp_path: Path) -> None:
    async with node(tmp_path, connections_max_reauth_ms="600") as made:
        client = await Client.to(made)
        await client.shake()
        assert (await client.token(GOOD)).session_lifetime_ms == 600
        assert (await client.shake()).error_code == 0
        assert (await client.token(GOOD)).error_code == 0
        # A second time within a second is an ordinary request that comes too late.
        assert (await client.shake()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        other = await Client.to(made)
        await other.shake()
        await other.token(GOOD)
        await other.shake()
        answer = await other.token(b"\0admin\0a")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED and "Cannot change principals" in answer.error_message
        await other.ended()
        await asyncio.sleep(0.65)
        client.send(MetadataRequest(topics=[]), 12)
        await client.ended()


@pytest.mark.parametrize(
    ("reauth_ms", "left_ms", "reason"),
    [
        (600, None, "connections.max.reauth.ms"),
        (600, 700, "connections.max.reauth.ms"),
        (600, 500, "its delegation token's time is over"),
        (0, 500, "its delegation token's time is over"),
        (0, -1, "its delegation token's time is over"),
    ],
)
async def test_the_end_of_a_session_says_what_has_ended_it(reauth_ms: int, left_ms: int | None, reason: str) -> None:
    now, closed, loop = [1000], list[str](), asyncio.get_running_loop()
    sasl = SimpleNamespace(session_lifetime_ms=lambda mechanism: reauth_ms)
    dispatcher = SimpleNamespace(session=lambda listener: SimpleNamespace(on_frame=lambda connection, frame: None))
    clock = SimpleNamespace(now_ms=lambda: now[0], wall_ms=lambda: 5000 + now[0])
    session = SaslSession(sasl, dispatcher, "L", ConnectionLimits(), clock, loop)  # type: ignore[arg-type]
    session._server = SimpleNamespace(user="a", expiry_ms=None if left_ms is None else 6000 + left_ms)  # type: ignore[assignment]
    connection: Any = SimpleNamespace(close=closed.append)
    session._done(connection)
    now[0] += 601
    session.on_frame(connection, memoryview(bytes(20)))
    assert closed == [f"its authentication has expired ({reason}), and it did not re-authenticate"]


async def test_garbage_never_gets_in_and_never_hurts_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    generator = random.Random(11)
    steps: list[tuple[Request, int]] = [
        (ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3),
        (SaslHandshakeRequest(mechanism="PLAIN"), 1),
        (SaslAuthenticateRequest(auth_bytes=WRONG), 2),
        (MetadataRequest(topics=[]), 12),
    ]
    async with node(tmp_path, connection_failed_authentication_delay_ms="0") as made:

        async def attack(number: int) -> None:
            own = random.Random(number)
            client = await Client.to(made)
            with contextlib.suppress(ConnectionError):
                for _ in range(own.randrange(1, 6)):
                    data = bytearray(b"".join(bytes(cast(bytes, p)) for p in encode_request(*own.choice(steps), 1, "t")))
                    for _ in range(own.randrange(4)):
                        data[own.randrange(4, len(data))] = own.randrange(256)
                    client.writer.write(bytes(data))
                    await client.writer.drain()
                client.writer.write_eof()
                answered = await client.reader.read()
                # A Metadata answer would carry the cluster's id.
                assert made.cluster_id.encode() not in answered
            client.writer.close()

        await asyncio.gather(*(attack(generator.randrange(1 << 30)) for _ in range(200)))
        client = await Client.to(made)
        await client.shake()
        await client.token(GOOD)
        await is_in(client)
        assert "failed unexpectedly" not in caplog.text and "Traceback" not in caplog.text


@pytest.mark.asyncio
async def test_an_authentication_that_does_not_come_to_an_end_has_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minikafka.broker.security.sasl_session.AUTHENTICATION_TIMEOUT_MS", 300)
    async with node(tmp_path) as made:
        good, silent, halfway, again = [await Client.to(made) for _ in range(4)]
        await good.shake()
        assert (await good.token(GOOD)).error_code == ErrorCode.NONE
        await again.shake()
        assert (await again.token(GOOD)).error_code == ErrorCode.NONE
        assert (await again.shake()).error_code == ErrorCode.NONE
        await halfway.shake()
        for client in (silent, halfway, again):
            await client.ended()
        assert (await good.ask(MetadataRequest(), 4)).brokers
