"""DescribeCluster on a controller listener."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.broker.admin.cluster import ENDPOINT_CONTROLLER, ControllerClusterHandlers
from minikafka.core.metadata.image import METADATA_VERSION
from minikafka.core.metadata.versions import REGISTERED_CONTROLLERS
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.describe_cluster import DescribeClusterRequest


@pytest.mark.parametrize("is_registered", [True, False])
def test_controllers_are_described_once_they_register(is_registered: bool) -> None:
    """An admin client of a controller asked for a minute in a cluster of before 3.7, where Apache Kafka refuses."""
    controller = SimpleNamespace(controller_id=3000, listeners={"CONTROLLER": ("127.0.0.1", 9093)})
    level = REGISTERED_CONTROLLERS if is_registered else REGISTERED_CONTROLLERS - 1
    image = SimpleNamespace(features={METADATA_VERSION: level}, controllers={3000: controller} if is_registered else {})
    metadata, raft, context = SimpleNamespace(image=image), SimpleNamespace(leader_id=3000), SimpleNamespace(listener="CONTROLLER")
    handlers: Any = ControllerClusterHandlers
    served = handlers(metadata, raft, "cluster").describe_cluster(context, DescribeClusterRequest(endpoint_type=ENDPOINT_CONTROLLER))
    assert served.error_code == (ErrorCode.NONE if is_registered else ErrorCode.UNSUPPORTED_VERSION)
    assert [broker.broker_id for broker in served.brokers] == ([3000] if is_registered else [])
