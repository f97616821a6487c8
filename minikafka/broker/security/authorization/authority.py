"""The node's authorizer: decides with the ACLs of the newest metadata image, and logs denials."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from minikafka.core.authorizer.acl import CLUSTER_NAME, Operation, ResourceType, operation_bits
from minikafka.core.authorizer.authorizer import AclAuthorizer, Decision
from minikafka.core.metadata.image import MetadataImage, empty_image
from minikafka.counted import counted
from minikafka.steps import Steps, at_once, paced
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.registry import api

if TYPE_CHECKING:
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.wire.records.metadata_records import AccessControlEntryRecord

#: Logs denials at INFO and permissions at DEBUG, like Kafka's kafka.authorizer.logger.
audit = logging.getLogger("minikafka.authorizer")
#: Repeated identical denials are logged once in this time, with their number.
REPEAT_MS = 10_000
REMEMBERED_MAX = 1_000

Denial = tuple[str, str, Operation, ResourceType, str, int]


class AuthorizableContext(Protocol):
    """Who sent a request, and of which API it is (AuthorizableRequestContext of Apache Kafka)."""

    @property
    def principal(self) -> str:
        """Kafka's form of the principal: type:name."""

    @property
    def client_host(self) -> str:
        """The address of the client."""

    @property
    def api_key(self) -> int:
        """-1 if it is not about a single request."""

    @property
    def api_version(self) -> int:
        """The version of the request."""


class Authority:
    """Authorizes requests with the ACLs of the newest metadata image. Before the first image, only super users are allowed anything."""

    def __init__(
        self,
        super_users: Iterable[str],
        *,
        allow_everyone: bool,
        creates_topics: bool,
        now_ms: Callable[[], int],
        load: Callable[[Steps[None]], object] = at_once,
    ) -> None:
        """`creates_topics`: auto.create.topics.enable; `now_ms` is a monotonic clock; `load` takes the steps in which the ACLs of the first
        image are loaded."""
        self.acls = AclAuthorizer(super_users, allow_everyone=allow_everyone)
        self.creates_topics = creates_topics
        self.image: MetadataImage = empty_image()
        #: False until the ACLs of the first image are loaded: then only super users are allowed, and others get an error.
        self.is_loaded = False
        self.loaded = asyncio.Event()
        self._load = load
        #: What has changed since the image that is being loaded.
        self._behind: list[Mapping[bytes, AccessControlEntryRecord | None]] | None = None
        self.allowed = 0
        self.denied = 0
        self._now_ms = now_ms
        #: Denial -> (time of its last log line in ms, number of repetitions since).
        self._logged: dict[Denial, tuple[int, int]] = {}

    @property
    def generation(self) -> int:
        """A number that grows whenever a decision may have changed."""
        return self.acls.generation

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take the ACLs of a new image; those of the first one, which may be very many, in steps."""
        self.image = image
        if self._behind is not None:
            self._behind.append(delta.changed_acls)
        elif not self.is_loaded:
            self._behind = []
            self._load(self._loading(image.acls))
        elif delta.changed_acls:
            self.acls.change(delta.changed_acls)

    def _loading(self, records: Mapping[bytes, AccessControlEntryRecord]) -> Steps[None]:
        part: dict[bytes, AccessControlEntryRecord | None] = {}
        for (acl_id, record), is_step in paced(records.items()):
            part[acl_id] = record
            if is_step:
                self.acls.change(part)
                part = {}
                yield
        for changes in (part, *(self._behind or ())):
            self.acls.change(changes)
        self._behind = None
        self.is_loaded = True
        self.loaded.set()

    # -- decisions -------------------------------------------------------------------------------------------------

    def allows(
        self, context: AuthorizableContext, operation: Operation, resource_type: ResourceType, name: str, *, log: bool = True
    ) -> bool:
        """Whether the request's principal may perform the operation on the resource. Raises ApiError before the ACLs are loaded.

        `log=False`: a denial refuses no request, so it is neither logged nor counted.
        """
        decision = self._decide(context, operation, resource_type, name)
        if decision.is_allowed:
            self.allowed += 1
            if audit.isEnabledFor(logging.DEBUG):
                audit.debug("%s", _line(context, operation, resource_type, name, decision))
            return True
        if log:
            self.denied += 1
            self._log(context, operation, resource_type, name, decision)
        return False

    def _decide(self, context: AuthorizableContext, operation: Operation, resource_type: ResourceType, name: str) -> Decision:
        principal = context.principal
        if not self.is_loaded and principal not in self.acls.super_users:
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"The ACLs are not loaded yet: {principal} has to try again later (add the quorum's nodes to super.users).",
            )
        return self.acls.decide(principal, context.client_host, operation, resource_type, name)

    def allows_on_cluster(self, context: AuthorizableContext, operation: Operation, *, log: bool = True) -> bool:
        """Whether the request's principal may perform the operation on the cluster."""
        return self.allows(context, operation, ResourceType.CLUSTER, CLUSTER_NAME, log=log)

    def allows_on_any(self, context: AuthorizableContext, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the principal may perform the operation on at least one resource of the type."""
        return self.acls.allows_some(context.principal, context.client_host, operation, resource_type)

    def allowed_among(
        self, context: AuthorizableContext, operation: Operation, resource_type: ResourceType, names: Iterable[str], *, log: bool = True
    ) -> set[str]:
        """The resources on which the principal may perform the operation."""
        return {name for name in set(names) if self.allows(context, operation, resource_type, name, log=log)}

    def operations(self, context: AuthorizableContext, resource_type: ResourceType, name: str) -> int:
        """The principal's operations on a resource, as the bit set of the fields …AuthorizedOperations (KIP-430)."""
        return operation_bits(self.acls.operations(context.principal, context.client_host, resource_type, name))

    def require_on_cluster(self, context: AuthorizableContext, operation: Operation) -> None:
        """Raises ApiError CLUSTER_AUTHORIZATION_FAILED unless the principal may perform the operation on the cluster."""
        if not self.allows_on_cluster(context, operation):
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    # -- the log ---------------------------------------------------------------------------------------------------

    def _log(self, context: AuthorizableContext, operation: Operation, resource_type: ResourceType, name: str, decision: Decision) -> None:
        key = (context.principal, context.client_host, operation, resource_type, name, context.api_key)
        now_ms = self._now_ms()
        logged_ms, times = self._logged.get(key, (now_ms - REPEAT_MS, 0))
        if now_ms - logged_ms < REPEAT_MS:
            self._logged[key] = (logged_ms, times + 1)
            return
        line = _line(context, operation, resource_type, name, decision)
        if times:
            line += f" (repeated {counted(times, 'time')} since it was last logged)"
        audit.info("%s", line)
        if len(self._logged) >= REMEMBERED_MAX:
            self._logged.clear()
        self._logged[key] = (now_ms, 0)


def _line(context: AuthorizableContext, operation: Operation, resource_type: ResourceType, name: str, decision: Decision) -> str:
    """A log line. Names from the wire are quoted, so that they cannot forge another line."""
    api_spec = api(context.api_key)
    resource = "the cluster" if resource_type is ResourceType.CLUSTER else f"{resource_type.label} {name!r}"
    why = decision.rule if decision.acl is None else str(decision.acl)
    verdict = "is allowed" if decision.is_allowed else "is denied"
    request = str(context.api_key) if api_spec is None else api_spec.name
    return f"{_plain(context.principal)} from {context.client_host} {verdict} {operation.label} on {resource} ({request}): {_plain(why)}"


def _plain(text: str) -> str:
    return text if text.isprintable() else repr(text)
