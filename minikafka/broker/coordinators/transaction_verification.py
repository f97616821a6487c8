"""Verifies a transaction with its coordinator before a partition accepts the first batch (KIP-890).

If the client's transaction version is below 2, it has added the partition itself, and the broker verifies it. Otherwise the broker adds it.
Rules: kafka.server.AddPartitionsToTxnManager and ReplicaManager of Apache Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.core.transaction.records import by_topic
from minikafka.core.transaction.state import PartitionKey
from minikafka.core.transaction.verification import Support, Verification
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest

if TYPE_CHECKING:
    from minikafka.broker.config.dynamic import Settings
    from minikafka.broker.coordinators.transaction_coordinator import OnVerified, TransactionHost
    from minikafka.broker.environment import Environment
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.broker.quorum.raft_peers import RaftPeers


class TransactionVerifier:
    """Sends requests to transaction coordinators, local or remote."""

    def __init__(
        self, node_id: int, settings: Settings, environment: Environment, metadata: MetadataHost, host: TransactionHost, peers: RaftPeers
    ) -> None:
        self._node_id = node_id
        self._settings = settings
        self._environment = environment
        self._metadata = metadata
        self._host = host
        self._peers = peers

    def is_enabled(self, support: Support) -> bool:
        """Whether clients with this support are verified (transaction.partition.verification.enable)."""
        return support is Support.ADDS or bool(self._settings.transaction_partition_verification_enable)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[PartitionKey],
        support: Support,
        done: OnVerified,
    ) -> None:
        """Calls `done(partition -> error)`, perhaps before it returns. The errors are those for the client."""
        settings, clock = self._settings, self._environment.clock
        deadline_ms = clock.now_ms() + settings.add_partitions_to_txn_retry_backoff_max_ms
        verification = Verification(transactional_id, producer_id, producer_epoch, partitions, adds=support is Support.ADDS)

        def ask() -> None:
            self._ask(verification, answered)

        def answered(results: dict[PartitionKey, ErrorCode]) -> None:
            backoff_ms = settings.add_partitions_to_txn_retry_backoff_ms
            is_busy = verification.adds and ErrorCode.CONCURRENT_TRANSACTIONS in results.values()
            if is_busy and clock.now_ms() + backoff_ms <= deadline_ms:
                # The markers of the previous transaction are being written. This ends sooner than a retry of the client would come.
                self._environment.supervisor.call_later(backoff_ms / 1000, "verification of a transaction", ask)
                return
            done({key: _producer_error(code, support) for key, code in results.items()})

        ask()

    def _ask(self, verification: Verification, done: OnVerified) -> None:
        leader = self._host.topic.leader_of(verification.transactional_id)
        broker = None if leader is None else self._metadata.image.brokers.get(leader)
        if leader is not None and broker is not None and not broker.fenced:
            if leader == self._node_id:
                self._host.add_or_verify(verification, done)
                return
            endpoint = broker.listeners.get(self._host.listener)
            if endpoint is not None:
                self._ask_remote(endpoint[0], endpoint[1], verification, done)
                return
        done(dict.fromkeys(sorted(verification.partitions), ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _ask_remote(self, host: str, port: int, verification: Verification, done: OnVerified) -> None:
        def answered(response: Any, error: Exception | None) -> None:
            if error is not None or response.error_code:
                code = ErrorCode.NETWORK_EXCEPTION if error is not None else ErrorCode(response.error_code)
                done(dict.fromkeys(sorted(verification.partitions), code))
                return
            results = dict.fromkeys(sorted(verification.partitions), ErrorCode.UNKNOWN_SERVER_ERROR)
            for transaction in response.results_by_transaction:
                for topic in transaction.topic_results:
                    for p in topic.results_by_partition:
                        results[topic.name, p.partition_index] = ErrorCode(p.partition_error_code)
            done(results)

        self._peers.send(host, port, _request(verification), answered)


def _request(verification: Verification) -> AddPartitionsToTxnRequest:
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=verification.transactional_id,
        producer_id=verification.producer_id,
        producer_epoch=verification.producer_epoch,
        verify_only=not verification.adds,
        topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=indexes)
            for topic, indexes in by_topic(verification.partitions)
        ],
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


_RETRIABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        # This broker leads the partition, but the coordinator's metadata do not have it yet.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)


def _producer_error(code: ErrorCode, support: Support) -> ErrorCode:
    """Translate an error for a producer with this support. NOT_ENOUGH_REPLICAS makes every producer retry without asking for metadata."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and support is Support.OLD:
        return ErrorCode.INVALID_TXN_STATE
    if code in _RETRIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and support is not Support.ADDS):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code
