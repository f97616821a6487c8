"""The table of faults: how many were planted into copies of authentic logs, found, and named rightly; and alarms without a fault.

usage: PYTHONPATH=.:tests python tests/bench/audit_faults.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from helpers.log_fault_clusters import write_own_logs
from helpers.log_fault_table import TABLE

from minikafka.spark.audit import AuditOptions, run_audit
from minikafka.spark.engine_local import LocalEngine


def main() -> None:
    engine = LocalEngine(1)
    print("| authentic logs of | planted | found | named rightly | alarms without a fault |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as own:
        write_own_logs(Path(own))
        for name, build, faults in TABLE:
            found = named = 0
            for fault in faults:
                with tempfile.TemporaryDirectory() as directory:
                    cluster = build(Path(directory))
                    fault.plant(cluster)
                    acked = tuple(cluster.acked)
                    options = AuditOptions(level=fault.level, topics=cluster.topics, acked=acked, compacted=cluster.compacted)
                    serious = [one for one in run_audit(cluster.paths, engine, options).findings.kept if one.level != "note"]
                    right = [one for one in serious if one.check in fault.expected]
                    blamed = {broker for one in serious for broker in one.brokers}
                    found += bool(serious)
                    named += bool(right) and (not fault.brokers or blamed == set(fault.brokers))
                    if not right:
                        print("missed:", name, fault.name, [one.check for one in serious])
            alarms = 0
            for level in ("batches", "records"):
                with tempfile.TemporaryDirectory() as directory:
                    cluster = build(Path(directory))
                    result = run_audit(cluster.paths, engine, AuditOptions(level=level, topics=cluster.topics, compacted=cluster.compacted))
                    alarms += sum(one.level != "note" for one in result.findings.kept)
            print(f"| {name} | {len(faults)} | {found} | {named} | {alarms} |")


if __name__ == "__main__":
    main()
