"""The topics of a metadata image, by the rules by which a controller loads them: it ends where one of them is broken
(ReplicationControlManager.replay)."""

from __future__ import annotations

import re
from typing import Protocol

from minikafka.spark.logformat import FormatError

NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
#: The ids of no topic and of the metadata log, which is no topic of the metadata.
NO_ID, METADATA_ID, METADATA_NAME = "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "__cluster_metadata"


class Topics(Protocol):
    """`topics`: {topic id: name}, `names`: {name: topic id}."""

    topics: dict[str, str]
    names: dict[str, str]


def add_topic(image: Topics, topic_id: str, name: str) -> None:
    """A topic is made. Raises FormatError if there is one of this name, or if no topic may have the name or the id."""
    if not NAME.fullmatch(name) or name in {".", "..", METADATA_NAME} or topic_id in {NO_ID, METADATA_ID}:
        raise FormatError(f"a topic is made with the name {name!r} and the id {topic_id}")
    if name in image.names:
        raise FormatError(f"topic {name} is made a second time, with the id {topic_id}")
    image.topics[topic_id] = name
    image.names[name] = topic_id


def known_topic(image: Topics, topic_id: str, what: str) -> str:
    """The name of a topic. Raises FormatError if there is none of this id; `what`: for what it is looked up."""
    if topic_id not in image.topics:
        raise FormatError(f"{what} of the unknown topic {topic_id}")
    return image.topics[topic_id]


def pop_topic(image: Topics, topic_id: str) -> str:
    """A topic is removed: its name. Raises FormatError."""
    name = known_topic(image, topic_id, "the removal")
    del image.topics[topic_id], image.names[name]
    return name
