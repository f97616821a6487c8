"""What every coordinator of a broker is to those who ask it: its topic, and the shards of the partitions that this broker leads."""

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
    """The head of a plug-in of the runtime; what its shards ask for beside appends, a subclass carries out (`CoordinatorKind`)."""

    def __init__(
        self, kind: CoordinatorKind[S], environment: Environment, replicas: ReplicaManager, topic: CoordinatorTopic, steps: StepQueue
    ) -> None:
        self.topic = topic
        self._supervisor = environment.supervisor
        self._periodic: dict[str, asyncio.TimerHandle] = {}
        self.runtime: CoordinatorRuntime[S] = CoordinatorRuntime(kind, environment, replicas, topic, steps)
        #: How long loading a partition took, ms.
        self.loads = self.runtime.loads

    async def stop(self) -> None:
        """Answer what waits and forget the shards."""
        for timer in self._periodic.values():
            timer.cancel()
        self.runtime.stop()

    def every(self, interval_ms: int, name: str, work: Callable[[int, S], Iterator[None]]) -> None:
        """Have each shard that is loaded do `work(index, shard)` in steps, again and again; first after `interval_ms`. What fails ends
        the shard in which it does, and no other."""

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
        """Create the topic when it is missing, and wait until it is there or time is up."""
        await self.topic.ensure()

    def shard(self, key: str) -> tuple[int, S]:
        """The shard of a group or transactional id. Raises COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        return self.runtime.shard(key)

    def is_in_doubt(self, key: str) -> bool:
        """Whether this broker is the coordinator for all that it knows, and may have been replaced long ago."""
        return self.runtime.is_in_doubt(key)

    def shards(self) -> list[S]:
        """Every shard, in partition order. Raises COORDINATOR_LOAD_IN_PROGRESS while one is loading."""
        return self.runtime.shards()

    def loaded_shards(self) -> list[S]:
        """Those that are loaded, whatever the others do, in partition order."""
        return self.runtime.loaded_shards()

    def run_effects(self, index: int, shard: S) -> None:
        """Carry out what the shard asks for."""
        self.runtime.run(index, shard)

    def run_steps(self, index: int, shard: S, work: Iterator[None]) -> None:
        """Have the shard do long work in steps."""
        self.runtime.run_steps(index, shard, work)
