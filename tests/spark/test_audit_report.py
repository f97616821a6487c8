"""What the audit leaves behind: report.json, HTML, JUnit, Prometheus text, a second look, and one finding told at length."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from helpers import log_fault_clusters, log_faults
from helpers.log_fault_clusters import Cluster

from minikafka.cli.audit import audit
from minikafka.spark import report as reporting
from minikafka.spark.audit import AuditOptions, run_audit
from minikafka.spark.engine_local import LocalEngine

TOPICS = ("--topic", "rep")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(audit, [*arguments, "--processes", "1"])


@pytest.fixture
def forked(tmp_path: Path) -> Cluster:
    cluster = log_fault_clusters.replicated(tmp_path / "cluster")
    log_faults.rewritten(12, 18, None)(cluster)
    return cluster


def report_of(cluster: Cluster, **options: Any) -> dict[str, Any]:
    return reporting.build(run_audit(cluster.paths, LocalEngine(1), AuditOptions(topics=("rep",), **options)))


def test_the_report_names_offset_epochs_majority_states_and_bytes(forked: Cluster) -> None:
    report = json.loads(json.dumps(report_of(forked)))
    (partition,) = report["partitions"]
    assert (partition["first_divergent_offset"], partition["replica_states"]) == (24, {"1": "divergent", "2": "match", "3": "match"})
    assert partition["assigned"]["elr"] == ["3"]
    finding = report["findings"][0]
    assert finding["details"]["majority"] == ["2", "3"] and finding["details"]["last_common_epoch"] == 2
    assert [side["epoch"] for side in finding["details"]["sides"]] == [1, 1, 1] and finding["remedy"]
    one, two = finding["details"]["hex"]
    assert one["bytes"] != two["bytes"] and len(one["bytes"]) == len(two["bytes"]) and one["start"] == two["start"]


class _Balanced(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[Any]) -> None:
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[Any]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open[-1] in {"circle", "path", "rect"} and tag not in {"circle", "path", "rect"}:
            self.open.pop()
        assert self.open.pop() == tag


def test_the_page_is_one_file_that_loads_nothing(forked: Cluster) -> None:
    page = reporting.html(report_of(forked))
    parser = _Balanced()
    parser.feed(page)
    assert parser.open == []
    assert not re.search(r"https?://|<script|<link|@import|url\(", page)
    for part in ("FAIL", "rep-0", "replica-differs", "Likely:", "What to do:", "<svg class='ribbon'", "class='hex'", "epoch 2"):
        assert part in page


def test_names_from_outside_cannot_break_the_page(forked: Cluster) -> None:
    report = report_of(forked)
    report["cluster"]["id"] = "<script>alert(1)</script>"
    report["findings"][0]["message"] = "</p><script>x"
    assert "<script" not in reporting.html(report)


def test_junit_has_one_test_a_partition(forked: Cluster) -> None:
    suite = ElementTree.fromstring(reporting.junit(report_of(forked)))
    assert suite.get("failures") == "1"
    failed = [case for case in suite if case.find("failure") is not None]
    assert [case.get("name") for case in failed] == ["rep-0"]
    assert 'verdicts{verdict="DIVERGENT"} 1' in reporting.prometheus(report_of(forked))


def test_a_second_look_takes_only_the_partitions_with_findings(forked: Cluster, tmp_path: Path) -> None:
    first = run(*forked.paths, *TOPICS, "--report", str(tmp_path / "report"))
    assert first.exit_code == 1
    written = {path.name for path in (tmp_path / "report").iterdir()}
    assert written >= {"report.json", "report.html", "summary.md", "junit.xml", "metrics.prom"}
    again = run("--rerun", str(tmp_path / "report"), "-o", "json")
    assert again.exit_code == 1 and [one["topic"] for one in json.loads(again.output)["partitions"]] == ["rep"]
    for path in ("leader-epoch-checkpoint", "00000000000000000000.log"):
        (forked.files(1) / path).write_bytes((forked.files(2) / path).read_bytes())
    healed = run("--rerun", str(tmp_path / "report"))
    assert healed.exit_code == 0 and "AUDIT PASS" in healed.output


def test_explain_shows_both_sides(forked: Cluster, tmp_path: Path) -> None:
    run(*forked.paths, *TOPICS, "--report", str(tmp_path / "report"))
    reported = run("explain", str(tmp_path / "report"), "f1")
    assert reported.exit_code == 0
    assert "  controller: replicas 2, 3, 1; in sync none; leader none in epoch 4\n" in reported.output
    for part in ("REPLICA-DIFFERS".lower(), "broker 1 around offset 24", "broker 3 around offset 24", "epochs 0@0 1@24 2@39", "key 'k12'"):
        assert part in reported.output


def test_wrong_use_is_reported_in_one_line(tmp_path: Path, forked: Cluster) -> None:
    (tmp_path / "other.json").write_text("{}")
    run(*forked.paths, *TOPICS, "--report", str(tmp_path / "report"))
    for arguments, text in (
        ((), "give log directories"),
        (("explain", "x"), "usage:"),
        (("explain", str(tmp_path / "none"), "F1"), "No such file"),
        (("explain", str(tmp_path / "other.json"), "F1"), "not a report"),
        (("explain", str(tmp_path / "report"), "F99"), "no finding F99"),
        (("--rerun", str(tmp_path / "other.json")), "not a report"),
        (("--bootstrap-server", "localhost:none"), "not host:port"),
        (("--bootstrap-server", "localhost:1", "--command-config", str(tmp_path / "none")), "No such file"),
        ((str(forked.paths[0]), "--acked", str(tmp_path / "none")), "No such file"),
    ):
        result = run(*arguments)
        # What an option's value is refused for stands in the last line, behind the lines that say how to ask for help.
        *before, last = [line for line in result.output.splitlines() if line]
        assert result.exit_code == 2 and text in last, result.output
        assert not before or before[0].startswith("Usage: "), result.output


def test_a_cluster_that_does_not_answer_is_incomplete() -> None:
    result = run("--bootstrap-server", "127.0.0.1:1")
    assert result.exit_code == 3 and "cannot be reached" in result.output and len(result.output.splitlines()) == 1
