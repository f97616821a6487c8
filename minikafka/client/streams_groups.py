"""Admin requests for streams groups (KIP-1071)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minikafka.addresses import host_port
from minikafka.client.errors import ClientError, refusal
from minikafka.client.group import at_coordinator
from minikafka.net.channel import UnsupportedVersion
from minikafka.wire.errors import NotEncodable
from minikafka.wire.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse

if TYPE_CHECKING:
    from minikafka.client.cluster import BrokerInfo
    from minikafka.client.maintenance import Maintenance

Partition = tuple[str, int]
#: Partitions by subtopology id.
Tasks = dict[str, list[int]]
TIMEOUT_MS = 30_000
#: Values of `topology_description_status` in StreamsGroupDescribe.
NOT_STORED, FAILED, AVAILABLE = 1, 2, 3


@dataclass(frozen=True, slots=True)
class StreamsAssignment:
    """A member's tasks by role."""

    active: Tasks
    standby: Tasks
    warmup: Tasks


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """A member; `target` is its target assignment."""

    member_id: str
    member_epoch: int
    process_id: str
    client_id: str
    host: str
    is_classic: bool
    assignment: StreamsAssignment
    target: StreamsAssignment


@dataclass(frozen=True, slots=True)
class StreamsSubtopology:
    """A subtopology's topics: the source topics, and the internal topics that the group created for it."""

    source_topics: list[str]
    repartition_source_topics: list[str]
    state_changelog_topics: list[str]


@dataclass(frozen=True, slots=True)
class StreamsGroupDescription:
    """A streams group. `coordinator`: (host:port, node id). `topology_epoch` None: the group has no topology."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    topology_epoch: int | None
    coordinator: tuple[str, int]
    subtopologies: dict[str, StreamsSubtopology]
    members: list[StreamsMember]

    def source_topics(self) -> set[str]:
        """The topics that the group reads and did not create itself."""
        return {name for subtopology in self.subtopologies.values() for name in subtopology.source_topics}

    def internal_topics(self) -> list[str]:
        """The topics that the group created, in order of subtopologies."""
        sources = self.source_topics()
        made = (
            name
            for subtopology in self.subtopologies.values()
            for name in [*subtopology.repartition_source_topics, *subtopology.state_changelog_topics]
        )
        return [name for name in dict.fromkeys(made) if name not in sources]

    def active_partitions(self) -> list[Partition]:
        """The partitions that the members' active tasks read, sorted."""
        found: set[Partition] = set()
        for member in self.members:
            for subtopology_id, partitions in member.assignment.active.items():
                subtopology = self.subtopologies.get(subtopology_id)
                for name in [*subtopology.source_topics, *subtopology.repartition_source_topics] if subtopology else []:
                    found.update((name, partition) for partition in partitions)
        return sorted(found)


async def topology_description(admin: Maintenance, group_id: str) -> tuple[int, StreamsGroupDescribeResponse.TopologyDescription | None]:
    """(status, stored description) of the group's topology (KIP-1331); the status is `NOT_STORED`, `FAILED` or `AVAILABLE`. Raises
    ClientError if the broker is older than Apache Kafka 4.4, and BrokerError."""
    request = StreamsGroupDescribeRequest(group_ids=[group_id], include_topology_description=True)
    _, group = await _ask(admin, group_id, request)
    return group.topology_description_status, group.topology_description


async def _ask(admin: Maintenance, group_id: str, request: StreamsGroupDescribeRequest) -> tuple[BrokerInfo, Any]:
    async def ask(coordinator: BrokerInfo) -> tuple[BrokerInfo, Any]:
        channel = await admin.cluster.channel_to(coordinator.node_id)
        try:
            response: Any = await channel.request(request, channel.version_for(request, None), TIMEOUT_MS)
        except (UnsupportedVersion, NotEncodable) as error:
            where = host_port(coordinator.host, coordinator.port)
            raise ClientError(f"{where} cannot describe streams groups like this: {error}") from error
        group = response.groups[0]
        if group.error_code:
            raise refusal(group.error_code, f"streams group {group_id}", group.error_message)
        return coordinator, group

    return await at_coordinator(admin.cluster, group_id, ask, TIMEOUT_MS)


async def describe_streams_group(admin: Maintenance, group_id: str) -> StreamsGroupDescription:
    """A group with its topology and its members. Raises BrokerError."""
    coordinator, group = await _ask(admin, group_id, StreamsGroupDescribeRequest(group_ids=[group_id]))
    subtopologies = {
        one.subtopology_id: StreamsSubtopology(
            list(one.source_topics),
            [topic.name for topic in one.repartition_source_topics],
            [topic.name for topic in one.state_changelog_topics],
        )
        for one in (group.topology.subtopologies or [] if group.topology else [])
    }
    members = [
        StreamsMember(
            member.member_id, member.member_epoch, member.process_id, member.client_id, member.client_host, member.is_classic,
            _assignment(member.assignment), _assignment(member.target_assignment),
        )
        for member in group.members
    ]  # fmt: skip
    return StreamsGroupDescription(
        group_id, group.group_state, group.group_epoch, group.assignment_epoch, group.topology.epoch if group.topology else None,
        (host_port(coordinator.host, coordinator.port), coordinator.node_id), subtopologies, members,
    )  # fmt: skip


def _assignment(tasks: StreamsGroupDescribeResponse.Assignment) -> StreamsAssignment:
    roles = (tasks.active_tasks, tasks.standby_tasks, tasks.warmup_tasks)
    return StreamsAssignment(*({ids.subtopology_id: list(ids.partitions) for ids in role} for role in roles))
