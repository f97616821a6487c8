"""The audit command: exit statuses, output formats, errors for people."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from minikafka.cli.audit import audit


def run(*arguments: str) -> Result:
    return CliRunner().invoke(audit, list(arguments))


def test_pass_ends_with_one_line(three_brokers) -> None:
    result = run(*three_brokers(), "--processes", "1")
    assert result.exit_code == 0
    assert result.output.splitlines()[-1].startswith("AUDIT PASS cluster=")


def test_a_folder_of_brokers_is_enough(three_brokers, tmp_path: Path) -> None:
    three_brokers("byte-flipped")
    result = run(str(tmp_path), "--report", str(tmp_path / "report"))
    assert result.exit_code == 1
    assert "batch-crc" in result.output and (tmp_path / "report" / "report.json").exists()


def test_json_lines_give_findings_and_a_summary(three_brokers) -> None:
    result = run(*three_brokers("topic-id-differs"), "-o", "jsonl")
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert rows[0]["check"] == "topic-id" and rows[-1]["outcome"] == "FAIL"


def test_a_path_that_is_no_log_directory_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for path in (tmp_path / "other", tmp_path / "missing"):
        result = run(str(path))
        assert result.exit_code == 2
        assert str(path) in result.output and len(result.output.splitlines()) == 1


def test_one_replica_says_why_it_is_incomplete(three_brokers) -> None:
    result = run(three_brokers()[0])
    assert result.exit_code == 3 and "only one replica" in result.output
    assert run(three_brokers()[0], "--self-check").exit_code == 0


def test_without_java_the_local_engine_runs_with_one_line(three_brokers, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    result = run(*three_brokers(), "--engine", "spark", "--quiet")
    lines = result.output.splitlines()
    assert result.exit_code == 0 and len(lines) == 2
    assert "no Java" in lines[0] and lines[1].startswith("AUDIT PASS")
