"""A topology in the format of Kafka Streams' `Topology.describe()`, from the description that a broker stores (KIP-1331)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minikafka.wire.messages.streams_group_describe import StreamsGroupDescribeResponse

Node = StreamsGroupDescribeResponse.TopologyDescriptionNode
SOURCE, PROCESSOR = 1, 2


def shown(description: StreamsGroupDescribeResponse.TopologyDescription) -> str:
    """The subtopologies in the order of their numbers, then the global stores."""
    parts: list[tuple[tuple[Any, ...], str]] = []
    for subtopology in description.subtopologies:
        lines = "\n".join(_node(node, subtopology.nodes) for node in subtopology.nodes)
        parts.append((_number(subtopology.subtopology_id), f"  Sub-topology: {subtopology.subtopology_id}\n{lines}\n"))
    parts.sort(key=lambda part: part[0])
    taken = len(parts)
    for place, store in enumerate(description.global_stores):
        nodes = [store.source, store.processor]
        lines = "\n".join(_node(node, nodes) for node in nodes)
        parts.append(((), f"  Sub-topology: {taken + place} for global store (will not generate tasks)\n{lines}\n"))
    return "Topologies:\n " + "\n".join(part for _, part in parts)


def _number(subtopology_id: str) -> tuple[Any, ...]:
    return (0, int(subtopology_id)) if subtopology_id.isdecimal() else (1, subtopology_id)


def _node(node: Node, nodes: Iterable[Node]) -> str:
    after = f"\n      --> {_names(node.successors)}"
    before = f"\n      <-- {_names(other.name for other in nodes if node.name in other.successors)}"
    if node.node_type == SOURCE:
        return f"    Source: {node.name} (topics: [{', '.join(node.source_topics)}]){after}"
    if node.node_type == PROCESSOR:
        return f"    Processor: {node.name} (stores: [{', '.join(node.stores)}]){after}{before}"
    where = "dynamic topic" if node.sink_topic is None else f"topic: {node.sink_topic}"
    return f"    Sink: {node.name} ({where}){before}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
