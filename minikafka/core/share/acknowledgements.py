"""Acknowledgements of records, and which of them are valid (KafkaApis.validateAcknowledgementBatches)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

#: Types of an acknowledgement; a gap is an offset without a record.
GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4


class Acknowledgement(NamedTuple):
    """Acknowledges records from `first_offset` to `last_offset`, both included. `types`: one type for all of them, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]

    def stretches(self) -> Iterator[tuple[int, int, int]]:
        """(first offset, last offset, type); neighbours of one type are joined."""
        if len(self.types) == 1:
            yield self.first_offset, self.last_offset, self.types[0]
            return
        first, kind = self.first_offset, self.types[0]
        for place, other in enumerate(self.types):
            if other != kind:
                yield first, self.first_offset + place - 1, kind
                first, kind = self.first_offset + place, other
        yield first, self.last_offset, kind


def is_valid(acknowledgements: Sequence[Acknowledgement], *, may_renew: bool, is_renewal: bool) -> bool:
    """Whether the acknowledgements are valid. `may_renew`: the API version has renewals. `is_renewal`: the request declares renewals."""
    previous = -1
    for one in acknowledgements:
        count = len(one.types)
        if one.first_offset > one.last_offset or one.first_offset < previous or not count:
            return False
        if count > 1 and one.last_offset - one.first_offset != count - 1:
            return False
        if min(one.types) < GAP or max(one.types) > (RENEW if may_renew else REJECT):
            return False
        if RENEW in one.types and not is_renewal:
            return False
        previous = one.last_offset
    return True
