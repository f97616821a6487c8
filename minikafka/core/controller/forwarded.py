"""Forwarded requests of clients: recognizing that an earlier attempt of the same request may already have been carried out.

A controller that fails or is replaced may have written the records of a request without answering; the broker then sends the request again.
The ids of topics that an attempt creates are derived from the attempt, so that the next controller recognizes them. No id is used twice: a
topic that was deleted in between is created with another id.

For topics that a request deletes or extends, the broker includes their state before the first attempt. If such a topic no longer exists, an
earlier attempt deleted it. A new topic with the same name was not meant. If a topic now has exactly the requested number of partitions, an
earlier attempt added them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

KEY_BYTES = 16
#: Most attempts of one request that are distinguished.
TRIES_MAX = 255


class SeenTopic(NamedTuple):
    """A topic as the broker saw it before the first attempt."""

    name: str
    topic_id: bytes
    partitions: int


class Forwarded(NamedTuple):
    """`key`: bytes that identify the request. `tries`: the number of earlier attempts. `seen`: the topics that it names, as its broker saw
    them before the first attempt; empty in the first attempt."""

    key: bytes
    tries: int
    seen: tuple[SeenTopic, ...] = ()

    def topic_id(self, name: str) -> bytes:
        """The id of a topic that this attempt creates."""
        return _topic_id(self.key, self.tries, name)

    def earlier_ids(self, name: str) -> set[bytes]:
        """The ids that the topic would have from earlier attempts."""
        return {_topic_id(self.key, tries, name) for tries in range(self.tries)}

    def seen_before(self) -> Mapping[str | bytes, SeenTopic]:
        """The topics that an earlier attempt may have changed, by name and by id."""
        if not self.tries:
            return {}
        return {key: topic for topic in self.seen for key in (topic.name, topic.topic_id)}


def _topic_id(key: bytes, tries: int, name: str) -> bytes:
    digest = bytes((tries,)) + key + name.encode()
    while True:
        digest = hashlib.sha256(digest).digest()
        topic_id = uuid_of(digest[:16])
        if topic_id is not None:
            return topic_id


def uuid_of(data: bytes) -> bytes | None:
    """A version 4 UUID made from 16 random bytes; None if its text form would begin with a dash."""
    uuid = bytearray(data)
    uuid[6] = (uuid[6] & 0x0F) | 0x40
    uuid[8] = (uuid[8] & 0x3F) | 0x80
    # The first six bits are the first character of the text; 62 is '-'.
    return None if uuid[0] >> 2 == 62 else bytes(uuid)
