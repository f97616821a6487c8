"""What Prometheus makes of a scrape, as far as docker/prometheus.yml asks for it: target labels, relabelling of targets and of samples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Labels = dict[str, str]
SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
PAIR = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def samples(text: str) -> Iterator[Labels]:
    """The labels of each sample of an exposition, the name as `__name__`."""
    for line in text.splitlines():
        found = SAMPLE.match(line)
        if found is not None:
            yield {"__name__": found[1], **dict(PAIR.findall(found[2] or ""))}


def relabelled(labels: Labels, rules: list[dict[str, Any]]) -> Labels | None:
    """The labels after the rules, None when they are dropped."""
    labels = dict(labels)
    for rule in rules:
        source = ";".join(labels.get(name, "") for name in rule.get("source_labels", ()))
        match = re.fullmatch(rule.get("regex", "(.*)"), source, re.S)
        action = rule.get("action", "replace")
        if action == "keep" and match is None:
            return None
        if action == "drop" and match is not None:
            return None
        if action == "replace" and match is not None:
            template = re.sub(r"\$(\d)", r"\\\1", rule.get("replacement", "$1"))
            labels[rule["target_label"]] = match.expand(template)
        assert action in ("keep", "drop", "replace"), f"this test knows no relabelling of the kind {action}"
    return labels


def series(config: dict[str, Any], expositions: dict[str, str]) -> list[Labels]:
    """All series that `config` makes of the expositions of its targets, by address."""
    found = []
    for job in config["scrape_configs"]:
        for static in job["static_configs"]:
            for address in static["targets"]:
                before = {"job": job["job_name"], "instance": address, "__address__": address, **static.get("labels", {})}
                target = relabelled(before, job.get("relabel_configs", []))
                assert target is not None
                target.pop("__address__")
                for sample in samples(expositions[address]):
                    after = relabelled({**sample, **target}, job.get("metric_relabel_configs", []))
                    if after is not None:
                        found.append(after)
    return found
