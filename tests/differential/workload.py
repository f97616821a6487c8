"""The same work for a broker of each kind: topics, records, transactions, groups, configurations, users. Names, times and records are
fixed, so that the files on both disks can be compared."""

from __future__ import annotations

import socket
import time
from typing import Any

from differential.side import FOR_A_MOMENT, codes

from minikafka.testing.probe import exchange
from minikafka.wire.batch import build_batch
from minikafka.wire.compression import CompressionType
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from minikafka.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from minikafka.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from minikafka.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.create_partitions import CreatePartitionsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.delete_groups import DeleteGroupsRequest
from minikafka.wire.messages.delete_records import DeleteRecordsRequest
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest
from minikafka.wire.messages.describe_transactions import DescribeTransactionsRequest
from minikafka.wire.messages.end_txn import EndTxnRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.messages.init_producer_id import InitProducerIdRequest
from minikafka.wire.messages.join_group import JoinGroupRequest
from minikafka.wire.messages.leave_group import LeaveGroupRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.offset_delete import OffsetDeleteRequest
from minikafka.wire.messages.produce import ProduceRequest
from minikafka.wire.messages.sync_group import SyncGroupRequest
from minikafka.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

#: Of the records.
TIME_MS = 1_700_000_000_000
TOPICS = {
    "plain": {"segment.bytes": "1048576", "index.interval.bytes": "4096"},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"},
    "transactions": {},
    "gone": {},
}
#: The last one: a transaction's coordinator is being loaded, so that nobody can say whether the partition belongs to it.
RETRIABLE = FOR_A_MOMENT | {ErrorCode.NOT_ENOUGH_REPLICAS}
SETTLED_S = 30.0
TOPIC, BROKER = 2, 4


