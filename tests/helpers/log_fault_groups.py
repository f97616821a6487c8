"""Records of groups other than offsets, as a group coordinator writes them: short ones of every kind."""

from __future__ import annotations

import struct
from collections.abc import Iterable

#: Kinds whose key names a member, or a pattern, behind the group.
OF_A_MEMBER = {5, 7, 8, 10, 13, 14, 16, 19, 21, 22}
#: The kinds of a group's own record and of its members, by that of what a member holds.
OF_HOLDERS = {8: (3, 5), 14: (11, 10), 22: (17, 19)}
#: The kind of the epoch for which a group was last assigned.
ASSIGNED = {8: 6, 14: 12, 22: 20}
#: The kind of a group's own record, by kinds that have an epoch of it.
AHEAD = {6: 3, 8: 3, 12: 11, 14: 11, 20: 17, 22: 17}
CLIENT = b"\x02c\x02h"


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def group_record(kind: int, group: str, number: int) -> tuple[bytes, bytes]:
    """Key and value of a record of this kind; coordinators pass over kinds that they do not know."""
    key = struct.pack(">h", kind) + text(group) + (text("m") if kind in OF_A_MEMBER else b"")
    epoch, time = struct.pack(">i", number), struct.pack(">q", number)
    nothing = b"\x01"
    body = {
        2: text("consumer") + epoch + b"\xff\xff" * 2 + bytes(4),
        3: epoch, 4: nothing, 5: bytes(2) + CLIENT + nothing + b"\0" + epoch + b"\0", 6: epoch, 7: nothing,
        8: epoch * 2 + b"\0" + nothing * 2, 10: b"\0" + CLIENT + nothing, 11: epoch + time, 12: epoch, 13: nothing,
        14: epoch * 2 + b"\0" + nothing, 15: nothing * 3, 16: nothing + time * 2, 17: epoch + time,
        19: bytes(2) + CLIENT + epoch * 2 + b"\x02p\xff" + nothing, 20: epoch, 21: nothing * 3, 22: epoch * 2 + b"\x01" + nothing * 6,
        23: epoch + nothing,
    }.get(kind, bytes([number & 0xFF]))  # fmt: skip
    return key, struct.pack(">h", 0) + body + (b"" if kind == 2 else b"\0")


def living(rows: Iterable[tuple[bytes, bytes | None]], epoch: int = 9) -> list[tuple[bytes, bytes | None]]:
    """The records of the groups and members whose holdings these rows say: their coordinator wrote them before."""
    found: dict[bytes, bytes | None] = {}
    for key, _ in rows:
        if key[1] in OF_HOLDERS:
            group, member = OF_HOLDERS[key[1]]
            end = 4 + int.from_bytes(key[2:4], "big")
            found[struct.pack(">h", group) + key[2:end]] = group_record(group, "", epoch)[1]
            found[struct.pack(">h", member) + key[2:]] = group_record(member, "", epoch)[1]
    return list(found.items())
