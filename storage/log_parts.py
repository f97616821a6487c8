"""What a log is composed of."""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.storage.durability import Durability
from minikafka.storage.epoch_cache import EpochCache
from minikafka.storage.log_disk import LogDisk
from minikafka.storage.log_segments import LogSegments
from minikafka.storage.producer_state import ProducerStateManager
from minikafka.storage.watermarks import Watermarks


@dataclass(frozen=True, slots=True)
class LogParts:
    """The objects that hold the state of a log, for those who change it: appends, rolls, truncations."""

    disk: LogDisk
    epochs: EpochCache
    producers: ProducerStateManager
    watermarks: Watermarks
    segments: LogSegments
    durability: Durability
