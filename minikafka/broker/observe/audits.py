"""Scheduled runs of `minikafka audit` on the running cluster, each in its own process with a low priority.

The broker in service with the smallest id runs them. So all brokers may have the properties, and another one takes over when it dies. The
audit reads every replica over the wire like any client, and shares no code with the broker.
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
from minikafka.net.tasks import within

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
    """Runs an audit every `minikafka.audit.interval.ms`. `runs` and `failures` are counts since the start of the node."""

    def __init__(
        self, config: BrokerConfig, image: Callable[[], MetadataImage], address: Callable[[], str], supervisor: Supervisor
    ) -> None:
        """`address` returns host:port of this broker's inter-broker listener."""
        self._config = config
        self._image = image
        self._address = address
        self._supervisor = supervisor
        self._last = LastAudit(config.minikafka_audit_report_dir)
        self._task: asyncio.Task[None] | None = None
        self.runs = self.failures = 0

    def start(self) -> None:
        """Schedule the first run, if the node is a broker and has an interval."""
        if self._config.minikafka_audit_interval_ms > 0 and self._config.is_broker:
            self._task = self._supervisor.start(self._work(), "the audit schedule")

    async def stop(self) -> None:
        """Stop the schedule and the current run."""
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
                logger.error("could not start the scheduled audit: %s", error)
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
                await within(STOP_S, process.wait())
            raise
        self.runs += 1
        text = output[-OUTPUT_BYTES_MAX:].decode(errors="replace").strip() or f"the audit ended with status {process.returncode}"
        if process.returncode == PASSED:
            logger.info("%s", text.splitlines()[-1])
            return
        self.failures += 1
        report = f"; see {self._config.minikafka_audit_report_dir}/report.html" if process.returncode == DIFFERS else ""
        found = ", ".join(f"{check} ({count})" for check, count in ((self._last.get() or {}).get("checks") or {}).items())
        logger.error("%s%s%s", text.splitlines()[-1], f": {found}" if found else "", report)
