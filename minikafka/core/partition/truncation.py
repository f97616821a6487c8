"""Where a follower truncates a log that differs from its leader's (KIP-101, KIP-279, KIP-595), and how it continues out of range."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from minikafka.late_dataclass import dataclass

UNDEFINED = -1


@dataclass(frozen=True, slots=True)
class Truncation:
    """Truncate the log to `offset` (exclusive). Unless `is_complete`, ask the leader again with the epoch at the log's new end."""

    offset: int
    is_complete: bool


#: epoch -> (largest epoch of this log that is not larger, its end offset); (-1, -1) when undefined.
EndOffsetFor = Callable[[int], tuple[int, int]]


def truncation_for(
    leader_epoch: int, leader_end_offset: int, *, log_end_offset: int, high_watermark: int, end_offset_for: EndOffsetFor
) -> Truncation:
    """Where to truncate, given the leader's answer for this log's last epoch (AbstractFetcherThread.getOffsetTruncationState)."""
    if leader_end_offset == UNDEFINED:
        return Truncation(high_watermark, True)
    if leader_epoch == UNDEFINED:
        return Truncation(min(leader_end_offset, log_end_offset), True)
    own_epoch, own_end_offset = end_offset_for(leader_epoch)
    if own_end_offset == UNDEFINED:
        return Truncation(min(leader_end_offset, log_end_offset), True)
    if own_epoch == leader_epoch:
        return Truncation(min(own_end_offset, leader_end_offset, log_end_offset), True)
    return Truncation(min(own_end_offset, log_end_offset), False)


class OutOfRange(Enum):
    """What a follower does if its log has no offset in common with its leader's (AbstractFetcherThread.fetchOffsetAndTruncate)."""

    #: The leader's log begins after the end of the follower's, or the follower lost records that the leader has: empty the log and start at
    #: the leader's start.
    START_ANEW = "start anew"
    #: The leader's log begins within the follower's: drop what is before.
    MOVE_START = "move start"
    #: The logs overlap again: continue fetching.
    GO_ON = "go on"


def is_beyond_leader(leader_end_offset: int, *, log_end_offset: int) -> bool:
    """Whether the log must be truncated to the leader's end. If not, ask for the leader's start."""
    return leader_end_offset < log_end_offset


def out_of_range(
    leader_start_offset: int, *, log_start_offset: int, log_end_offset: int, lost: tuple[int, int] | None = None
) -> OutOfRange:
    """What to do, given the leader's first offset, if the leader's log ends at or after the end of this one. `lost`: this log
    lost records among these offsets, and nobody counts on those that it has. What is missing at its end is fetched as usual."""
    is_hole = lost is not None and lost[0] < log_end_offset and leader_start_offset < lost[1]
    if leader_start_offset > log_end_offset or is_hole:
        return OutOfRange.START_ANEW
    return OutOfRange.MOVE_START if leader_start_offset > log_start_offset else OutOfRange.GO_ON
