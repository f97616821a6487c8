"""Describes a failed run in readable text: the options, the faults, the last decisions of each node, the logs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.counted import counted
from minikafka.sim.replicas import log_of

if TYPE_CHECKING:
    from minikafka.sim.parts import World

LAST_LINES = 60
BATCHES_SHOWN = 6
DECISIONS_SHOWN = 6
CHATTER = ("closed the connection", "the connection to leader", "cannot reach", "cannot fetch")


def describe_run(world: World) -> str:
    """The story of a world that has ended."""
    options = world.options
    lines = [
        f"seed {world.seed} ({options.profile}, {options.shape}, {counted(options.partitions, 'partition')},"
        f" min.insync.replicas {options.min_isr})",
        f"violation: {world.violation}",
        "",
        "faults:",
        *(f"  {fault}" for fault in world.faults),
        "",
        f"the last {LAST_LINES} events:",
        *(f"  {at_s:10.4f}  {who:<11} {text}" for at_s, who, text in list(world.lines)[-LAST_LINES:]),
        "",
        *_decisions(world),
        "",
        *_logs(world),
    ]
    return "\n".join(lines)


def _decisions(world: World) -> list[str]:
    """The last log lines of each node, without those about connections."""
    lines = ["the last decisions of each node:"]
    for node in world.nodes.values():
        own = [line for line in world.lines if line[1] == node.host and not line[2].startswith(CHATTER)]
        state = f"{node.state}, paused" if node.is_paused else node.state
        lines.append(f"  {node.host} ({state}, life {node.lives})")
        lines += [f"    {at_s:10.4f}  {text.splitlines()[0]}" for at_s, _, text in own[-DECISIONS_SHOWN:]]
    return lines


def _logs(world: World) -> list[str]:
    image = world.invariants.image
    if image is None:
        return ["no metadata yet"]
    lines = []
    for topic in image.topics_by_id.values():
        for index, registration in topic.partitions.items():
            logs = {i: log_of(world.nodes[i].disk, f"/data/{topic.name}-{index}") for i in registration.replicas}
            keys = {i: [batch.key for batch in found] for i, found in logs.items()}
            longest = max((len(found) for found in keys.values()), default=0)
            parting = next((n for n in range(longest) if len({tuple(found[n : n + 1]) for found in keys.values()}) > 1), longest)
            if parting == longest:
                continue
            lines.append(
                f"{topic.name}-{index}: leader {registration.leader} in epoch {registration.leader_epoch}, in sync {registration.isr},"
                f" eligible {registration.elr}; the logs part at batch {parting} (base-last @ epoch, crc)"
            )
            for i, found in keys.items():
                shown = found[max(parting - 1, 0) : parting + BATCHES_SHOWN]
                partition = world.nodes[i].partition(topic.name, index)
                offsets = "down" if partition is None else f"hw {partition.log.high_watermark}, end {partition.log.log_end_offset}"
                text = "  ".join(f"{base}-{last} @{epoch} {crc & 0xFFFF:04x}" for base, last, epoch, crc in shown)
                lines.append(f"  n{i} ({offsets}): {text}")
    return lines or ["all logs are equal"]
