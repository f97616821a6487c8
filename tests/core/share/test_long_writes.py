"""The state of a share partition in more ranges of offsets than one request should have."""

from __future__ import annotations

from minikafka.core.share.partition import Write
from minikafka.core.share.state_batches import StateBatch


def test_a_long_write_is_stored_in_parts_each_with_what_is_complete_by_then() -> None:
    batches = [StateBatch(offset, offset, (2, 0, 4)[offset % 3], 1) for offset in range(7)]
    # The log has lost the record 0 meanwhile.
    parts = Write(5, 1, 2 + 10, batches).parts(3)
    assert [list(part.batches) for part in parts] == [batches[:3], batches[3:6], batches[6:]]
    assert [part.delivery_complete_count for part in parts] == [12 - 1 - 2, 12 - 1, 12]
    assert {(part.ticket, part.start_offset) for part in parts} == {(5, 1)}
    assert Write(5, 1, 0, []).parts(3) == [Write(5, 1, 0, [])]
