"""A consumer's membership in its group, with either group protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from minikafka.client.assignors import Assignment
from minikafka.client.cluster import Cluster
from minikafka.client.consumer_member import ConsumerGroupMember, Subscription
from minikafka.client.errors import ClientError
from minikafka.client.group import GroupMember, MemberTimes

__all__ = ["MemberOptions", "Membership", "RebalanceListener", "Subscription"]


PROTOCOLS = ("classic", "consumer")


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """Settings of a member; times in milliseconds."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    protocol: str
    instance_id: str | None
    assignors: tuple[str, ...]
    remote_assignor: str | None
    rack: str
    #: random_bytes(size): for the id of a member of the consumer protocol.
    random_bytes: Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class RebalanceListener:
    """The consumer's callbacks. `assigned(assignment)`: start reading the whole assignment anew. `changed(assignment)`: continue partitions
    that are already read, start new ones, give up missing ones. `lost()`: read nothing. `failed()`: the membership has ended."""

    assigned: Callable[[Assignment], Awaitable[None]]
    changed: Callable[[Assignment], Awaitable[None]]
    lost: Callable[[], Awaitable[None]]
    failed: Callable[[], None]


class Membership:
    """A member of a group of the classic or the consumer protocol (KIP-848). Exactly one of `_classic` and `_consumer` is set."""

    def __init__(self, cluster: Cluster, group_id: str, options: MemberOptions, listener: RebalanceListener) -> None:
        """Raises ClientError for settings that the group protocol does not have."""
        self._classic: GroupMember | None = None
        self._consumer: ConsumerGroupMember | None = None
        self._assignor = options.remote_assignor
        if options.protocol not in PROTOCOLS:
            raise ClientError(f"group_protocol={options.protocol}: must be {' or '.join(PROTOCOLS)}")
        if options.protocol == "consumer":
            self._consumer = ConsumerGroupMember(
                cluster,
                group_id,
                rebalance_timeout_ms=options.rebalance_timeout_ms,
                group_instance_id=options.instance_id,
                rack=options.rack,
                random_bytes=options.random_bytes,
                on_changed=listener.changed,
                on_lost=listener.lost,
                on_failed=listener.failed,
            )
            return
        if options.remote_assignor is not None:
            raise ClientError("group_remote_assignor needs group_protocol=consumer")
        self._classic = GroupMember(
            cluster,
            group_id,
            MemberTimes(options.session_timeout_ms, options.rebalance_timeout_ms, options.heartbeat_interval_ms),
            group_instance_id=options.instance_id,
            assignors=options.assignors,
            on_assigned=listener.assigned,
            on_lost=listener.lost,
            on_failed=listener.failed,
        )

    @property
    def _member(self) -> GroupMember | ConsumerGroupMember:
        member = self._consumer or self._classic
        assert member is not None
        return member

    def start(self, subscription: Subscription) -> None:
        """Join. Raises ClientError for a pattern in a classic group."""
        if self._consumer is not None:
            self._consumer.start(replace(subscription, assignor=self._assignor))
        elif subscription.pattern is not None:
            raise ClientError("a pattern that the broker resolves needs group_protocol=consumer")
        elif self._classic is not None:
            self._classic.start(list(subscription.topics))

    async def stop(self) -> None:
        """Leave."""
        await self._member.stop()

    @property
    def member_id(self) -> str:
        """The member id; empty until a classic group has assigned one."""
        return self._member.member_id

    @property
    def generation(self) -> int:
        """The generation of a classic group, or the member epoch."""
        return self._member.generation

    @property
    def group_instance_id(self) -> str | None:
        """group.instance.id of a static member; None for a dynamic one."""
        return self._member.group_instance_id

    @property
    def failure(self) -> ClientError | None:
        """Why the membership has ended; None while it lasts."""
        return self._member.failure
