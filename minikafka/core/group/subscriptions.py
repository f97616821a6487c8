"""Which topics the members of a classic consumer group subscribe to."""

from __future__ import annotations

from minikafka.core.group.classic import ClassicGroup


def subscribed_topics(group: ClassicGroup) -> set[str] | None:
    """Topics that the members' consumer subscriptions name; None when one cannot be read."""
    topics: set[str] = set()
    for member in group.members.values():
        names = parse_subscription(member.metadata_for(group.protocol_name))
        if names is None:
            return None
        topics.update(names)
    return topics


def parse_subscription(metadata: bytes) -> list[str] | None:
    """Topic names of a ConsumerProtocolSubscription (int16 version, array of strings), or None when it is malformed."""
    if len(metadata) < 6:
        return None
    count = int.from_bytes(metadata[2:6], "big", signed=True)
    position, names = 6, []
    if count < 0 or count * 2 > len(metadata) - position:
        return None
    for _ in range(count):
        length = int.from_bytes(metadata[position : position + 2], "big", signed=True)
        position += 2
        if length < 0 or position + length > len(metadata):
            return None
        names.append(metadata[position : position + length].decode(errors="replace"))
        position += length
    return names
