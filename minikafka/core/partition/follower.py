"""What a follower does with its log when its leader's differs (KIP-101, KIP-279, KIP-595)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
