"""Imports the code of a coordinator's shards when it is needed for the first time."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikafka.broker.environment import Environment
    from minikafka.broker.partitions.replica_manager import OnLeadership


class LateImport:
    """Imports a module in a thread, since that takes longer than a turn of the event loop may take. Many brokers never need it."""

    def __init__(self, module: str, environment: Environment) -> None:
        self._module = module
        self._run_blocking = environment.run_blocking
        self._supervisor = environment.supervisor
        self._is_under_way = False
        #: Partition -> leader epoch and whether this broker leads it: changes that wait for the import.
        self._held: dict[int, tuple[int, bool]] = {}
        self._changed: OnLeadership

    def begin(self) -> None:
        """Import the module, unless it is there."""
        if not self._is_under_way and self._module not in sys.modules:
            self._is_under_way = True
            self._supervisor.start(self._import(), f"the import of {self._module}")

    def before(self, changed: OnLeadership) -> OnLeadership:
        """Like `changed`, but the module is imported first. Of the changes of a partition that come meanwhile, only the last is passed
        on."""
        self._changed = changed
        return self._change

    def _change(self, index: int, leader_epoch: int, is_leader: bool) -> None:
        self.begin()
        if self._is_under_way:
            self._held[index] = leader_epoch, is_leader
        else:
            self._changed(index, leader_epoch, is_leader)

    async def _import(self) -> None:
        await self._run_blocking(importlib.import_module, self._module)
        self._is_under_way = False
        held, self._held = self._held, {}
        for index, (leader_epoch, is_leader) in held.items():
            self._changed(index, leader_epoch, is_leader)
