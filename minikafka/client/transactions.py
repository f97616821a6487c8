"""Admin requests for transactions (KIP-664)."""

from __future__ import annotations

from functools import partial
from typing import Any

from minikafka.client.admin import Admin
from minikafka.client.cluster import BrokerInfo
from minikafka.client.errors import refusal
from minikafka.client.group import TRANSACTION, UNSETTLED_COORDINATOR, at_coordinator, find_coordinator
from minikafka.client.leaders import at_leader
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.describe_producers import DescribeProducersRequest
from minikafka.wire.messages.describe_transactions import DescribeTransactionsRequest
from minikafka.wire.messages.init_producer_id import InitProducerIdRequest
from minikafka.wire.messages.list_transactions import ListTransactionsRequest
from minikafka.wire.messages.write_txn_markers import WriteTxnMarkersRequest


async def list_transactions(admin: Admin, *, duration_ms: int = -1, pattern: str | None = None) -> list[tuple[int, Any]]:
    """(coordinator, ListTransactionsResponse.TransactionState) of every broker. Raises BrokerError."""
    cluster = await admin.describe_cluster()
    found = []
    request = ListTransactionsRequest(duration_filter=duration_ms, transactional_id_pattern=pattern)
    for node_id in sorted(broker.node_id for broker in cluster.brokers):
        found += [(node_id, state) for state in await admin.cluster.retry(partial(_transactions_of, admin, request, node_id))]
    return found


async def _transactions_of(admin: Admin, request: ListTransactionsRequest, node_id: int) -> list[Any] | None:
    """The transactions that a broker coordinates; None while it reads their log."""
    response: Any = await admin.cluster.request(request, node_id)
    code = ErrorCode(response.error_code)
    if code in UNSETTLED_COORDINATOR:
        return None
    if code:
        raise refusal(code, f"listing the transactions of broker {node_id}")
    return list(response.transaction_states)


async def describe_transaction(admin: Admin, transactional_id: str) -> tuple[int, Any]:
    """(coordinator, DescribeTransactionsResponse.TransactionState). Raises BrokerError."""

    async def ask(coordinator: BrokerInfo) -> tuple[int, Any]:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        response: Any = await admin.cluster.request(request, coordinator.node_id)
        state = response.transaction_states[0]
        if state.error_code:
            raise refusal(state.error_code, f"describing transactional id {transactional_id}")
        return coordinator.node_id, state

    return await at_coordinator(admin.cluster, transactional_id, ask, kind=TRANSACTION)


async def describe_producers(admin: Admin, topic: str, index: int, node_id: int | None = None) -> list[Any]:
    """The DescribeProducersResponse.ProducerState entries of a partition, from its leader or the given replica. Raises BrokerError."""
    wanted = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[index])

    async def ask(replica: int) -> list[Any]:
        response: Any = await admin.cluster.request(DescribeProducersRequest(topics=[wanted]), replica)
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise refusal(answer.error_code, f"describing the producers of {topic}-{index}", answer.error_message)
        return list(answer.active_producers)

    return await (at_leader(admin.cluster, topic, index, ask) if node_id is None else ask(node_id))


async def force_terminate(admin: Admin, transactional_id: str, timeout_ms: int = 60_000) -> None:
    """Abort the open transaction of an id and fence its producer, as a new producer would (InitProducerId). Raises BrokerError."""

    async def ask() -> Any:
        coordinator = (await find_coordinator(admin.cluster, transactional_id, kind=TRANSACTION)).node_id
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        response: Any = await admin.cluster.request(request, coordinator)
        code = ErrorCode(response.error_code)
        if code is ErrorCode.NONE:
            return True
        # The coordinator aborts the open transaction first.
        if code is ErrorCode.CONCURRENT_TRANSACTIONS or code.retriable:
            return None
        raise refusal(code, f"ending the transaction of {transactional_id}")

    await admin.cluster.retry(ask)


async def abort_transaction(admin: Admin, topic: str, index: int, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
    """Write an abort marker directly into one partition, bypassing the coordinator. Raises BrokerError."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        coordinator_epoch=coordinator_epoch,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
    )

    async def ask(leader: int) -> None:
        response: Any = await admin.cluster.request(WriteTxnMarkersRequest(markers=[marker]), leader)
        code = ErrorCode(response.markers[0].topics[0].partitions[0].error_code)
        if code is not ErrorCode.NONE:
            raise refusal(code, f"aborting the transaction of producer {producer_id} in {topic}-{index}")

    await at_leader(admin.cluster, topic, index, ask)