class Workload:
    """Sends the requests to one broker, and demands that each succeeds."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.split(",", maxsplit=1)[0].partition(":")
        self._address = host, int(port)
        self._topic_ids: dict[str, bytes] = {}

    def perform(self) -> None:
        """All of it."""
        self._administration()
        self._records()
        self._transactions()
        self._groups()

    def _ask(self, request: Any, version: int, expected: int = 0) -> Any:
        """The answer, when it is no more one of a moment. Raises AssertionError if it holds other codes than `expected` and 0."""
        end = time.monotonic() + SETTLED_S
        while True:
            answer = exchange(*self._address, request, version, SETTLED_S)
            found = codes(answer)
            if found <= {0, expected}:
                return answer
            assert not RETRIABLE.isdisjoint(found) and time.monotonic() < end, (request, answer)
            pause()

    # -- administration ------------------------------------------------------------------------------------------------

    def _administration(self) -> None:
        kind = CreateTopicsRequest
        for name, configs in TOPICS.items():
            given = [kind.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
            topic = kind.CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=given)
            self._topic_ids[name] = self._ask(kind(topics=[topic], timeout_ms=10_000), 7).topics[0].topic_id
        partitions = CreatePartitionsRequest.CreatePartitionsTopic(name="compacted", count=3, assignments=None)
        self._ask(CreatePartitionsRequest(topics=[partitions], timeout_ms=10_000), 3)
        self._alter(TOPIC, "plain", "max.message.bytes", "2000000")
        self._alter(TOPIC, "compacted", "min.cleanable.dirty.ratio", None)
        self._alter(BROKER, "1", "log.cleaner.threads", "1")
        self._alter(BROKER, "", "message.max.bytes", "3000000")
        quotas, entity = AlterClientQuotasRequest, AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="alice")
        for removes in (False, True):
            keys = ("consumer_byte_rate", "producer_byte_rate")[removes:]
            operations = [quotas.OpData(key=key, value=1e6, remove=removes) for key in keys]
            self._ask(quotas(entries=[quotas.EntryData(entity=[entity], ops=operations)]), 1)
        users = AlterUserScramCredentialsRequest
        for name in ("alice", "bob"):
            user = users.ScramCredentialUpsertion(name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32)
            self._ask(users(upsertions=[user]), 0)
        self._ask(users(deletions=[users.ScramCredentialDeletion(name="bob", mechanism=1)]), 0)
        acl = CreateAclsRequest.AclCreation(
            resource_type=TOPIC, resource_name="plain", resource_pattern_type=3, principal="User:alice", host="*", operation=3,
            permission_type=3,
        )  # fmt: skip
        self._ask(CreateAclsRequest(creations=[acl]), 3)
        self._ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="gone")], timeout_ms=10_000), 6)

    def _alter(self, resource_type: int, resource: str, name: str, value: str | None) -> None:
        kind = IncrementalAlterConfigsRequest
        change = kind.AlterableConfig(name=name, config_operation=0 if value is not None else 1, value=value)
        self._ask(kind(resources=[kind.AlterConfigsResource(resource_type=resource_type, resource_name=resource, configs=[change])]), 1)

    # -- records -------------------------------------------------------------------------------------------------------

    def _records(self) -> None:
        """More than two segments, every codec, an idempotent producer, a log start within a segment."""
        for number in range(50):
            records = [(TIME_MS + 1000 * number + index, b"%d" % index, b"v" * 500) for index in range(100)]
            self._produce("plain", 0, records)
        for number, codec in enumerate(CompressionType):
            self._produce("plain", 1, [(TIME_MS + number, None, b"value" * 20)] * 30, compression=codec)
        for number in range(3):
            self._produce("compacted", number, [(TIME_MS - number, b"key-%d" % (index % 3), b"value") for index in range(10)])
        producer = self._ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
        for number in range(7):
            own = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch, "base_sequence": 2 * number}
            self._produce("plain", 1, [(TIME_MS + number, b"idempotent", b"value")] * 2, **own)
        part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=1234)
        topics = [DeleteRecordsRequest.DeleteRecordsTopic(name="plain", partitions=[part])]
        self._ask(DeleteRecordsRequest(topics=topics, timeout_ms=10_000), 2)

    def _produce(
        self, topic: str, partition: int, records: list[Any], transactional_id: str | None = None, version: int = 9, **options: Any
    ) -> None:
        numbered = [(index, *record) for index, record in enumerate(records)]
        batch = bytes(build_batch(numbered, is_transactional=transactional_id is not None, **options))
        data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
        topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
        self._ask(ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=topics), version)

    # -- transactions --------------------------------------------------------------------------------------------------

    def _transactions(self) -> None:
        for key_type in (0, 1):
            self._ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["first"]), 4)
        for commits in (True, False):
            self._transaction_of_version_1(f"first-{commits}", commits=commits)
            self._transaction_of_version_2(f"second-{commits}", commits=commits)

    def _begun(self, transactional_id: str) -> tuple[int, int]:
        """A producer's id and epoch."""
        found = self._ask(InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 4)
        return found.producer_id, found.producer_epoch

    def _transaction_of_version_1(self, name: str, *, commits: bool) -> None:
        producer_id, epoch = self._begun(name)
        adding = AddPartitionsToTxnRequest
        for sequence in (0, 1):
            topics = [adding.AddPartitionsToTxnTopic(name="transactions", partitions=[0, 1])]
            self._ask(
                adding(
                    v3_and_below_transactional_id=name, v3_and_below_producer_id=producer_id, v3_and_below_producer_epoch=epoch,
                    v3_and_below_topics=topics,
                ), 3,
            )  # fmt: skip
            for partition in (0, 1):
                own = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
                self._produce("transactions", partition, [(TIME_MS, b"k", b"v")], name, **own)
            own = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
            self._ask(AddOffsetsToTxnRequest(group_id="transactional", **own), 3)
            self._commit_in_transaction(own, sequence, 3)
            self._ask(EndTxnRequest(committed=commits, **own), 3)
            self._wait_for_end(name)

    def _transaction_of_version_2(self, name: str, *, commits: bool) -> None:
        producer_id, epoch = self._begun(name)
        for _ in range(2):
            own = {"producer_id": producer_id, "producer_epoch": epoch}
            self._produce("transactions", 0, [(TIME_MS, b"k", b"v")] * 3, name, version=12, base_sequence=0, **own)
            self._commit_in_transaction({"transactional_id": name, **own}, 5, 5)
            ended = self._ask(EndTxnRequest(transactional_id=name, committed=commits, **own), 5)
            producer_id, epoch = ended.producer_id, ended.producer_epoch
            self._wait_for_end(name)
        # What is open when the broker stops.
        own = {"producer_id": producer_id, "producer_epoch": epoch}
        self._produce("transactions", 1, [(TIME_MS, b"k", b"open")], name, version=12, base_sequence=0, **own)

    def _wait_for_end(self, name: str) -> None:
        """A transaction is complete some time after its end is answered."""
        end = time.monotonic() + SETTLED_S
        request = DescribeTransactionsRequest(transactional_ids=[name])
        while not self._ask(request, 0).transaction_states[0].transaction_state.startswith("Complete"):
            assert time.monotonic() < end, name
            pause()

    def _commit_in_transaction(self, own: dict[str, Any], offset: int, version: int) -> None:
        kind = TxnOffsetCommitRequest
        part = kind.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topics = [kind.TxnOffsetCommitRequestTopic(name="plain", partitions=[part])]
        self._ask(kind(group_id="transactional", topics=topics, **own), version)

    # -- groups --------------------------------------------------------------------------------------------------------

    def _groups(self) -> None:
        self._classic_group()
        self._consumer_group()
        for group in ("simple", "deleted"):
            self._commit(group, "", -1, [0, 1])
        kind = OffsetDeleteRequest
        part = kind.OffsetDeleteRequestPartition(partition_index=1)
        self._ask(kind(group_id="simple", topics=[kind.OffsetDeleteRequestTopic(name="plain", partitions=[part])]), 0)
        self._ask(DeleteGroupsRequest(groups_names=["deleted"]), 2)

    def _classic_group(self) -> None:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\1\0\5plain\0\0\0\0\0\0\0\0")
        shared = {"group_id": "classic", "session_timeout_ms": 45_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer"}
        joined = self._ask(JoinGroupRequest(member_id="", group_instance_id="instance", protocols=[protocol], **shared), 7)
        member = {"group_id": "classic", "member_id": joined.member_id, "group_instance_id": "instance"}
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(
            member_id=joined.member_id, assignment=b"\0\1\0\0\0\1\0\5plain\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\0"
        )
        fields = {"protocol_type": "consumer", "protocol_name": "range", "assignments": [assignment]}
        self._ask(SyncGroupRequest(generation_id=joined.generation_id, **member, **fields), 5)
        self._commit("classic", joined.member_id, joined.generation_id, [0, 1], group_instance_id="instance")
        leaving = LeaveGroupRequest.MemberIdentity(member_id=joined.member_id, group_instance_id="instance")
        self._ask(LeaveGroupRequest(group_id="classic", members=[leaving]), 4)

    def _consumer_group(self) -> None:
        kind = ConsumerGroupHeartbeatRequest
        joining = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["plain"], "topic_partitions": []}
        epoch = self._ask(kind(group_id="consumer", member_id="member-1", member_epoch=0, **joining), 1).member_epoch
        owned = [kind.TopicPartitions(topic_id=self._topic_ids["plain"], partitions=[0, 1])]
        self._ask(kind(group_id="consumer", member_id="member-1", member_epoch=epoch, topic_partitions=owned), 1)
        self._commit("consumer", "member-1", epoch, [0])
        self._ask(kind(group_id="consumer", member_id="member-1", member_epoch=-1), 1)

    def _commit(self, group: str, member_id: str, epoch: int, partitions: list[int], **fields: Any) -> None:
        kind = OffsetCommitRequest
        part = kind.OffsetCommitRequestPartition
        parts = [part(partition_index=index, committed_offset=7, committed_metadata="m") for index in partitions]
        topics = [kind.OffsetCommitRequestTopic(name="plain", partitions=parts)]
        request = kind(group_id=group, generation_id_or_member_epoch=epoch, member_id=member_id, topics=topics, **fields)
        self._ask(request, 9)


def pause() -> None:
    """A moment, in which the broker reads."""
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.settimeout(0.02)
        try:
            reader.recv(1)
        except TimeoutError:
            return
