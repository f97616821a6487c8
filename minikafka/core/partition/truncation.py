"""Where a follower cuts its log when its leader's differs (KIP-101, KIP-279, KIP-595), and where it goes on out of range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

UNDEFINED = -1


@dataclass(frozen=True, slots=True)
class Truncation:
    """Cut the log to `offset`; unless `is_complete`, ask the leader again with the epoch that the log then ends in."""

    offset: int
    is_complete: bool


#: epoch -> (largest epoch of this log that is not larger, its end offset); (-1, -1) when undefined.
EndOffsetFor = Callable[[int], tuple[int, int]]


def truncation_for(
    leader_epoch: int, leader_end_offset: int, *, log_end_offset: int, high_watermark: int, end_offset_for: EndOffsetFor
) -> Truncation:
    """Where to cut, given the leader's answer for this log's last epoch (AbstractFetcherThread.getOffsetTruncationState)."""
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
    """What a follower does whose log has no offset in common with its leader's (AbstractFetcherThread.fetchOffsetAndTruncate)."""

    #: The leader's log begins behind its end: begin anew at the leader's start.
    START_ANEW = "start anew"
    #: The leader's log begins within its log: forget what is before.
    MOVE_START = "move start"
    #: The leader's log is as it should be by now.
    GO_ON = "go on"


def is_beyond_leader(leader_end_offset: int, *, log_end_offset: int) -> bool:
    """Whether the log has to be cut to the leader's end; if not, the leader's start is to be asked for."""
    return leader_end_offset < log_end_offset


def out_of_range(leader_start_offset: int, *, log_start_offset: int, log_end_offset: int) -> OutOfRange:
    """Given the leader's first offset, when the leader's log ends at or behind this one."""
    if leader_start_offset > log_end_offset:
        return OutOfRange.START_ANEW
    return OutOfRange.MOVE_START if leader_start_offset > log_start_offset else OutOfRange.GO_ON
