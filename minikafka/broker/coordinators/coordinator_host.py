"""The common part of all coordinators of a broker: the topic, and the shards of the partitions that this broker leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from minikafka.broker.coordinators.runtime import CoordinatorKind, CoordinatorRuntime
from minikafka.core.coordinator.shard import Shard

if TYPE_CHECKING:
    from minikafka.broker.coordinators.coordinator_topic import CoordinatorTopic
    from minikafka.broker.coordinators.loader import StepQueue
    from minikafka.broker.environment import Environment
    from minikafka.broker.partitions.replica_manager import ReplicaManager

S = TypeVar("S", bound=Shard)


class CoordinatorHost(Generic[S]):
    """Base class of the runtime's plug-ins. A subclass carries out the effects of its shards other than appends (`CoordinatorKind`)."""

    def __init__(
        self, kind: CoordinatorKind[S], environment: Environment, replicas: ReplicaManager, topic: CoordinatorTopic, steps: StepQueue
    ) -> None:
        self.topic = topic
        self._supervisor = environment.supervisor
        self._periodic: dict[str, asyncio.TimerHandle] = {}
        self.runtime: CoordinatorRuntime[S] = CoordinatorRuntime(kind, environment, replicas, topic, steps)
        #: How long it took to load each partition, in ms.
        self.loads = self.runtime.loads

    async def stop(self) -> None:
        """Answer all waiting requests and forget the shards."""
        for timer in self._periodic.values():
            timer.cancel()
        self.runtime.stop()

    def every(self, interval_ms: int, name: str, work: Callable[[int, S], Iterator[None]]) -> None:
        """Run `work(index, shard)` in steps on each loaded shard every `interval_ms`; the first run is after `interval_ms`. A failure
        ends only the shard in which it happens."""

        def run() -> None:
            self.every(interval_ms, name, work)
            for index, shard in self.runtime.loaded():
                with self._supervisor.watching(name, ends=self.runtime.ends(index, shard)):
                    self.run_steps(index, shard, work(index, shard))

        self._periodic[name] = self._supervisor.call_later(interval_ms / 1000, name, run)

    def partition_of(self, key: str) -> int | None:
        """The partition that coordinates a group or transactional id; None while the topic does not exist."""
        return self.topic.partition_of(key)

    async def ensure_topic(self) -> None:
        """Create the topic if it is missing, and wait until it exists or the time is up."""
        await self.topic.ensure()

    def shard(self, key: str) -> tuple[int, S]:
        """The shard of a group or transactional id. Raises COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        return self.runtime.shard(key)

    def is_in_doubt(self, key: str) -> bool:
        """Whether this broker leads the key's partition as far as it knows, but may have been replaced."""
        return self.runtime.is_in_doubt(key)

    def shards(self) -> list[S]:
        """Every shard, in partition order. Raises COORDINATOR_LOAD_IN_PROGRESS while one is loading."""
        return self.runtime.shards()

    def loaded_shards(self) -> list[S]:
        """The shards that are loaded, in partition order."""
        return self.runtime.loaded_shards()

    def run_effects(self, index: int, shard: S) -> None:
        """Carry out the effects that the shard asks for."""
        self.runtime.run(index, shard)

    def run_steps(self, index: int, shard: S, work: Iterator[None]) -> None:
        """Let the shard do long work in steps."""
        self.runtime.run_steps(index, shard, work)
