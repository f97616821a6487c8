"""What a broker says of a client's request that it sends to the controller: whether an earlier sending may have been carried out.

A controller that dies, or loses its office, may have written what a request asks for and not have answered; the broker sends it again. The
topics that a sending makes have ids that are made of it, so that whoever is active then knows them for what they are. No id is ever used
twice: a topic that was deleted in between is made anew with another.

Of topics that a request deletes or enlarges the broker says how it knew them before it sent the request first. Who finds a topic gone that
was there has deleted it, one that is there anew was not meant, and one that has got just as many partitions as were asked for got them so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

KEY_BYTES = 16
#: Sendings that are told apart.
TRIES_MAX = 255


class SeenTopic(NamedTuple):
    """A topic as a broker knew it."""

    name: str
    topic_id: bytes
    partitions: int


class Forwarded(NamedTuple):
    """`key`: bytes of the request's own; `tries`: how often it was sent before this time; `seen`: the topics that it names, as its broker
    knew them before the first time, when it has been sent before."""

    key: bytes
    tries: int
    seen: tuple[SeenTopic, ...] = ()

    def topic_id(self, name: str) -> bytes:
        """Of a topic that this sending makes."""
        return _topic_id(self.key, self.tries, name)

    def earlier_ids(self, name: str) -> set[bytes]:
        """Those that it would have had from earlier ones."""
        return {_topic_id(self.key, tries, name) for tries in range(self.tries)}

    def seen_before(self) -> Mapping[str | bytes, SeenTopic]:
        """By name and by id, what an earlier sending may have changed."""
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
    """A version 4 uuid of 16 random bytes; None for one that would begin with a dash when written as text."""
    uuid = bytearray(data)
    uuid[6] = (uuid[6] & 0x0F) | 0x40
    uuid[8] = (uuid[8] & 0x3F) | 0x80
    # The first six bits are the first character of the text; 62 is '-'.
    return None if uuid[0] >> 2 == 62 else bytes(uuid)
