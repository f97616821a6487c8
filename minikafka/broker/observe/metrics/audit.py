"""The newest audit in `minikafka.audit.report.dir`, and this node's scheduled audits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.broker.observe.metrics.exposition import labels

if TYPE_CHECKING:
    from minikafka.broker.observe.audits import AuditSchedule
    from minikafka.broker.observe.last_audit import LastAudit
    from minikafka.broker.observe.metrics.exposition import Page


NAMES = ("last_run_timestamp_seconds", "exit_code", "batches_compared", "bytes_compared", "seconds")


def audit(page: Page, last: LastAudit, schedule: AuditSchedule) -> None:
    """Writes nothing about the last run if there is none: an absent metric must not look like a passed audit."""
    page.one("minikafka_audit_runs_total", schedule.runs)
    page.one("minikafka_audit_runs_failed_total", schedule.failures)
    run = last.get()
    values = {
        "last_run_timestamp_seconds": run["finished_ms"] / 1000, "exit_code": run["exit_code"], "batches_compared": run["batches"],
        "bytes_compared": run["bytes"], "seconds": run["seconds"],
    } if run is not None else dict.fromkeys(NAMES)  # fmt: skip
    for name, value in values.items():
        page.many(f"minikafka_audit_{name}", [] if value is None else [("", value)])
    rows = [(labels(result=result), run[result]) for result in ("match", "mismatch", "incomplete")] if run is not None else []
    page.many("minikafka_audit_partitions", rows)
