"""In which directions groups may change between the classic and the consumer protocol."""

from __future__ import annotations

from minikafka.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class MigrationPolicy:
    """`group.consumer.migration.policy`. `classic_size_max`: most members of a group that may become classic."""

    may_upgrade: bool = True
    may_downgrade: bool = True
    classic_size_max: int = 2_147_483_647

    @property
    def is_disabled(self) -> bool:
        """Whether members of one protocol cannot join a group of the other."""
        return not self.may_upgrade and not self.may_downgrade

    @classmethod
    def named(cls, name: str, classic_size_max: int) -> MigrationPolicy:
        """The policy with this name; `disabled` for an unknown name."""
        text = name.lower()
        return cls(text in {"bidirectional", "upgrade"}, text in {"bidirectional", "downgrade"}, classic_size_max)
