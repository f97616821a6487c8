"""Hosts the metadata quorum on every node: voter (controller) or observer (broker), the same class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from minikafka.broker.environment import Environment
    from storage.log_dir import LogDirectory


class NotLeader(ApiError):
    """This node does not lead the quorum (any more); code NOT_LEADER_OR_FOLLOWER."""

    def __init__(self, message: str = "this node is not the leader of the metadata quorum") -> None:
        super().__init__(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)


class SnapshotId(NamedTuple):
    """`end_offset` is exclusive."""

    end_offset: int
    epoch: int


class RaftListener(Protocol):
    """Called on the loop, in log order; must not raise. All four are optional in none: implement each."""

    def on_commit(self, base_offset: int, epoch: int, records: list[tuple[int, Any]]) -> None:
        """One committed batch of metadata records: [(offset, decoded record message)]. Control batches are left out."""

    def on_snapshot(self, snapshot_id: SnapshotId, records: Iterable[Any]) -> None:
        """The state up to `snapshot_id.end_offset` (exclusive) is exactly these records; forget what was before."""

    def on_high_watermark(self, offset: int) -> None:
        """The high watermark (exclusive) moved; everything committed before it has been delivered."""

    def on_leader_change(self, leader_id: int | None, epoch: int, is_self: bool) -> None:
        """For `is_self` it comes only after everything before this leader's epoch has been delivered through
        `on_commit` (the LeaderChange record is committed): the state is complete and `append` may be called."""


class RaftHost:
    """One node's part in `__cluster_metadata`.

    Reads (attributes): node_id, leader_id (None if unknown), leader_epoch, is_leader, high_watermark (exclusive),
    log_end_offset, log_start_offset, kraft_version (0 static voters, 1 KIP-853).
    """

    def __init__(
        self,
        node_id: int,
        config: Any,
        environment: Environment,
        log_directory: LogDirectory,
        *,
        cluster_id: str,
        is_controller: bool,
        listeners: Sequence[tuple[str, str, int]] = (),
    ) -> None:
        """`log_directory` is the opened metadata log directory; `listeners`: this controller's advertised endpoints
        (listener name, host, port), with the real ports, set before `start` (`set_listeners`)."""

    def set_listeners(self, listeners: Sequence[tuple[str, str, int]]) -> None:
        """Endpoints of this controller, once its port is bound; before `start`."""

    async def start(self) -> None:
        """Load log, snapshot and election state, replay what is known to be committed; a lone voter leads on return."""

    async def stop(self, timeout_ms: int = 5000) -> None:
        """Resign (EndQuorumEpoch) if leading, sync and close the log."""

    def leader_endpoint(self) -> tuple[str, int] | None:
        """(host, port) of the leader's controller listener, None if there is no known leader."""

    def voter_endpoints(self) -> list[tuple[int, str, int]]:
        """(node id, host, port) of each voter."""

    def append(self, records: Sequence[Any], *, atomic: bool = True, epoch: int | None = None) -> int:
        """Append one batch of metadata records (messages of wire.records.metadata_records, or framed bytes); the last
        offset. Raises NotLeader if not leading (or not in `epoch`). Committed when `on_commit` brings it."""
        raise NotLeader

    def subscribe(self, listener: RaftListener) -> None:
        """Before or after `start`; a late listener is brought up from the latest snapshot and the log."""

    async def wait_committed(self, offset: int, timeout_ms: int = 30_000) -> None:
        """Until the high watermark is beyond `offset`. Raises NotLeader when leadership was lost, TimeoutError."""

    def write_snapshot(self, snapshot_id: SnapshotId, records: Iterable[Any], last_timestamp_ms: int) -> None:
        """Write `%020d-%010d.checkpoint`: the state that a listener holds at `snapshot_id.end_offset`, which must be
        at or below the high watermark, and free the log before it. E2 calls it by size and time."""
