"""Generates the reference page of metrics from the table: `python -m minikafka.broker.observe.metrics.reference`."""

from __future__ import annotations

from minikafka.broker.observe.metrics.table import METRICS, WITHOUT_DATA, Metric

INTRODUCTION = """\
# Metrics

Each node serves these metrics at `/metrics`, in Prometheus' format, if `minikafka.http.port` is set. In containers it is 9404. The port has
neither TLS nor a login. It listens on 127.0.0.1, or on the address in `minikafka.http.host`; in containers, on every address.

The metrics mean what Kafka's mean, and have the names that dashboards expect. `minikafka.metrics.dialects` chooses the names. It may list
several dialects:

- `s` (the default): the names that Strimzi's rules for the JMX exporter produce;
- `c`: those of Confluent's jmx-monitoring-stacks;
- `r`: those of Strimzi's metrics reporter;
- `k`: those that kafbat's Kafka UI needs and the others lack; use it together with another one.

Where dialects differ, the tables list each name. Summaries have quantiles from 0.50 to 0.999, of a sample of the last five minutes, and a
`_count` of all. This page is generated from the table that defines the metrics.
"""


def _names(metric: Metric) -> str:
    spelled: dict[str, list[str]] = {}
    for dialect, name in metric.names.items():
        spelled.setdefault(name, []).append(dialect)
    if len(spelled) == 1 and len(metric.names) > 1:
        return f"`{metric.key}`"
    return "<br>".join(f"`{name}` ({', '.join(dialects)})" for name, dialects in spelled.items())


def reference_page() -> str:
    """Markdown."""
    lines = INTRODUCTION.splitlines()
    section = ""
    for metric in METRICS.values():
        if metric.section != section:
            section = metric.section
            lines += ["", f"## {section}", "", "| metric | meaning | kind | labels |", "|---|---|---|---|"]
        labels = ", ".join(metric.labels)
        lines.append(f"| {_names(metric)} | {metric.help} | {metric.kind} | {labels} |")
    lines += [
        "",
        "## The process",
        "",
        "`process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_virtual_memory_bytes`, `process_open_fds`,",
        "`process_max_fds`, `process_start_time_seconds`, `python_info` and `python_gc_*` come from Prometheus' own client library.",
        "",
        "## Metrics of stock dashboards that a broker does not have",
        "",
        "| metrics | reason |",
        "|---|---|",
    ]
    lines += [f"| `{pattern}` | {reason} |" for pattern, reason in WITHOUT_DATA.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(reference_page(), end="")
