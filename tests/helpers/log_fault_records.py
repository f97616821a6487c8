"""Faults inside of a batch, whose checksum, length and header are right: only who decodes the records can see them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from helpers.log_clusters import record, varint
from helpers.log_fault_verbs import Place, rewrite, seal
from helpers.log_oracle import parse
from helpers.log_oracle_codecs import packed
from helpers.log_oracle_records import CODECS, CONTROL, HEADER_BYTES, Inner, decoded


def inner(place: Place, at: int, which: int, field: str, delta: int) -> None:
    """A record's offset or timestamp delta grows by `delta`, or a record is there twice while the header counts as before."""

    def change(batches: list[bytearray]) -> list[bytearray]:
        found = decoded(parse(bytes(batches[0]))[0][0])
        if not found:
            return batches
        chosen = which * len(found) >> 16
        one = found[chosen]
        if field == "offset":
            found[chosen] = one._replace(offset_delta=one.offset_delta + delta)
        elif field == "time":
            found[chosen] = one._replace(time_delta=one.time_delta + delta)
        else:
            found.insert(chosen, one)
        return [with_records(batches[0], found), *batches[1:]]

    rewrite(place, change, at)


def with_records(batch: bytearray, records: list[Inner]) -> bytearray:
    """The batch with these records, its length and checksum made right."""
    encoded = bytearray(batch[:HEADER_BYTES])
    for one in records:
        data = bytes([one.attributes]) + varint(one.time_delta) + varint(one.offset_delta) + one.body
        encoded += varint(len(data)) + data
    struct.pack_into(">i", encoded, 8, len(encoded) - 12)
    return seal(encoded)


def compressed(place: Place, at: int, codec: int, how: str, byte: int) -> None:
    """A batch's records compressed; the stream is cut, has a bit turned over, or something follows it: another one with one more record,
    or rubbish."""

    def change(batches: list[bytearray]) -> list[bytearray]:
        if batches[0][22] & (CODECS | CONTROL):  # nobody compresses markers
            return batches
        body = bytearray(packed(codec, bytes(batches[0][HEADER_BYTES:])))
        if how == "cut":
            del body[-1 - byte % 12 :]
        elif how == "bit":
            body[byte * len(body) >> 16] ^= 1 << byte % 8
        else:
            body += {"whole": b"", "rubbish": b"rubbish"[: byte % 8], "twice": packed(codec, record(9, None, b"x"))}[how]
        batch = batches[0][:HEADER_BYTES] + body
        batch[22] |= codec
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        return [seal(batch), *batches[1:]]

    rewrite(place, change, at)


def odd_marker(place: Place, at: int, how: str) -> None:
    """The record of a marker is of a version that nobody knows, of another type, or too short, or it is there twice."""

    def change(batches: list[bytearray]) -> list[bytearray]:
        found = next((number for number, batch in enumerate(batches) if batch[22] & CONTROL and batch[43] < 0x80), None)
        if found is None:
            return batches
        batch = batches[found]
        kind = parse(bytes(batch))[0][0].control_type
        key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)
        rows = {
            "later": [(struct.pack(">hh", 1, kind), value + b"more")], "version": [(struct.pack(">hh", -1, kind), value)],
            "type": [(struct.pack(">hh", 0, 7), value)], "key": [(key[:3], value)], "value": [(key, value[:5])],
            "value version": [(key, struct.pack(">hi", -1, 0))], "twice": [(key, value)] * 2,
        }[how]  # fmt: skip
        other = batch[:HEADER_BYTES] + b"".join(record(delta, *row) for delta, row in enumerate(rows))
        struct.pack_into(">i", other, 8, len(other) - 12)
        struct.pack_into(">i", other, 57, len(rows))
        return [*batches[:found], seal(other), *batches[found + 1 :]]

    rewrite(place, change, at)


INSIDE: dict[str, Callable[..., None]] = {"inner": inner, "compressed": compressed, "odd_marker": odd_marker}


def arguments_inside(verb: str, chance: random.Random) -> tuple[int | str, ...]:
    """Drawn for one of the verbs above."""
    return {
        "inner": (chance.randrange(1 << 16), chance.randrange(1 << 16), chance.choice(["offset", "offset", "time", "time", "twice"]),
                  chance.choice([-70, -1, 1, 2, 70])),
        "odd_marker": (chance.randrange(1 << 16),
                       chance.choice(["later", "version", "type", "key", "value", "value version", "twice"])),
        "compressed": (chance.randrange(1 << 16), 1 + chance.randrange(4),
                       chance.choice(["whole", "cut", "bit", "bit", "rubbish", "twice"]), chance.randrange(1 << 16)),
    }.get(verb, ())  # fmt: skip
