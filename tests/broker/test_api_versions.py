"""ApiVersions, whose answer is put together from what was encoded before: to the byte what the message would be."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.lanes import Side
from helpers.live_node import live_node

from minikafka.wire.frame import encode_request, encode_response
from minikafka.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


@pytest.mark.parametrize("version", range(5))
async def test_api_versions(tmp_path: Path, version: int) -> None:
    async with live_node(tmp_path) as node:
        assert node.broker is not None
        dispatcher = node.broker.dispatcher
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        frame = b"".join(encode_request(request, version, 7, "test"))[4:]  # type: ignore[arg-type]
        side = Side(dispatcher, short=True)
        first = side.ask(frame)
        assert first is not None and side.ask(frame) == first
        answer = ApiVersionsResponse.decode(version, first, 8)
        assert b"".join(encode_response(answer, version, 7)) == first  # type: ignore[arg-type]
        served = [(entry.api_key, entry.min_version, entry.max_version) for entry in dispatcher.entries]
        assert [(entry.api_key, entry.min_version, entry.max_version) for entry in answer.api_keys] == served
        _, finalized, epoch = node.features()
        told = [(feature.name, feature.max_version_level) for feature in answer.finalized_features]
        assert (told, answer.finalized_features_epoch) == ((finalized, epoch) if version >= 3 else ([], -1))
