"""AlterPartition (API key 56)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int8, int16, int32, int64, uuid


class _BrokerState(Struct):
    broker_id: int = field(int32, "3+")
    broker_epoch: int = field(int64, "3+", default=-1)


class _AlterPartitionRequestPartitionData(Struct):
    partition_index: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+")
    new_isr: list[int] = field(array(int32), "0-2")
    new_isr_with_epochs: list[_BrokerState] = field(array(_BrokerState), "3+")
    leader_recovery_state: int = field(int8, "1+")
    partition_epoch: int = field(int32, "0+")


class _AlterPartitionRequestTopicData(Struct):
    topic_id: bytes = field(uuid, "2+", ignorable=True)
    partitions: list[_AlterPartitionRequestPartitionData] = field(array(_AlterPartitionRequestPartitionData), "0+")


class AlterPartitionRequest(Request, api_key=56, versions="2-3", flexible="0+", listeners=("controller",)):
    """AlterPartitionRequest, versions 2-3."""

    BrokerState: TypeAlias = _BrokerState
    PartitionData: TypeAlias = _AlterPartitionRequestPartitionData
    TopicData: TypeAlias = _AlterPartitionRequestTopicData

    broker_id: int = field(int32, "0+")
    broker_epoch: int = field(int64, "0+", default=-1)
    topics: list[_AlterPartitionRequestTopicData] = field(array(_AlterPartitionRequestTopicData), "0+")


class _AlterPartitionResponsePartitionData(Struct):
    partition_index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    leader_id: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+")
    isr: list[int] = field(array(int32), "0+")
    leader_recovery_state: int = field(int8, "1+", ignorable=True)
    partition_epoch: int = field(int32, "0+")


class _AlterPartitionResponseTopicData(Struct):
    topic_id: bytes = field(uuid, "2+", ignorable=True)
    partitions: list[_AlterPartitionResponsePartitionData] = field(array(_AlterPartitionResponsePartitionData), "0+")


class AlterPartitionResponse(Response, api_key=56, versions="2-3", flexible="0+"):
    """AlterPartitionResponse, versions 2-3."""

    PartitionData: TypeAlias = _AlterPartitionResponsePartitionData
    TopicData: TypeAlias = _AlterPartitionResponseTopicData

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    topics: list[_AlterPartitionResponseTopicData] = field(array(_AlterPartitionResponseTopicData), "0+")
