"""The parts of a log."""

from __future__ import annotations

from minikafka.late_dataclass import dataclass
from minikafka.storage.durability import Durability
from minikafka.storage.epoch_cache import EpochCache
from minikafka.storage.log_disk import LogDisk
from minikafka.storage.log_segments import LogSegments
from minikafka.storage.producer_state import ProducerStateManager
from minikafka.storage.watermarks import Watermarks


@dataclass(frozen=True, slots=True)
class LogParts:
    """The objects that hold the state of a log. Appends, rolls and truncations change them."""

    disk: LogDisk
    epochs: EpochCache
    producers: ProducerStateManager
    watermarks: Watermarks
    segments: LogSegments
    durability: Durability
