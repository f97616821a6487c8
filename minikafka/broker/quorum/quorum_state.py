"""The quorum-state file: the durable part of an election (Kafka's FileQuorumStateStore, QuorumStateData v0 and v1)."""

from __future__ import annotations

import json
from typing import Any

from minikafka.core.raft.types import NO_NODE, ZERO_ID, ElectionState, ReplicaKey
from minikafka.storage.checkpoint import INT32_MAX
from minikafka.storage.errors import CorruptFile
from minikafka.storage.filesystem import FileSystem, write_atomically
from minikafka.wire.uuid import uuid_from_text, uuid_to_text

QUORUM_STATE = "quorum-state"


def encode(state: ElectionState, kraft_version: int, voters: tuple[int, ...]) -> bytes:
    """The file's contents as Kafka writes them. Version 0 (static voters) has the voters' ids, version 1 the directory id of the vote."""
    voted = state.voted or ReplicaKey(NO_NODE, ZERO_ID)
    document: dict[str, Any]
    if kraft_version < 1:
        document = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted.node_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": node_id} for node_id in voters],
            "data_version": 0,
        }
    else:
        document = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted.node_id,
            "votedDirectoryId": uuid_to_text(voted.directory_id),
            "data_version": 1,
        }
    return json.dumps(document, separators=(",", ":")).encode()


def decode(data: bytes) -> ElectionState:
    """Decode the file. Raises CorruptFile, and never guesses: a vote must not be forgotten."""
    try:
        document = json.loads(data)
        version = document["data_version"]
        epoch, leader_id, voted_id = document["leaderEpoch"], document["leaderId"], document["votedId"]
        directory_id = uuid_from_text(document["votedDirectoryId"]) if version == 1 else ZERO_ID
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptFile(f"quorum-state is not valid: {error}") from error
    if version not in (0, 1) or not all(isinstance(value, int) and abs(value) <= INT32_MAX for value in (epoch, leader_id, voted_id)):
        raise CorruptFile(f"quorum-state of version {version!r} is not known")
    voted = ReplicaKey(voted_id, directory_id) if voted_id != NO_NODE else None
    return ElectionState(max(epoch, 0), leader_id, voted)


def read(filesystem: FileSystem, directory: str) -> ElectionState:
    """Read the file; epoch 0 if it does not exist. Raises CorruptFile, OSError."""
    path = f"{directory}/{QUORUM_STATE}"
    return decode(filesystem.read(path)) if filesystem.exists(path) else ElectionState()


def write(filesystem: FileSystem, directory: str, state: ElectionState, kraft_version: int, voters: tuple[int, ...]) -> None:
    """Write the file atomically and sync it. Raises OSError."""
    write_atomically(filesystem, f"{directory}/{QUORUM_STATE}", encode(state, kraft_version, voters))
