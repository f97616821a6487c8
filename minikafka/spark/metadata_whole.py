"""What the metadata as a whole cannot be, though a controller loads every record of it: topics without all of their partitions, leaders
that are not registered."""

from __future__ import annotations

from collections.abc import Iterator

from minikafka.spark.metadata_log import ClusterImage


def contradictions(image: ClusterImage) -> Iterator[str]:
    """A controller makes a topic with its partitions at once, numbered from 0 on. It takes a broker's leaderships away before it removes
    the broker, and places a replica in the directories of its broker alone. It sets a feature to no level that a registered broker does not
    support, and registers no broker that does not support the level of a feature that it names."""
    numbers: dict[str, set[int]] = {topic_id: set() for topic_id in image.topics}
    for topic_id, number in image.partitions:
        numbers[topic_id].add(number)
    for topic_id, found in sorted(numbers.items(), key=lambda item: image.topics[item[0]]):
        if not found or found != set(range(len(found))):
            said = f"the partitions {', '.join(map(str, sorted(found)[:9]))}" if found else "no partitions"
            yield f"topic {image.topics[topic_id]} has {said}: not all from 0 on"
    for node, broker in sorted(image.brokers.items()):
        for name, lowest, highest in broker.features:
            level = int(image.state.get(("feature", str(name)), b"0"))
            if level and not int(str(lowest)) <= level <= int(str(highest)):
                yield f"{name} has level {level}, and broker {node} supports {lowest} to {highest}"
    owners = {place: node for node, broker in image.brokers.items() for place in broker.directories}
    for (topic, number), claim in sorted(image.claims().items()):
        for node, place in zip(claim.replicas, claim.directories, strict=False):
            if owners.get(place, node) != node:
                yield f"the log of {topic}-{number} on broker {node} is in {place}, which is a directory of broker {owners[place]}"
        if claim.leader != "-1" and image.brokers and claim.leader not in image.brokers:
            yield f"the leader of {topic}-{number} is broker {claim.leader}, which is not registered"
