"""The fields of `batch.HEADER`, as unpacked, and their indexes. The constants of the same names in `batch` are positions in bytes."""

from __future__ import annotations

Header = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]

BASE_OFFSET = 0
LENGTH = 1
LEADER_EPOCH = 2
MAGIC = 3
CRC = 4
ATTRIBUTES = 5
LAST_DELTA = 6
BASE_TIMESTAMP = 7
MAX_TIMESTAMP = 8
PRODUCER_ID = 9
PRODUCER_EPOCH = 10
BASE_SEQUENCE = 11
COUNT = 12
