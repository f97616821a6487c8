"""Lines of `minikafka produce` as records: what is understood, and what is refused with the line and the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minikafka.cli.produce import _parse_json
from minikafka.client.errors import ClientError


def parsed(**fields: Any) -> dict[str, Any]:
    return _parse_json(json.dumps(fields).encode(), 7)


def test_produce_reads_the_output_of_consume() -> None:
    headers = [{"key": "a", "value": "1"}, {"key": "b", "value": None}]
    record = parsed(topic="t", partition=3, offset=9, timestamp=5, key="k", value="v", headers=headers, leader_epoch=1)
    assert record == {"key": b"k", "value": b"v", "partition": 3, "timestamp": 5, "headers": [("a", b"1"), ("b", None)]}


def test_values_that_are_no_text_are_json_and_null_is_null() -> None:
    assert parsed(value={"a": [1, None]}, headers={"h": 1}) == {"key": None, "value": b'{"a": [1, null]}', "headers": [("h", b"1")]}
    assert parsed(key="k", value=None, timestamp=None, partition=None, headers=None) == {"key": b"k", "value": None, "headers": []}


@pytest.mark.parametrize(
    "field",
    [
        {"partition": "p"}, {"partition": -1}, {"partition": 1.5}, {"partition": True}, {"partition": 2**31},
        {"timestamp": "noon"}, {"timestamp": -5}, {"timestamp": 2**63},
        {"headers": "h"}, {"headers": [1]}, {"headers": [{"value": "x"}]}, {"headers": [{"key": 1, "value": "x"}]},
        {"valeu": "x"},
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_its_line(field: dict[str, Any]) -> None:
    with pytest.raises(ClientError, match=rf"line 7.*{next(iter(field))}"):
        parsed(value="x", **field)
