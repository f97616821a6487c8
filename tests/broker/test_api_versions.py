"""ApiVersions, whose answer is put together from what was encoded before: to the byte what the message would be."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from helpers.fast_paths import Side
from helpers.live_node import CLUSTER_ID, live_node

from minikafka.broker.front.dispatch import Dispatcher
from minikafka.broker.supervise import Supervisor
from minikafka.net.clock import SystemClock
from minikafka.wire.api_table import API_TABLE
from minikafka.wire.errors import ErrorCode
from minikafka.wire.frame import encode_request, encode_response
from minikafka.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

#: Named only while somebody subscribes to clients' metrics.
TELEMETRY_APIS = {71, 72}


@pytest.mark.parametrize("version", range(6))
async def test_api_versions(tmp_path: Path, version: int) -> None:
    async with live_node(tmp_path) as node:
        assert node.broker is not None
        dispatcher = node.broker.dispatcher
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        frame = b"".join(encode_request(request, version, 7, "test"))[4:]  # type: ignore[arg-type]
        side = Side(dispatcher, fast=True)
        first = side.ask(frame)
        assert first is not None and side.ask(frame) == first
        answer = ApiVersionsResponse.decode(version, first, 8)
        assert b"".join(encode_response(answer, version, 7)) == first  # type: ignore[arg-type]
        served = [
            (entry.api_key, entry.min_version if entry.api_key else 0, entry.max_version)
            for entry in dispatcher.entries
            if entry.api_key not in TELEMETRY_APIS
        ]
        assert [(entry.api_key, entry.min_version, entry.max_version) for entry in answer.api_keys] == served
        _, finalized, epoch = node.features()
        reported = [(feature.name, feature.max_version_level) for feature in answer.finalized_features]
        assert (reported, answer.finalized_features_epoch) == ((finalized, epoch) if version >= 3 else ([], -1))


async def test_each_kind_of_listener_serves_every_api_of_its_kind(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node:
        assert node.broker is not None and node.controller_dispatcher is not None
        for kind, dispatcher in (("broker", node.broker.dispatcher), ("controller", node.controller_dispatcher)):
            assert [entry.name for entry in dispatcher.entries] == [row.name for row in API_TABLE if kind in row.listeners]


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "on_broker", "on_controller"),
    [
        (None, -1, "NONE", "NONE"), (CLUSTER_ID, 1, "NONE", "NONE"), ("other", 1, "REBOOTSTRAP_REQUIRED", "NONE"),
        (CLUSTER_ID, 2, "REBOOTSTRAP_REQUIRED", "NONE"), ("", 1, "REBOOTSTRAP_REQUIRED", "NONE"),
        (CLUSTER_ID, -2, "REBOOTSTRAP_REQUIRED", "NONE"), ("other", -1, "INVALID_REQUEST", "INVALID_REQUEST"),
        (None, 2, "INVALID_REQUEST", "INVALID_REQUEST"), (CLUSTER_ID, -1, "INVALID_REQUEST", "INVALID_REQUEST"),
    ],
)  # fmt: skip
async def test_a_client_that_looks_for_another_node_gets_an_error(
    cluster_id: str | None, node_id: int, on_broker: str, on_controller: str
) -> None:
    """As Apache Kafka 4.4.0 answers on both kinds of listeners (KIP-1242)."""
    supervisor, clock = Supervisor(asyncio.get_running_loop()), SystemClock()
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1", cluster_id=cluster_id, node_id=node_id)
    frame = b"".join(encode_request(request, 5, 7, "test"))[4:]  # type: ignore[arg-type]
    answers = {
        "broker": Dispatcher("broker", clock, supervisor, identity=(CLUSTER_ID, 1)),
        "controller": Dispatcher("controller", clock, supervisor),
    }
    reported = {}
    for kind, dispatcher in answers.items():
        answer = ApiVersionsResponse.decode(5, Side(dispatcher, fast=True).ask(frame), 8)
        reported[kind] = ErrorCode(answer.error_code).name
        assert bool(answer.api_keys) is not bool(answer.error_code)
    assert reported == {"broker": on_broker, "controller": on_controller}
