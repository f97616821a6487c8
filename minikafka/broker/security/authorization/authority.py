"""The node's authorizer: the decisions of the core, the ACLs of the newest image, the log of what was denied."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from minikafka.core.authorizer.acl import CLUSTER_NAME, Operation, ResourceType, operation_bits
from minikafka.core.authorizer.authorizer import AclAuthorizer, Decision
from minikafka.core.metadata.image import MetadataImage, empty_image
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.registry import api

if TYPE_CHECKING:
    from minikafka.core.metadata.delta import MetadataDelta

#: What was denied is said at INFO, what was allowed at DEBUG, as Kafka's kafka.authorizer.logger does.
audit = logging.getLogger("minikafka.authorizer")
#: A client that tries again and again is one line in this time, which says how often.
REPEAT_MS = 10_000
REMEMBERED_MAX = 1_000

Denial = tuple[str, str, Operation, ResourceType, str, int]


class Authority:
    """Says who may do what, by the newest metadata image. Before the first image only super users may do anything."""

    def __init__(self, super_users: Iterable[str], *, allow_everyone: bool, creates_topics: bool, now_ms: Callable[[], int]) -> None:
        """`creates_topics`: auto.create.topics.enable; `now_ms` is a monotonic clock."""
        self.acls = AclAuthorizer(super_users, allow_everyone=allow_everyone)
        self.creates_topics = creates_topics
        self.image: MetadataImage = empty_image()
        self.is_loaded = False
        self.allowed = 0
        self.denied = 0
        self._now_ms = now_ms
        #: What was denied -> (when it was logged, how often since).
        self._told: dict[Denial, tuple[int, int]] = {}

    @property
    def generation(self) -> int:
        """Grows whenever an answer may be another one than before."""
        return self.acls.generation

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A step of the metadata log."""
        self.image = image
        if delta.acls_changed or delta.is_snapshot or not self.is_loaded:
            self.acls.replace(image.acls)
            self.is_loaded = True

    # -- decisions -------------------------------------------------------------------------------------------------

    def allows(self, context: Any, operation: Operation, resource_type: ResourceType, name: str, *, log: bool = True) -> bool:
        """Whether the request's principal may. `log=False` for questions whose No refuses nothing. Raises ApiError before the ACLs are
        known."""
        decision = self._decide(context, operation, resource_type, name)
        if decision.is_allowed:
            self.allowed += 1
            if audit.isEnabledFor(logging.DEBUG):
                audit.debug("%s", _line(context, operation, resource_type, name, decision))
            return True
        if log:
            self.denied += 1
            self._tell(context, operation, resource_type, name, decision)
        return False

    def _decide(self, context: Any, operation: Operation, resource_type: ResourceType, name: str) -> Decision:
        principal: str = context.principal
        if not self.is_loaded and principal not in self.acls.super_users:
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"The ACLs are not loaded yet: {principal} is let in later (nodes that form the quorum belong in super.users).",
            )
        return self.acls.decide(principal, context.client_host, operation, resource_type, name)

    def may_on_cluster(self, context: Any, operation: Operation, *, log: bool = True) -> bool:
        """Whether the request's principal may do it to the cluster."""
        return self.allows(context, operation, ResourceType.CLUSTER, CLUSTER_NAME, log=log)

    def may_on_some(self, context: Any, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there is a resource of the type on which the principal may do it."""
        return self.acls.allows_some(context.principal, context.client_host, operation, resource_type)

    def allowed_among(
        self, context: Any, operation: Operation, resource_type: ResourceType, names: Iterable[str], *, log: bool = True
    ) -> set[str]:
        """Those of the resources on which the principal may do it."""
        return {name for name in set(names) if self.allows(context, operation, resource_type, name, log=log)}

    def operations(self, context: Any, resource_type: ResourceType, name: str) -> int:
        """What the principal may do on a resource, as the bits of the fields …AuthorizedOperations (KIP-430)."""
        return operation_bits(self.acls.operations(context.principal, context.client_host, resource_type, name))

    def require_on_cluster(self, context: Any, operation: Operation) -> None:
        """Raises ApiError CLUSTER_AUTHORIZATION_FAILED unless the principal may do it to the cluster."""
        if not self.may_on_cluster(context, operation):
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    # -- the log ---------------------------------------------------------------------------------------------------

    def _tell(self, context: Any, operation: Operation, resource_type: ResourceType, name: str, decision: Decision) -> None:
        key = (context.principal, context.client_host, operation, resource_type, name, context.api_key)
        now_ms = self._now_ms()
        told_ms, times = self._told.get(key, (now_ms - REPEAT_MS, 0))
        if now_ms - told_ms < REPEAT_MS:
            self._told[key] = (told_ms, times + 1)
            return
        line = _line(context, operation, resource_type, name, decision)
        if times:
            line += f" ({times} more of this before)"
        audit.info("%s", line)
        if len(self._told) >= REMEMBERED_MAX:
            self._told.clear()
        self._told[key] = (now_ms, 0)


def _line(context: Any, operation: Operation, resource_type: ResourceType, name: str, decision: Decision) -> str:
    """One line; names from the wire are quoted, so that none can begin a line of its own."""
    api_spec = api(context.api_key)
    resource = "the cluster" if resource_type is ResourceType.CLUSTER else f"{resource_type.label} {name!r}"
    why = decision.rule if decision.acl is None else str(decision.acl)
    verdict = "is allowed" if decision.is_allowed else "is denied"
    request = str(context.api_key) if api_spec is None else api_spec.name
    return f"{_plain(context.principal)} from {context.client_host} {verdict} {operation.label} on {resource} ({request}): {_plain(why)}"


def _plain(text: str) -> str:
    return text if text.isprintable() else repr(text)
