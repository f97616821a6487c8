"""A consumer's part in its group, of whichever protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from minikafka.client.assignors import Assignment
from minikafka.client.cluster import Cluster
from minikafka.client.consumer_member import ConsumerGroupMember, Subscription
from minikafka.client.errors import ClientError
from minikafka.client.group import GroupMember, MemberTimes

__all__ = ["MemberOptions", "Membership", "Reader", "Subscription"]


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


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads what the group says. `assigned(all that is to be read, anew)`; `changed(all that is to be read)`: what is read already goes
    on, and what is not in it is given up; `lost()`: nothing is to be read; `failed()`: it is over."""

    assigned: Callable[[Assignment], Awaitable[None]]
    changed: Callable[[Assignment], Awaitable[None]]
    lost: Callable[[], Awaitable[None]]
    failed: Callable[[], None]


class Membership:
    """A member of a classic group, or of one of the consumer protocol (KIP-848)."""

    def __init__(self, cluster: Cluster, group_id: str, options: MemberOptions, reader: Reader) -> None:
        """Raises ClientError for settings that the protocol does not have."""
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
                on_changed=reader.changed,
                on_lost=reader.lost,
                on_failed=reader.failed,
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
            on_assigned=reader.assigned,
            on_lost=reader.lost,
            on_failed=reader.failed,
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
        """As the group knows it."""
        return self._member.member_id

    @property
    def generation(self) -> int:
        """The generation; the member epoch."""
        return self._member.generation

    @property
    def group_instance_id(self) -> str | None:
        """Of a static member."""
        return self._member.group_instance_id

    @property
    def failure(self) -> ClientError | None:
        """Why there is no membership any more."""
        return self._member.failure
