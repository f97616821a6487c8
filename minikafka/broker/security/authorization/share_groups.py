"""Guards of the APIs of share groups (KafkaApis)."""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.broker.security.authorization.cluster import on_cluster
from minikafka.broker.security.authorization.guard import Guard
from minikafka.core.authorizer.acl import Operation
from minikafka.wire.message import Request
from minikafka.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from minikafka.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from minikafka.wire.messages.read_share_group_state import ReadShareGroupStateRequest
from minikafka.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from minikafka.wire.messages.write_share_group_state import WriteShareGroupStateRequest

#: What brokers ask share coordinators is for brokers.
SHARE_GUARDS: Mapping[type[Request], Guard] = {
    **dict.fromkeys(
        (
            InitializeShareGroupStateRequest, ReadShareGroupStateRequest, WriteShareGroupStateRequest, DeleteShareGroupStateRequest,
            ReadShareGroupStateSummaryRequest,
        ),
        on_cluster(Operation.CLUSTER_ACTION),
    ),
}  # fmt: skip
