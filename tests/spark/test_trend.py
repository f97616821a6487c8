"""Runs over time, and figures as Prometheus' text files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from minikafka.cli.audit import audit
from minikafka.spark import trend
from minikafka.spark.textfile import exposition


def run(day: int, outcome: str = "PASS", **checks: int) -> dict[str, Any]:
    counts = dict.fromkeys(("partitions", "replicas", "batches_compared", "records_compared", "bytes_compared", "errors", "warnings"), day)
    return {"started": f"2026-11-{day:02d}T00:00:00.000Z", "seconds": 1.5, "outcome": outcome, **counts, "checks": checks}


def test_runs_are_kept_in_order_and_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trend, "RUNS_KEPT_MAX", 3)
    for day in range(1, 6):
        runs = trend.append(str(tmp_path), run(day))
    assert [one["partitions"] for one in runs] == [3, 4, 5] == [one["partitions"] for one in trend.read(str(tmp_path))]


def test_directories_of_single_days_are_one_trend_and_broken_lines_are_left_out(tmp_path: Path) -> None:
    for day in (9, 7, 8):
        (tmp_path / str(day)).mkdir()
        trend.append(str(tmp_path / str(day)), run(day))
    with (tmp_path / "8" / trend.RUNS).open("a") as file:
        file.write('{"started": "2026\n[1]\n{}\n')
    assert [one["partitions"] for one in trend.read(str(tmp_path))] == [7, 8, 9]


def test_the_command_shows_what_is_new_and_what_is_gone(tmp_path: Path) -> None:
    for one in (run(1), run(2, "FAIL", **{"batch-crc": 2, "replica-differs": 1}), run(3, "FAIL", **{"batch-crc": 1})):
        trend.append(str(tmp_path), one)
    shown = CliRunner().invoke(audit, ["trend", str(tmp_path)])
    assert shown.exit_code == 0
    lines = shown.output.splitlines()
    assert len(lines) == 4 and lines[2].endswith("+batch-crc +replica-differs") and lines[3].endswith("-replica-differs")
    rows = json.loads(CliRunner().invoke(audit, ["trend", str(tmp_path), "-o", "json"]).output)
    assert [row["changes"] for row in rows] == ["", "+batch-crc +replica-differs", "-replica-differs"]


def test_wrong_use_of_trend_is_reported(tmp_path: Path) -> None:
    no_report = "no audit report"
    for arguments, text in ((["trend"], "usage:"), (["trend", str(tmp_path)], no_report), (["trend", "/nowhere"], no_report)):
        result = CliRunner().invoke(audit, arguments)
        assert result.exit_code == 2 and text in result.output


def test_the_page_draws_runs_from_the_second_on() -> None:
    assert trend.html([run(1)]) == ""
    page = trend.html([run(1), run(2, "FAIL", **{"<script>": 1})])
    assert page.count("<rect") == 2 and "1 of 2 runs passed" in page and "<script" not in page


def test_a_text_file_is_what_prometheus_reads() -> None:
    text = exposition("p", [("rows", "Rows.", {(("topic", 'a"b\\c\nd'),): 3, (): 1.5})])
    (family,) = text_string_to_metric_families(text)
    assert (family.name, family.type, family.documentation) == ("p_rows", "gauge", "Rows.")
    assert [(sample.labels, sample.value) for sample in family.samples] == [({"topic": 'a"b\\c\nd'}, 3.0), ({}, 1.5)]


@pytest.mark.parametrize("word", ["explain", "trend"])
def test_a_directory_of_the_name_of_a_verb_is_audited(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "usage:" in CliRunner().invoke(audit, [word]).output
    (tmp_path / word).mkdir()
    (tmp_path / "other").mkdir()
    for arguments in ([word], [word, "other"], [word, "other", "F1x"], [f"./{word}"]):
        shown = CliRunner().invoke(audit, [*arguments, "--engine", "local"])
        assert "usage:" not in shown.output and f"{word}: no log directory" in shown.output and shown.exit_code != 0
    (tmp_path / word).rmdir()
    (tmp_path / word).write_bytes(b"no summary")
    shown = CliRunner().invoke(audit, ["--compare-summaries", word])
    assert f"{word} is not a summary" in shown.output


def test_a_verb_whose_arguments_follow_is_one_beside_a_directory_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`minikafka audit trend reports/` went on to audit a directory `trend` that happened to be there, and `reports/` beside it."""
    monkeypatch.chdir(tmp_path)
    for name in ("trend", "explain", "reports"):
        (tmp_path / name).mkdir()
    (tmp_path / "reports" / trend.RUNS).write_text(json.dumps(run(0)) + "\n")
    shown = CliRunner().invoke(audit, ["trend", "reports", "-o", "jsonl"])
    assert (shown.exit_code, json.loads(shown.stdout)["outcome"]) == (0, "PASS")
    assert "trend is also a directory here: to audit it, write ./trend" in shown.stderr
    shown = CliRunner().invoke(audit, ["explain", "reports", "F1"])
    assert "No such file" in shown.stderr and "explain is also a directory here" in shown.stderr
