"""The part of a node that metrics, pages and probes read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

    from minikafka.broker.client_metrics.requests import ClientMetricsHandlers
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.coordinators.group_coordinator import GroupHost
    from minikafka.broker.coordinators.transaction_coordinator import TransactionHost
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import Dispatcher
    from minikafka.broker.front.quotas import ClientQuotaHost
    from minikafka.broker.observe.audits import AuditSchedule
    from minikafka.broker.observe.timeline import Timeline
    from minikafka.broker.partitions.cleaner import LogCleaner
    from minikafka.broker.partitions.fetch import FetchHandlers
    from minikafka.broker.partitions.handover import HandoverHost
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.broker_lifecycle import BrokerLifecycleHost
    from minikafka.broker.quorum.controller_host import ControllerHost
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.broker.quorum.raft_host import RaftHost
    from minikafka.broker.supervise import Supervisor
    from minikafka.core.authorizer.authorizer import AclAuthorizer
    from minikafka.net.memory_budget import MemoryBudget
    from minikafka.net.network import Listener
    from minikafka.storage.log_dir import LogDirectory


class ObservedAuthority(Protocol):
    """A node's authorizer, with the counts of its decisions."""

    @property
    def acls(self) -> AclAuthorizer: ...

    @property
    def allowed(self) -> int: ...

    @property
    def denied(self) -> int: ...


class ObservedBroker(Protocol):
    """A node as a broker."""

    @property
    def replicas(self) -> ReplicaManager: ...

    @property
    def cleaner(self) -> LogCleaner: ...

    @property
    def handover(self) -> HandoverHost: ...

    @property
    def fetch(self) -> FetchHandlers: ...

    @property
    def client_metrics(self) -> ClientMetricsHandlers: ...

    @property
    def groups(self) -> GroupHost: ...

    @property
    def transactions(self) -> TransactionHost: ...

    @property
    def dispatcher(self) -> Dispatcher: ...

    @property
    def lifecycle(self) -> BrokerLifecycleHost: ...


class ObservedNode(Protocol):
    """A node (`node.Node`). `broker`, `controller` and their parts are None if the node does not have the role."""

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def environment(self) -> Environment: ...

    @property
    def budget(self) -> MemoryBudget: ...
    @property
    def node_budget(self) -> MemoryBudget: ...

    @property
    def metadata(self) -> MetadataHost: ...

    @property
    def raft(self) -> RaftHost: ...

    @property
    def controller(self) -> ControllerHost | None: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def supervisor(self) -> Supervisor: ...

    @property
    def timeline(self) -> Timeline: ...

    @property
    def quotas(self) -> ClientQuotaHost: ...

    @property
    def listeners(self) -> dict[str, Listener]: ...

    @property
    def directories(self) -> list[LogDirectory]: ...

    @property
    def audits(self) -> AuditSchedule: ...

    @property
    def ready(self) -> asyncio.Event: ...

    @property
    def failed(self) -> asyncio.Future[BaseException]: ...

    @property
    def stopping(self) -> bool: ...

    @property
    def start_took_ms(self) -> int: ...

    @property
    def controller_dispatcher(self) -> Dispatcher | None: ...

    @property
    def registered_listeners(self) -> dict[str, tuple[str, int, int]]: ...

    @property
    def authority(self) -> ObservedAuthority | None: ...

    @property
    def broker(self) -> ObservedBroker | None: ...
