"""The topics of a cluster that has just started."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from minikafka.client.errors import BrokerError
from minikafka.testing.wait import POLL_S, LoadAdjustedDeadline
from minikafka.wire.errors import ErrorCode


def create_first(cluster: Any, name: str, spec: Mapping[str, Any], timeout_s: float) -> None:
    """Create a topic in a cluster that had no such topic before. If it exists nevertheless, an earlier attempt whose response came too
    late has created it. `cluster` is an EmbeddedCluster. Raises BrokerError, ClusterError."""
    deadline = LoadAdjustedDeadline(timeout_s)
    while True:
        try:
            cluster.create_topic(name, **spec)
            return
        except BrokerError as error:
            # Where the machine is starved, brokers that have just come into service may be fenced for a moment.
            are_enough = (spec.get("replication_factor") or 1) <= len(cluster.brokers)
            if error.code is ErrorCode.INVALID_REPLICATION_FACTOR and are_enough and not deadline.is_over:
                time.sleep(POLL_S)
                continue
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            cluster.wait_healthy([name])
            (found,) = cluster.admin.call(lambda admin: admin.describe_topics([name]))
            sizes = {len(partition.replicas) for partition in found.partitions}
            if len(found.partitions) != spec.get("partitions", 1) or sizes != {spec.get("replication_factor") or max(sizes)}:
                raise
            return
