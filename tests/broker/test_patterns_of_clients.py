"""ListTransactions with a client's pattern: RE2's semantics, Kafka's error, matched in a thread, and only against permitted ids."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from helpers.acl_node import acl_node, allow, channel_of, set_acls

from minikafka.core import pattern
from minikafka.core.authorizer.acl import Operation, ResourceType
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.init_producer_id import InitProducerIdRequest
from minikafka.wire.messages.list_transactions import ListTransactionsRequest

NAMES = ("a" * 60, "mine", "other")


async def listed(channel: Any, text: str | None) -> list[str] | int:
    response: Any = await channel.request(ListTransactionsRequest(transactional_id_pattern=text))
    return response.error_code or sorted(state.transactional_id for state in response.transaction_states)


async def test_patterns_are_those_of_re2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, str]] = []
    matches = pattern.Pattern.matches

    def watched(self: Any, text: str) -> bool:
        seen.append((threading.current_thread() is threading.main_thread(), text))
        return matches(self, text)

    monkeypatch.setattr(pattern.Pattern, "matches", watched)
    async with acl_node(tmp_path) as node:
        assert node.broker is not None
        await node.broker.transactions.topic.ensure()
        admin, alice = await channel_of(node, "admin"), await channel_of(node, "alice")
        for name in NAMES:
            made: Any = None
            while made is None or made.error_code:
                made = await admin.request(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000))
                await asyncio.sleep(0.02)
        assert await listed(admin, "m.*|o.*") == ["mine", "other"]
        assert await listed(admin, "in") == []
        assert await listed(admin, "(a+)+b") == []
        assert await listed(admin, "") == await listed(admin, None) == sorted(NAMES)
        assert await listed(admin, "(?=a)") == await listed(admin, "(") == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert await listed(admin, "x" * 5000) == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert {text for _, text in seen} == set(NAMES) and not any(is_main for is_main, _ in seen)
        seen.clear()
        set_acls(node, [allow(ResourceType.TRANSACTIONAL_ID, "mine", Operation.DESCRIBE)])
        assert await listed(alice, ".*") == ["mine"]
        assert [text for _, text in seen] == ["mine"]
