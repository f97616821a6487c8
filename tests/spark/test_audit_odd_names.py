"""Files and directories whose names no text holds: every output shows them escaped, and none fails."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from helpers.log_clusters import Partition, plain, write_broker
from helpers.summarized_clusters import OPTIONS, scans, summary_of

from minikafka.cli.audit import audit
from minikafka.spark import report as reporting
from minikafka.spark.audit import run_audit
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.summary_audit import compare_summaries
from minikafka.spark.textfile import printable

NO_UTF8, RED, TWO_LINES = b"bad\xff-0", b"\x1b[31mred-0", b"new\nline-0"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A broker has logs and other things with such names."""
    folder = tmp_path / "cluster"
    for broker in (1, 2, 3):
        write_broker(folder / f"b{broker}", broker, [Partition("t-0", [plain(0, 5)])])
    root = os.fsencode(folder / "b1")
    log = (folder / "b1" / "t-0" / f"{0:020d}.log").read_bytes()
    for name in (NO_UTF8, RED, TWO_LINES):
        os.mkdir(os.path.join(root, name))
        with open(os.path.join(root, name, b"%020d.log" % 0), "wb") as file:
            file.write(log)
    open(os.path.join(root, b"t-0", b"\xff.log"), "wb").close()
    return folder


def test_a_report_shows_them_escaped(cluster: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    paths = [str(path) for path in sorted(cluster.iterdir())]
    said = CliRunner().invoke(audit, [*paths, "--processes", "1", "--report", str(out)])
    assert isinstance(said.exception, SystemExit) and said.exit_code == 1, said.exc_info
    assert "\x1b" not in said.output and "\\x1b[31mred-0" in said.output
    for name in ("report.html", "summary.md", "junit.xml", "metrics.prom", "findings.parquet", "partitions.parquet"):
        assert (out / name).stat().st_size > 0, name
    assert "\\x1b[31mred" in " ".join(case.get("name", "") for case in ElementTree.parse(out / "junit.xml").iter("testcase"))
    assert "\x1b" not in (out / "report.html").read_text()
    report = reporting.read(str(out))
    assert all("\n" not in finding["message"] for finding in report["findings"])
    number = next(finding["id"] for finding in report["findings"] if finding["topic"] == "bad\udcff")
    explained = CliRunner().invoke(audit, ["explain", str(out), number])
    assert explained.exit_code == 0 and "bad\\udcff-0" in explained.output


def test_summaries_hold_them(cluster: Path, tmp_path: Path) -> None:
    result = compare_summaries(scans(cluster, tmp_path / "out"), OPTIONS)
    assert ("bad\udcff", 0) in {(one.topic, one.partition) for one in result.partitions}
    paths = [str(path) for path in sorted(cluster.iterdir())]
    assert summary_of(result) == summary_of(run_audit(paths, LocalEngine(1), OPTIONS))


def test_only_what_cannot_be_shown_is_escaped() -> None:
    assert printable("Übergröße 日本") == "Übergröße 日本"
    assert printable("é\x00\t\n\udcff") == "é\\x00\\t\\n\\udcff"
    assert printable("a\tb\nc\x07", kept="\n\t") == "a\tb\nc\\x07"
