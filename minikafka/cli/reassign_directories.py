"""The moves between log directories that a plan of `minikafka reassign-partitions` asks for (log_dirs, KIP-113)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.session import partitions_from_json
from minikafka.client.errors import ClientError
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance

Partition = tuple[str, int]
#: (broker, partition).
Replica = tuple[int, Partition]
ANY = "any"
RETRY_S = 0.1
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"


def replica_name(replica: Replica) -> str:
    """t-0-1: topic, partition and broker, as Kafka's tool writes them."""
    node_id, (topic, index) = replica
    return f"{topic}-{index}-{node_id}"


def wanted_directories(path: str, plan: Mapping[Partition, list[int]]) -> dict[Replica, str]:
    """The directory of each replica for which the plan names one. Raises click.BadParameter."""
    option, wanted = "--reassignment-json-file", dict[Replica, str]()
    for key, directories in partitions_from_json(path, option, "log_dirs"):
        if directories is None:
            continue
        replicas = plan[key]
        if not isinstance(directories, list) or not all(isinstance(one, str) for one in directories) or len(directories) != len(replicas):
            name = f"{key[0]}-{key[1]}"
            raise click.BadParameter(f"{path}: {name} needs a log directory, or {ANY}, for each of its replicas", param_hint=option)
        wanted.update({(node_id, key): one for node_id, one in zip(replicas, directories, strict=True) if one != ANY})
    return wanted


async def start_moves(admin: Maintenance, wanted: Mapping[Replica, str], timeout_ms: int) -> list[Replica]:
    """Ask each broker for its moves, until all have begun. A broker that does not have a replica yet keeps its directory in mind and is
    asked again (ReassignPartitionsCommand.executeMoves). Returns the replicas. Raises ClientError."""
    pending, end = dict(wanted), time.monotonic() + timeout_ms / 1000
    while pending:
        for node_id in sorted({node_id for node_id, _ in pending}):
            places = {key: path for (broker, key), path in pending.items() if broker == node_id}
            for key, code in (await admin.alter_log_dirs(node_id, places)).items():
                if code is ErrorCode.NONE:
                    del pending[node_id, key]
                elif code is not ErrorCode.REPLICA_NOT_AVAILABLE:
                    name = replica_name((node_id, key))
                    raise ClientError(f"Failed to alter dir for {name} to {places[key]}: {code.text} ({code.name})")
        if pending and time.monotonic() >= end:
            names = ",".join(map(replica_name, sorted(pending)))
            raise ClientError(f"Timed out before log directory move{'s' if len(pending) > 1 else ''} could be started for: {names}")
        if pending:
            await asyncio.sleep(RETRY_S)
    return sorted(wanted)


async def states_of(admin: Maintenance, wanted: Mapping[Replica, str]) -> dict[Replica, tuple[str, bool]]:
    """The state of each move as Kafka's tool puts it, and whether the move goes on."""
    await admin.cluster.refresh([])
    alive = sorted({node_id for node_id, _ in wanted} & set(admin.cluster.brokers))
    answers = await admin.describe_log_dirs(alive)
    return {replica: _state(replica, path, answers.get(replica[0])) for replica, path in sorted(wanted.items())}


def _state(replica: Replica, wanted: str, answer: Any) -> tuple[str, bool]:
    node_id, (topic, index) = replica
    name = f"Partition {topic}-{index}"
    found: dict[bool, str] = {}
    for result in answer.results if answer is not None else ():
        for one in result.topics:
            found.update({p.is_future_key: result.log_dir for p in one.partitions if (one.name, p.partition_index) == (topic, index)})
    now, going = found.get(False), found.get(True)
    if now is None and going is None:
        return f"{name} cannot be found in any live log directory on broker {node_id}.", False
    if going is not None and going != wanted:
        return f"{name} on broker {node_id} is being moved to log dir {going} instead of {wanted}.", True
    if going is not None:
        return f"Reassignment of replica {replica_name(replica)} is still in progress.", True
    if now != wanted:
        return f"{name} on broker {node_id} is not being moved from log dir {now} to {wanted}.", False
    return f"Reassignment of replica {replica_name(replica)} completed successfully.", False
