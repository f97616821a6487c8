"""What peers name is kept up to a bound: client ids, software, shapes of requests, sessions of fetches, clients with quotas."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.control_plane import FakeClock, FakeConnection

from minikafka.broker.front import dispatch as dispatch_module
from minikafka.broker.front.dispatch import CLIENT_ID_KEPT_MAX, CLIENT_IDS_KEPT, OTHER_SOFTWARE, SOFTWARE_KEPT, SOFTWARE_MAX, Dispatcher
from minikafka.broker.front.throttled import SHARES_KEPT, Gate
from minikafka.core import client_quota, fetch_session
from minikafka.core.client_quota import CLIENT_ID_MAX, METERS_MAX, ClientQuotas
from minikafka.core.fetch_session import TOPIC_NAME_MAX, FetchSessionCache
from minikafka.wire.errors import ApiError
from minikafka.wire.frame import encode_request
from minikafka.wire.messages.api_versions import ApiVersionsRequest
from minikafka.wire.messages.fetch import FetchRequest


def dispatcher() -> Dispatcher:
    return Dispatcher("broker", FakeClock(), SimpleNamespace())  # type: ignore[arg-type]


async def test_client_ids_are_few_and_short() -> None:
    front, connection = dispatcher(), FakeConnection()
    for number in range(CLIENT_IDS_KEPT + 100):
        raw = b"%d" % number if number % 2 else b"%d" % number + b"x" * 30_000
        frame = struct.pack(">hhih", 18, 0, number, len(raw)) + raw
        front.dispatch(connection, "L", memoryview(frame))  # type: ignore[arg-type]
    assert len(front._client_ids) <= CLIENT_IDS_KEPT
    assert max(map(len, front._client_ids)) <= CLIENT_ID_KEPT_MAX
    for number in range(2 * CLIENT_IDS_KEPT):
        front._keep_client_id(b"%d" % number)
    assert len(front._client_ids) == CLIENT_IDS_KEPT and b"%d" % (2 * CLIENT_IDS_KEPT - 1) in front._client_ids


async def test_software_is_told_apart_up_to_a_number_and_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    front = dispatcher()

    def hello(connection: FakeConnection, name: str) -> None:
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
        frame = b"".join(bytes(piece) for piece in encode_request(request, 3, 1, "c"))[4:]
        front.dispatch(connection, "L", memoryview(frame))  # type: ignore[arg-type]

    connections = [FakeConnection() for _ in range(SOFTWARE_KEPT + 50)]
    for number, connection in enumerate(connections):
        hello(connection, f"lib{number}")
    assert len(set(front.software.values())) == SOFTWARE_KEPT + 1
    assert front.software[connections[0]] == ("L", "lib0", "1")
    assert front.software[connections[-1]] == ("L", OTHER_SOFTWARE, OTHER_SOFTWARE)
    hello(connections[-1], "lib0")
    assert front.software[connections[-1]] == ("L", "lib0", "1")
    hello(connections[0], "a" * (SOFTWARE_MAX + 1))
    assert front.software[connections[0]] == ("L", OTHER_SOFTWARE, OTHER_SOFTWARE)
    assert dispatch_module.SOFTWARE_MAX < 100


def test_clients_with_quotas_are_remembered_up_to_a_number() -> None:
    quotas = ClientQuotas(11, 1000, 11, 1000)
    quotas.configure({(("client-id", None),): {"producer_byte_rate": 1000.0}})
    for number in range(METERS_MAX + 50):
        limits = quotas.of("u", f"{number}" + "x" * 1000, number)
        assert limits is not None and limits.produce is not None
    meters = list(quotas.meters())
    assert len(meters) == METERS_MAX and all(len(meter.share[1]) == CLIENT_ID_MAX for meter in meters)
    gate = Gate(quotas, FakeClock(), lambda: 0.0)
    for number in range(SHARES_KEPT + 50):
        raw = b"%d" % number + (b"x" * 1000 if number % 2 else b"")
        gate.limits(FakeConnection(), memoryview(struct.pack(">hhih", 0, 9, 1, len(raw)) + raw))  # type: ignore[arg-type]
    assert len(gate._cached) <= SHARES_KEPT and all(len(raw) <= CLIENT_ID_MAX for _, raw in gate._cached)


def test_addresses_with_quotas_are_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quota, "METERS_MAX", 100)
    quotas = ClientQuotas(11, 1000, 11, 1000)
    quotas.configure({(("ip", None),): {"connection_creation_rate": 1000.0}})
    for number in range(150):
        quotas.connection_pause_ms(f"10.0.0.{number}", 0)
    assert len(quotas._connections) == 100


def fetch(*names: str, epoch: int = 0, session_id: int = 0, partitions: int = 1) -> FetchRequest:
    kind = FetchRequest
    parts = [kind.FetchPartition(partition=number) for number in range(partitions)]
    return kind(session_id=session_id, session_epoch=epoch, topics=[kind.FetchTopic(topic=name, partitions=parts) for name in names])


def context(cache: FetchSessionCache, request: FetchRequest) -> Any:
    return cache.context(request, 12, is_follower=False, name_of=lambda _: None, now_ms=0)


def test_sessions_of_fetches_have_room_for_so_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "PARTITIONS_MAX", 10)
    monkeypatch.setattr(fetch_session, "ALL_PARTITIONS_MAX", 25)
    ids = iter(range(1, 100))
    cache = FetchSessionCache(100, lambda: next(ids))
    assert context(cache, fetch("t", partitions=11)).session_id == 0
    assert context(cache, fetch("t" * (TOPIC_NAME_MAX + 1))).session_id == 0
    kept = [context(cache, fetch("t", partitions=10)).session_id for _ in range(5)]
    assert kept[:2] == [1, 2] and kept[2:] == [0, 0, 0]
    with pytest.raises(ApiError):
        context(cache, fetch("u", epoch=1, session_id=1))
    assert cache.partitions_count == 10
    with pytest.raises(ApiError):
        context(cache, fetch("t" * (TOPIC_NAME_MAX + 1), epoch=1, session_id=2))
    assert cache.partitions_count == 0
