"""What a request names twice is found in steps, whatever it names."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
from helpers.coverage_pause import without_coverage
from helpers.turn_lengths import ATTEMPTS
from helpers.work_unit import unit_s

from minikafka.broker.front.large_requests import ELEMENTS_MAX
from minikafka.broker.front.request_parts import all_parts, cuts_of
from minikafka.wire.message import Request
from minikafka.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from minikafka.wire.messages.delete_records import DeleteRecordsRequest
from minikafka.wire.messages.list_offsets import ListOffsetsRequest
from minikafka.wire.messages.metadata import MetadataRequest

COUNT = ELEMENTS_MAX // 2
#: A step takes some two milliseconds; what was done in one took fifty.
STEP_UNITS = 24


def list_offsets() -> Request:
    kind = ListOffsetsRequest
    partitions = [kind.ListOffsetsPartition(partition_index=number, timestamp=-1) for number in (0, 0, *range(COUNT))]
    return kind(topics=[kind.ListOffsetsTopic(name="t", partitions=partitions)])


def metadata() -> Request:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=f"t{number}") for number in range(COUNT)])


def quotas() -> Request:
    kind = AlterClientQuotasRequest
    entries = [kind.EntryData(entity=[kind.EntityData(entity_type="user", entity_name=f"u{n // 2}")], ops=[]) for n in range(COUNT // 4)]
    return kind(entries=entries)


def longest_step_s(request: Any) -> float:
    work, longest_s = all_parts(request, cuts_of(request)), 0.0
    parts: list[Any] = []
    while True:
        began_s = time.thread_time()
        part = next(work, work)
        longest_s = max(longest_s, time.thread_time() - began_s)
        if part is work:
            return longest_s
        parts.append(part)


def delete_records() -> Request:
    kind = DeleteRecordsRequest
    topics = [
        kind.DeleteRecordsTopic(name=f"t{number}", partitions=[kind.DeleteRecordsPartition(partition_index=0, offset=0)])
        for number in range(COUNT // 2)
    ]
    return kind(topics=topics)


@pytest.mark.parametrize("made", [list_offsets, metadata, quotas, delete_records])
def test_no_step_is_long(made: Callable[[], Request]) -> None:
    with without_coverage():
        gc.disable()
        try:
            found = []
            for _ in range(ATTEMPTS):
                found.append(longest_step_s(made()) / unit_s())
                if found[-1] < STEP_UNITS:
                    return
        finally:
            gc.enable()
    raise AssertionError(f"the longest step took {found} units")
