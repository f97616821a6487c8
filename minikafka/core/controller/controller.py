"""The active controller, sans-IO: requests and deadlines in, records and answers out.

    result = controller.handle(request, version, now_ms)
    base = log.append(result.records); controller.replay(result.records, base); answer result.response once committed

Each of these is made in steps (`minikafka/steps.py`), one after the other: the state does not change between the steps of a decision.

Only `replay` changes the state (except sessions, which are not in the log), so live operation and a restart follow the same path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from minikafka.core.controller.acls import AclControl
from minikafka.core.controller.brokers import BrokerControl
from minikafka.core.controller.config import RECORDS_PER_REQUEST_MAX, ConfigRules, ControllerConfig, RandomSource
from minikafka.core.controller.configs import ConfigControl
from minikafka.core.controller.features import FeatureControl, KraftVersion, bootstrap_records
from minikafka.core.controller.forwarded import Forwarded
from minikafka.core.controller.partitions import PartitionControl
from minikafka.core.controller.quotas import QuotaControl
from minikafka.core.controller.reassignment import ReassignmentControl
from minikafka.core.controller.scram import ScramControl
from minikafka.core.controller.sessions import BrokerSessions
from minikafka.core.controller.state import UNCLEAN_LEADER_ELECTION, ControllerState, Result
from minikafka.core.controller.tokens import TokenControl, TokenRequest, TokenSweep
from minikafka.core.controller.topics import Spend, TopicControl
from minikafka.core.metadata.delta import MetadataDelta
from minikafka.core.metadata.image import MetadataImage
from minikafka.steps import Steps
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from minikafka.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from minikafka.wire.messages.alter_configs import AlterConfigsRequest
from minikafka.wire.messages.alter_partition import AlterPartitionRequest
from minikafka.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from minikafka.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from minikafka.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from minikafka.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from minikafka.wire.messages.broker_registration import BrokerRegistrationRequest
from minikafka.wire.messages.controller_registration import ControllerRegistrationRequest
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.create_partitions import CreatePartitionsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.delete_acls import DeleteAclsRequest
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest
from minikafka.wire.messages.elect_leaders import ElectLeadersRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from minikafka.wire.messages.unregister_broker import UnregisterBrokerRequest
from minikafka.wire.messages.unregister_controller import UnregisterControllerRequest
from minikafka.wire.messages.update_features import UpdateFeaturesRequest
from minikafka.wire.records.metadata_records import ProducerIdsRecord

#: How soon the next round of leader balancing follows if one has reached its limit.
BALANCE_AGAIN_MS = 50

Method = Callable[[Any, int, int], "Result | Steps[Result]"]


class Controller:
    """The active controller, from its election until it resigns or is replaced.

    image: the committed image at the election; next_offset: the offset of its first record. Each election needs a new object, and `load`
    before anything else.
    """

    def __init__(
        self,
        config: ControllerConfig,
        rules: ConfigRules,
        random: RandomSource,
        image: MetadataImage,
        next_offset: int,
        now_ms: int,
        predecessor: int | None = None,
        kraft: KraftVersion | None = None,
    ) -> None:
        """`predecessor`: the node that led the quorum before, None if unknown. `kraft`: access to kraft.version, None where it cannot be
        changed."""
        self._config = config
        self.state = ControllerState(image, next_offset)
        self.partitions = PartitionControl(config, self.state)
        self.configs = ConfigControl(self.state, rules)
        self.topics = TopicControl(config, self.state, self.configs, random)
        sessions = BrokerSessions(config.broker_session_timeout_ms, config.minikafka_heartbeat_reconnect_ms)
        self.brokers = BrokerControl(config, self.state, self.partitions, sessions)
        self.features = FeatureControl(config, self.state, kraft)
        self.quotas = QuotaControl(self.state)
        self.scram = ScramControl(self.state)
        self.acls = AclControl(self.state, random)
        self.tokens = TokenControl(config, self.state, random)
        self.reassignments = ReassignmentControl(self.state, self.partitions)
        self.brokers.activate(now_ms, predecessor)
        self._balance_ms: int | None = None
        if config.auto_leader_rebalance_enable:
            self._balance_ms = now_ms + config.leader_imbalance_check_interval_ms
        #: At once: the predecessor may have ended while it elected leaders for very many partitions, because a broker had come back.
        self._unclean_ms: int = now_ms
        self._methods = self._table()
        self._of_topics: Mapping[type, Callable[[Any, int, Spend | None, Forwarded | None], Result | Steps[Result]]] = {
            CreateTopicsRequest: lambda request, version, spend, forwarded: self.topics.create(request, spend, forwarded),
            DeleteTopicsRequest: self.topics.delete,
            CreatePartitionsRequest: lambda request, version, spend, forwarded: self.topics.create_partitions(request, spend, forwarded),
        }
        self._of_configs: Mapping[type, Callable[[Any, bool], Result]] = {
            IncrementalAlterConfigsRequest: self.configs.incremental,
            AlterConfigsRequest: self.configs.legacy,
        }

    def log_ends_at(self, offset: int) -> None:
        """The next record gets this offset: the log may have records that others appended, such as a new version of the quorum."""
        self.state.next_offset = offset

    def _table(self) -> Mapping[type, Method]:
        return {
            BrokerRegistrationRequest: lambda request, version, now: self.brokers.register(request, now),
            BrokerHeartbeatRequest: lambda request, version, now: self.brokers.heartbeat(request, now),
            UnregisterBrokerRequest: lambda request, version, now: self.brokers.unregister(request),
            UnregisterControllerRequest: lambda request, version, now: self.brokers.unregister_controller(request),
            ControllerRegistrationRequest: lambda request, version, now: self.brokers.register_controller(request),
            AlterPartitionRequest: lambda request, version, now: self._alter_partition(request, version),
            AssignReplicasToDirsRequest: lambda request, version, now: self._assign_directories(request),
            ElectLeadersRequest: lambda request, version, now: self.partitions.elect_leaders(request),
            AllocateProducerIdsRequest: lambda request, version, now: self._allocate_producer_ids(request),
            UpdateFeaturesRequest: lambda request, version, now: self.features.update(request, version),
            AlterClientQuotasRequest: lambda request, version, now: self.quotas.alter(request),
            AlterUserScramCredentialsRequest: lambda request, version, now: self.scram.alter(request),
            CreateAclsRequest: lambda request, version, now: self.acls.create(request),
            DeleteAclsRequest: lambda request, version, now: self.acls.delete(request),
            TokenRequest: lambda request, version, now: self.tokens.handle(request),
            TokenSweep: lambda request, version, now: self.tokens.sweep(request),
            AlterPartitionReassignmentsRequest: lambda request, version, now: self.reassignments.alter(request),
            ListPartitionReassignmentsRequest: lambda request, version, now: self.reassignments.list(request),
        }

    @property
    def image(self) -> MetadataImage:
        """The newest image, including records that are not committed yet."""
        return self.state.image

    def handle(
        self,
        request: Any,
        version: int,
        now_ms: int,
        spend: Spend | None = None,
        forwarded: Forwarded | None = None,
        is_direct: bool = False,
    ) -> Steps[Result]:
        """Handle a request. `spend` counts created and deleted partitions against a quota. `forwarded`: how often a broker has sent the
        request before. `is_direct`: a client sent it to this controller, and no broker has looked at it. Raises ApiError if the request
        fails as a whole."""
        of_topics, method = self._of_topics.get(type(request)), self._methods.get(type(request))
        of_configs = self._of_configs.get(type(request))
        found: Result | Steps[Result]
        if of_topics is not None:
            found = of_topics(request, version, spend, forwarded)
        elif of_configs is not None:
            found = of_configs(request, is_direct)
        elif method is not None:
            found = method(request, version, now_ms)
        else:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{type(request).__name__} is not a request to the controller")
        result = found if isinstance(found, Result) else (yield from found)
        if result.atomic and len(result.records) > 2 * RECORDS_PER_REQUEST_MAX:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        return result

    def load(self) -> Steps[None]:
        """Make the look-ups of the state."""
        return self.state.load()

    def replay(self, records: list[Any], base_offset: int) -> Steps[MetadataDelta]:
        """Apply appended records; the first is at `base_offset`."""
        delta = yield from self.state.replay(records, base_offset)
        for resource in delta.changed_configs:
            before, after = delta.base.config(*resource), self.state.image.config(*resource)
            if before.get(UNCLEAN_LEADER_ELECTION) != after.get(UNCLEAN_LEADER_ELECTION):
                # When unclean election is enabled, elect leaders at once instead of in the next round (KAFKA-12670).
                self._unclean_ms = 0
        return delta

    def bootstrap(self, features: Mapping[str, int], users: Sequence[Any] = ()) -> Result:
        """The first records of a cluster; none if the log has features already. `users`: UserScramCredentialRecords."""
        if self.state.image.features:
            return Result()
        return Result(None, bootstrap_records(features, self._config.min_insync_replicas, users))

    # -- time ------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When to call `on_deadline`."""
        deadlines = [self.brokers.sessions.next_deadline(), self._balance_ms]
        if self.state.has_leaderless:
            deadlines.append(self._unclean_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def on_deadline(self, now_ms: int) -> Iterator[Steps[list[Any]]]:
        """Records, in steps, for ended sessions, missing leaders and leader balancing. The caller appends and replays those of each
        decision before the next."""
        yield from self.brokers.expire(now_ms)
        if self.state.has_leaderless and now_ms >= self._unclean_ms:
            self._unclean_ms = now_ms + self._config.unclean_leader_election_interval_ms
            yield self.partitions.elect_leaderless()
        if self._balance_ms is not None and now_ms >= self._balance_ms:
            yield self._balance(now_ms)

    def _balance(self, now_ms: int) -> Steps[list[Any]]:
        records: list[Any] = []
        records += yield from self.partitions.balance(RECORDS_PER_REQUEST_MAX)
        again = len(records) >= RECORDS_PER_REQUEST_MAX
        self._balance_ms = now_ms + (BALANCE_AGAIN_MS if again else self._config.leader_imbalance_check_interval_ms)
        return records

    def broker_heard(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A heartbeat has arrived, and will be decided on; see BrokerSessions.heard."""
        self.brokers.sessions.heard(broker_id, broker_epoch, now_ms)

    def broker_disconnected(self, broker_id: int, broker_epoch: int, now_ms: int, connect_ms: int | None = 0) -> None:
        """The connection that carried a broker's heartbeats has closed; see BrokerSessions.disconnected."""
        self.brokers.sessions.disconnected(broker_id, broker_epoch, now_ms, connect_ms)

    # -- small requests --------------------------------------------------------------------------------------------

    def _alter_partition(self, request: AlterPartitionRequest, version: int) -> Result:
        self.brokers.check_epoch(request.broker_id, request.broker_epoch)
        return self.partitions.alter_partition(request, version)

    def _assign_directories(self, request: AssignReplicasToDirsRequest) -> Result:
        if not self.state.image.has_directories:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
        self.brokers.check_epoch(request.broker_id, request.broker_epoch)
        return self.partitions.assign_directories(request)

    def _allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> Result:
        self.brokers.check_epoch(request.broker_id, request.broker_epoch)
        start, length = self.state.image.next_producer_id, self._config.producer_id_block_size
        if start > 2**63 - 1 - length:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producer ids.")
        record = ProducerIdsRecord(broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=start + length)
        return Result(AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=length), [record])
