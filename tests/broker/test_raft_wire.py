"""The quorum's frames: what Apache Kafka's controllers sent each other, through our translation and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minikafka.broker.quorum import raft_wire
from minikafka.core.raft import messages as m
from minikafka.core.raft.types import Endpoint, OffsetAndEpoch, ReplicaKey
from minikafka.wire.errors import ErrorCode
from minikafka.wire.header import decode_request_header, decode_response_header
from minikafka.wire.registry import api

FRAMES = [json.loads(line) for line in (Path(__file__).parents[1] / "golden" / "kraft-frames.jsonl").read_text().splitlines()]


def decoded(frame):
    data = bytes.fromhex(frame["request_hex"])
    header, position = decode_request_header(memoryview(data), 0)
    version = header.api_version
    entry = api(header.api_key)
    answer = bytes.fromhex(frame["response_hex"])
    _, start = decode_response_header(memoryview(answer), header.api_key, version, 0)
    request, response = entry.request.decode(version, data, position), entry.response.decode(version, answer, start)
    return version, request, data[position:], response, answer[start:]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame["request_hex"][:8])
def test_requests_of_kafka_survive_our_flat_form(frame) -> None:
    version, request, body, response, answer = decoded(frame)
    flat = raft_wire.from_wire(request, version)
    again = raft_wire.to_wire(flat, request.cluster_id)
    assert again.encode(version) == body
    reply = raft_wire.reply_from_wire(flat, response)
    rebuilt = raft_wire.response_to_wire(flat, reply, version)
    if isinstance(reply, m.FetchReply):
        rebuilt.responses[0].partitions[0].records = reply.records
    assert rebuilt.encode(version) == answer


def test_kinds_of_frames_that_are_covered() -> None:
    kinds = {decoded(frame)[1].NAME for frame in FRAMES}
    assert kinds == {"VoteRequest", "BeginQuorumEpochRequest", "EndQuorumEpochRequest", "FetchRequest", "FetchSnapshotRequest"}


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (m.VoteRequest(5, ReplicaKey(2, b"\2" * 16), ReplicaKey(1, b"\1" * 16), OffsetAndEpoch(10, 4), True), 2),
        (m.BeginQuorumEpochRequest(5, 2, ReplicaKey(1, b"\1" * 16), (Endpoint("C", "h", 1),)), 1),
        (m.EndQuorumEpochRequest(5, 2, (ReplicaKey(1, b"\1" * 16),), (Endpoint("C", "h", 1),)), 1),
        (m.EndQuorumEpochRequest(5, 2, (ReplicaKey(1), ReplicaKey(3))), 0),
        (m.FetchRequest(5, ReplicaKey(2, b"\2" * 16), 7, 4, 6, 500, 1000), 18),
        (m.FetchRequest(5, ReplicaKey(2, b"\2" * 16), 7, 4, None, 500, 1000), 17),
        (m.FetchSnapshotRequest(5, ReplicaKey(2, b"\2" * 16), OffsetAndEpoch(9, 3), 50, 1000), 1),
    ],
)
def test_there_and_back(request_, version) -> None:
    message = raft_wire.to_wire(request_, "c")
    assert raft_wire.from_wire(type(message).decode(version, message.encode(version)), version) == request_


def test_an_answer_without_the_partition_is_an_error() -> None:
    from minikafka.wire.messages.vote import VoteResponse

    request = m.VoteRequest(1, ReplicaKey(2), None, OffsetAndEpoch(0, 0))
    assert raft_wire.reply_from_wire(request, VoteResponse()).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert raft_wire.reply_from_wire(request, VoteResponse(error_code=104)).error is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert raft_wire.reply_from_wire(request, VoteResponse(error_code=30000)).error is ErrorCode.UNKNOWN_SERVER_ERROR
