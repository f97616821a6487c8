"""A member of a classic consumer group."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import field

from minikafka.core.group.effects import Reply
from minikafka.late_dataclass import dataclass


@dataclass(slots=True)
class Member:
    """One member (KIP-62, KIP-345).

    `protocols` are (name, metadata) in the member's order of preference. `awaiting_join` and `awaiting_sync` hold the handle of a parked
    request, or None. A member `is_new` until its first join has been answered: until then its session timeout is
    `NEW_MEMBER_JOIN_TIMEOUT_MS`, because its client cannot send heartbeats yet.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: list[tuple[str, bytes]] = field(default_factory=list)
    assignment: bytes = b""
    is_new: bool = False
    awaiting_join: Reply | None = None
    awaiting_join_version: int = 0
    awaiting_sync: Reply | None = None

    @property
    def is_static(self) -> bool:
        """Whether the member carries a `group.instance.id` (KIP-345)."""
        return self.group_instance_id is not None

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """The member's subscription under the protocol chosen for the group."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: Container[str]) -> str | None:
        """The first of the member's protocols that every member supports."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        return None
