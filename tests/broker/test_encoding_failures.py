"""An answer that cannot be encoded is a mistake of the broker's: counted, logged with its stack, and the end of one connection."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.wire.frame import encode_request
from minikafka.wire.message import Request
from minikafka.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from minikafka.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from minikafka.wire.types import STRING_BYTES_MAX

LONG = "x" * (STRING_BYTES_MAX + 1)


@pytest.mark.asyncio
@pytest.mark.parametrize("is_long", [False, True])
async def test_it_is_counted_as_an_unexpected_failure(tmp_path: Path, is_long: bool, caplog: pytest.LogCaptureFixture) -> None:
    def broken(context: Any, request: Request) -> Any:
        if is_long:
            return DescribeGroupsResponse(groups=[DescribeGroupsResponse.DescribedGroup(group_id=LONG)])
        return ListGroupsResponse(groups=[ListGroupsResponse.ListedGroup(group_id=LONG)])

    request = DescribeGroupsRequest(groups=["g" * 100] * 100) if is_long else ListGroupsRequest()
    async with live_node(tmp_path) as node:
        assert node.broker is not None
        node.broker.dispatcher.intercept(lambda handler: broken)
        supervisor = node.broker.dispatcher.supervisor
        for number in (1, 2):
            reader, writer = await asyncio.open_connection("127.0.0.1", broker_port(node))
            writer.write(b"".join(bytes(piece) for piece in encode_request(request, 4 if not is_long else 5, 1, "c")))
            assert await reader.read() == b""
            writer.close()
            assert supervisor.unexpected["connection"] == number
        assert not supervisor.failed.done()
    logged = [record for record in caplog.records if record.levelno == logging.CRITICAL and "failed unexpectedly" in record.getMessage()]
    assert len(logged) == 2 and all(record.exc_info for record in logged)
