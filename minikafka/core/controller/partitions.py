"""Partition changes that brokers and operators cause: leaders, in-sync replicas, log directories of replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from minikafka.core.controller.change import Election, PartitionChange
from minikafka.core.controller.config import ControllerConfig
from minikafka.core.controller.state import ControllerState, Result
from minikafka.core.metadata.image import (
    DIRECTORY_LOST,
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
    BrokerRegistration,
    PartitionRegistration,
    TopicImage,
    is_reserved_directory,
)
from minikafka.steps import Steps, paced
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from minikafka.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from minikafka.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from minikafka.wire.records.metadata_records import PartitionChangeRecord

NO_BROKER = NO_LEADER
ELECTION_PREFERRED = 0
ELECTION_UNCLEAN = 1


class PartitionControl:
    """Decides partition changes; reads the state, never writes it."""

    def __init__(self, config: ControllerConfig, state: ControllerState) -> None:
        self._config = config
        self._state = state

    # -- the common change -----------------------------------------------------------------------------------------

    def change(
        self,
        topic: TopicImage,
        index: int,
        partition: PartitionRegistration,
        *,
        election: Election | None = None,
        may_lead: Callable[[int], bool] | None = None,
    ) -> PartitionChange:
        """A change of one partition, with the topic's min ISR. If `election` is None, the topic's unclean setting decides."""
        state = self._state
        if election is None:
            unclean = state.unclean_election(topic.name, self._config.node_id, self._config.unclean_leader_election_enable)
            election = Election.UNCLEAN if unclean else Election.ONLINE
        acceptable = state.image.is_active if may_lead is None else may_lead

        def accept(broker_id: int) -> bool:
            if not acceptable(broker_id):
                return False
            broker = state.image.brokers.get(broker_id)
            return broker is not None and broker.has_online_directory(partition.directory(broker_id))

        return PartitionChange(
            partition,
            topic.topic_id,
            index,
            accept,
            min_isr=state.min_isr(topic.name, self._config.min_insync_replicas),
            elr_enabled=state.image.is_elr_enabled,
            election=election,
        )

    def leave_and_join(
        self,
        partitions: Iterable[tuple[TopicImage, int, PartitionRegistration]],
        *,
        leaving: int = NO_BROKER,
        joining: int = NO_BROKER,
        unclean: int = NO_BROKER,
    ) -> Steps[list[PartitionChangeRecord]]:
        """New ISRs and leaders after a broker stopped (`leaving`), started (`joining`) or restarted uncleanly (`unclean`).

        `leaving` leaves ISRs and may become eligible. `unclean` leaves ISRs and eligible replicas. `joining` may lead although it is still
        fenced in the image.
        """
        state = self._state

        def may_lead(broker_id: int) -> bool:
            if broker_id in {leaving, unclean}:
                return False
            return broker_id == joining or state.image.is_active(broker_id)

        records = []
        for (topic, index, partition), is_step in paced(partitions):
            if is_step:
                yield
            change = self.change(topic, index, partition, may_lead=may_lead)
            if unclean != NO_BROKER:
                change.unclean_shutdown(unclean)
            change.target_isr(replica for replica in partition.isr if replica not in {leaving, unclean})
            record = change.build()
            if record is not None:
                records.append(record)
        return records

    def in_isr(self, broker_id: int) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
        """Partitions that have the broker in their ISR."""
        return (entry for entry in self._state.partitions_of(broker_id) if broker_id in entry[2].isr)

    def in_isr_or_elr(self, broker_id: int) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
        """Partitions that have the broker in their ISR, then those where it is only eligible."""
        partitions = self._state.partitions_of(broker_id)
        only_eligible = (entry for entry in partitions if broker_id in entry[2].elr and broker_id not in entry[2].isr)
        return chain(self.in_isr(broker_id), only_eligible)

    # -- AlterPartition --------------------------------------------------------------------------------------------

    def alter_partition(self, request: AlterPartitionRequest, version: int) -> Result:
        """Commit the in-sync sets that a leader proposes (KIP-497, KIP-841, KIP-903); one answer per partition."""
        result = Result(AlterPartitionResponse())
        for requested in request.topics:
            answers = AlterPartitionResponse.TopicData(topic_id=requested.topic_id)
            result.response.topics.append(answers)
            topic = self._state.image.topics_by_id.get(requested.topic_id)
            for data in requested.partitions:
                if topic is None:
                    answer = AlterPartitionResponse.PartitionData(
                        partition_index=data.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_ID
                    )
                else:
                    answer = self._alter_one(request.broker_id, version, topic, data, result)
                answers.partitions.append(answer)
        return result

    def _alter_one(
        self, broker_id: int, version: int, topic: TopicImage, data: AlterPartitionRequest.PartitionData, result: Result
    ) -> AlterPartitionResponse.PartitionData:
        index = data.partition_index
        partition = topic.partitions.get(index)
        isr = (
            [(member.broker_id, member.broker_epoch) for member in data.new_isr_with_epochs]
            if version >= 3
            else [(member, -1) for member in data.new_isr]
        )
        code = self._check_alter(broker_id, partition, data, isr)
        if code is not ErrorCode.NONE or partition is None:
            return AlterPartitionResponse.PartitionData(partition_index=index, error_code=code)
        change = self.change(topic, index, partition)
        change.target_isr(member for member, _ in isr).target_recovery_state(data.leader_recovery_state)
        record = change.build()
        if record is not None:
            result.records.append(record)
            partition = partition.merge(record)
            if record.leader not in {NO_LEADER_CHANGE, broker_id}:
                return AlterPartitionResponse.PartitionData(partition_index=index, error_code=ErrorCode.NEW_LEADER_ELECTED)
        return AlterPartitionResponse.PartitionData(
            partition_index=index,
            error_code=ErrorCode.NONE,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            leader_recovery_state=partition.leader_recovery_state,
            partition_epoch=partition.partition_epoch,
        )

    def _check_alter(
        self,
        broker_id: int,
        partition: PartitionRegistration | None,
        data: AlterPartitionRequest.PartitionData,
        isr: Sequence[tuple[int, int]],
    ) -> ErrorCode:
        """The first thing wrong with the request, in the order of Kafka's validateAlterPartitionData."""
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # The leader has newer metadata than this controller, so this controller has been replaced.
        if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
            return ErrorCode.NOT_CONTROLLER
        if data.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if broker_id != partition.leader:
            return ErrorCode.INVALID_REQUEST
        if data.partition_epoch < partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        members = [member for member, _ in isr]
        if not members or len(set(members)) != len(members) or any(member not in partition.replicas for member in members):
            return ErrorCode.INVALID_REQUEST
        if partition.leader not in members:
            return ErrorCode.INVALID_REQUEST
        state = data.leader_recovery_state
        if state not in {RECOVERED, RECOVERING} or (state == RECOVERING and len(members) > 1):
            return ErrorCode.INVALID_REQUEST
        if partition.leader_recovery_state == RECOVERED and state == RECOVERING:
            return ErrorCode.INVALID_REQUEST
        for member, epoch in isr:
            broker = self._state.image.brokers.get(member)
            if broker is None or not broker.is_active or epoch not in {-1, broker.epoch}:
                return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE

    # -- elections -------------------------------------------------------------------------------------------------

    def elect_leaders(self, request: ElectLeadersRequest) -> Steps[Result]:
        """ElectLeaders (KIP-460). Without a list it applies to all partitions, and the answer leaves out those that need no election."""
        if request.election_type not in {ELECTION_PREFERRED, ELECTION_UNCLEAN}:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
        result = Result(ElectLeadersResponse(), atomic=False)
        image = self._state.image
        if request.topic_partitions is None:
            requested = [(name, list(topic.partitions)) for name, topic in image.topics_by_name.items()]
        else:
            requested = [(entry.topic, entry.partitions) for entry in request.topic_partitions]
        answers = result.response.replica_election_results
        answers += (ElectLeadersResponse.ReplicaElectionResult(topic=name) for name, _ in requested)
        partitions = ((answer, index) for answer, (_, indexes) in zip(answers, requested, strict=True) for index in indexes)
        for (answer, index), is_step in paced(partitions):
            if is_step:
                yield
            code, message = self._elect_one(answer.topic, index, request.election_type, result)
            if request.topic_partitions is None and code is ErrorCode.ELECTION_NOT_NEEDED:
                continue
            answer.partition_result.append(
                ElectLeadersResponse.PartitionResult(partition_id=index, error_code=code, error_message=message)
            )
        return result

    def _elect_one(self, name: str, index: int, kind: int, result: Result) -> tuple[ErrorCode, str | None]:
        topic = self._state.image.topics_by_name.get(name)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
        partition = topic.partitions.get(index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
        unclean = kind == ELECTION_UNCLEAN
        if partition.has_leader if unclean else partition.leader == partition.preferred_leader:
            return ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED.text
        record = self.change(topic, index, partition, election=Election.UNCLEAN if unclean else Election.PREFERRED).build()
        if record is None:
            code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if unclean else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            return code, code.text
        result.records.append(record)
        return ErrorCode.NONE, None

    def balance(self, records_max: int) -> Steps[list[PartitionChangeRecord]]:
        """Elect preferred replicas on brokers that are out of balance.

        A broker is out of balance if other brokers lead more than `leader.imbalance.per.broker.percentage` of the partitions whose
        preferred leader it is.
        """
        preferred: dict[int, int] = {}
        moved: dict[int, list[tuple[TopicImage, int, PartitionRegistration]]] = {}
        for (topic, index, partition), is_step in paced(self._state.all_partitions(), 1024):
            if is_step:
                yield
            broker_id = partition.preferred_leader
            preferred[broker_id] = preferred.get(broker_id, 0) + 1
            if partition.leader != broker_id:
                moved.setdefault(broker_id, []).append((topic, index, partition))
        limit = self._config.leader_imbalance_per_broker_percentage
        records: list[PartitionChangeRecord] = []
        for broker_id, partitions in moved.items():
            if len(partitions) * 100 <= limit * preferred[broker_id] or not self._state.image.is_active(broker_id):
                continue
            for (topic, index, partition), is_step in paced(partitions):
                if is_step:
                    yield
                if broker_id not in partition.isr:
                    continue
                record = self.change(topic, index, partition, election=Election.PREFERRED).build()
                if record is not None:
                    records.append(record)
                if len(records) >= records_max:
                    return records
        return records

    def elect_leaderless(self) -> Steps[list[PartitionChangeRecord]]:
        """Elect leaders for partitions without one, where a replica may lead now after a change of configurations or brokers."""
        return self.leave_and_join(self._state.leaderless_partitions())

    # -- log directories -------------------------------------------------------------------------------------------

    def offline_directories(self, broker: BrokerRegistration, offline: Sequence[bytes]) -> Steps[list[PartitionChangeRecord]]:
        """Replicas in directories that have just gone offline leave their ISRs (KIP-858)."""
        records: list[PartitionChangeRecord] = []
        for (topic, index, partition), is_step in paced(self._state.partitions_of(broker.broker_id)):
            if is_step:
                yield
            if partition.directory(broker.broker_id) in offline:
                records += self._drop_from_isr(topic, index, partition, broker.broker_id)
        return records

    def _drop_from_isr(
        self, topic: TopicImage, index: int, partition: PartitionRegistration, broker_id: int
    ) -> list[PartitionChangeRecord]:
        if broker_id not in partition.isr and partition.leader != broker_id:
            return []
        image = self._state.image
        change = self.change(topic, index, partition, may_lead=lambda replica: replica != broker_id and image.is_active(replica))
        record = change.target_isr(replica for replica in partition.isr if replica != broker_id).build()
        return [] if record is None else [record]

    def assign_directories(self, request: AssignReplicasToDirsRequest) -> Result:
        """AssignReplicasToDirs: the broker reports the log directories of its replicas."""
        result = Result(AssignReplicasToDirsResponse(), atomic=False)
        image = self._state.image
        broker = image.brokers[request.broker_id]
        for directory in request.directories:
            is_registered = broker.has_online_directory(directory.id)
            answer = AssignReplicasToDirsResponse.DirectoryData(id=directory.id)
            result.response.directories.append(answer)
            for requested in directory.topics:
                topic = image.topics_by_id.get(requested.topic_id)
                topic_answer = AssignReplicasToDirsResponse.TopicData(topic_id=requested.topic_id)
                answer.topics.append(topic_answer)
                for data in requested.partitions:
                    code = self._assign_one(topic, data.partition_index, broker, directory.id, is_registered, result)
                    topic_answer.partitions.append(
                        AssignReplicasToDirsResponse.PartitionData(partition_index=data.partition_index, error_code=code)
                    )
        return result

    def _assign_one(
        self, topic: TopicImage | None, index: int, broker: BrokerRegistration, directory: bytes, is_registered: bool, result: Result
    ) -> ErrorCode:
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        partition = topic.partitions.get(index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if broker.broker_id not in partition.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if is_reserved_directory(directory) and directory != DIRECTORY_LOST:
            return ErrorCode.INVALID_REQUEST
        change = self.change(topic, index, partition).target_directory(broker.broker_id, directory)
        record = change.build()
        if record is not None:
            result.records.append(record)
        merged = partition if record is None else partition.merge(record)
        if not is_registered:
            result.records.extend(self._drop_from_isr(topic, index, merged, broker.broker_id))
        elif merged.leader < 0 and record is not None:
            # The broker may lead now that its replica is in an online directory.
            elected = self.change(topic, index, merged).build()
            result.records.extend([] if elected is None else [elected])
        return ErrorCode.NONE
