"""DescribeClientQuotas: which filters are refused, and with Kafka's words (texts as Apache Kafka 4.3.0 answered them)."""

from __future__ import annotations

import pytest
from helpers.control_plane import ControlPlane

from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.describe_client_quotas import DescribeClientQuotasRequest

COMBINATION = "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter component."
TWICE = "Entity type user cannot appear more than once in the filter."
Part = tuple[str, int, str | None]


@pytest.mark.parametrize(
    ("parts", "code", "message"),
    [
        ([("user", 0, "u"), ("client-id", 1, None)], ErrorCode.NONE, ""),
        ([("ip", 0, "not an address")], ErrorCode.NONE, ""),
        ([("ip", 0, "127.0.0.1"), ("user", 0, "u")], ErrorCode.INVALID_REQUEST, COMBINATION),
        ([("client-id", 2, None), ("ip", 2, None)], ErrorCode.INVALID_REQUEST, COMBINATION),
        ([("user", 0, "u"), ("user", 1, None), ("ip", 2, None)], ErrorCode.INVALID_REQUEST, TWICE),
        ([("user", 0, "u"), ("user", 7, "u")], ErrorCode.INVALID_REQUEST, TWICE),
        ([("", 0, "u"), ("", 0, "u")], ErrorCode.INVALID_REQUEST, "Invalid empty entity type."),
        ([("weird", 7, "x")], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type weird"),
        ([("ip", 2, None), ("user", 7, "u")], ErrorCode.INVALID_REQUEST, "Unknown match type 7"),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", 1, "u")], ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", 2, "u")], ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
    ],
)
async def test_a_filter_is_taken_or_refused_as_by_kafka(parts: list[Part], code: ErrorCode, message: str) -> None:
    component = DescribeClientQuotasRequest.ComponentData
    components = [component(entity_type=kind, match_type=match_type, match=match) for kind, match_type, match in parts]
    response = await ControlPlane().request(DescribeClientQuotasRequest(components=components, strict=False))
    assert (response.error_code, response.error_message) == (code, message)
    assert response.entries == ([] if code is ErrorCode.NONE else None)
