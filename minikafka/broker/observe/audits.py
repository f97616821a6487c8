"""A scheduled `minikafka audit` of the running cluster, in a process of its own that yields to the broker.

One broker of the cluster does it: the one with the smallest id of those in service. So every broker may have the properties, and the
audit goes on when that one dies. The audit reads every replica over the wire as any client would; it shares no code with the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from typing import TYPE_CHECKING

from minikafka.broker.observe.last_audit import LastAudit
from minikafka.broker.supervise import Ends, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable

    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.core.metadata.image import MetadataImage

logger = logging.getLogger("minikafka.audit")
NICENESS = 10
STOP_S = 5.0
OUTPUT_BYTES_MAX = 2000
PASSED, DIFFERS = 0, 1


class AuditSchedule:
    """Runs an audit every `minikafka.audit.interval.ms`. `runs` and `failures` count since the start of the node."""

    def __init__(
        self, config: BrokerConfig, image: Callable[[], MetadataImage], address: Callable[[], str], supervisor: Supervisor
    ) -> None:
        """`address` gives host:port of this broker's listener between brokers."""
        self._config = config
        self._image = image
        self._address = address
        self._supervisor = supervisor
        self._last = LastAudit(config.minikafka_audit_report_dir)
        self._task: asyncio.Task[None] | None = None
        self.runs = self.failures = 0

    def start(self) -> None:
        """Begin to wait for the first run, when the node has an interval and is a broker."""
        if self._config.minikafka_audit_interval_ms > 0 and self._config.is_broker:
            self._task = self._supervisor.start(self._work(), "the audit schedule")

    async def stop(self) -> None:
        """End a run that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(self._config.minikafka_audit_interval_ms / 1000)
            if not self._is_ours():
                continue
            try:
                await self._run()
            except OSError as error:
                self.failures += 1
                logger.error("the scheduled audit cannot be started: %s", error)
            except Exception as error:
                self.failures += 1
                self._supervisor.caught("the scheduled audit", error, Ends("audit", logger.error))

    def _is_ours(self) -> bool:
        image = self._image()
        in_service = [broker.broker_id for broker in image.brokers.values() if not broker.fenced]
        return bool(in_service) and min(in_service) == self._config.node_id

    def _arguments(self) -> list[str]:
        config = self._config
        arguments = ["audit", "--bootstrap-server", self._address(), "--report", str(config.minikafka_audit_report_dir), "--quiet"]
        arguments += ["--processes", "1", "-o", "table"]
        if config.minikafka_audit_command_config:
            arguments += ["--command-config", config.minikafka_audit_command_config]
        return arguments

    async def _run(self) -> None:
        nothing, pipe, joined = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
        command = [sys.executable, "-m", "minikafka", *self._arguments()]
        process = await asyncio.create_subprocess_exec(*command, stdin=nothing, stdout=pipe, stderr=joined)
        try:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
            output, _ = await process.communicate()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), STOP_S)
            raise
        self.runs += 1
        said = output[-OUTPUT_BYTES_MAX:].decode(errors="replace").strip() or f"it ended with status {process.returncode}"
        if process.returncode == PASSED:
            logger.info("%s", said.splitlines()[-1])
            return
        self.failures += 1
        report = f"; see {self._config.minikafka_audit_report_dir}/report.html" if process.returncode == DIFFERS else ""
        found = ", ".join(f"{check} ({count})" for check, count in ((self._last.get() or {}).get("checks") or {}).items())
        logger.error("%s%s%s", said.splitlines()[-1], f": {found}" if found else "", report)
