"""dump-log prints what Apache Kafka's own tool printed for the same files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from minikafka.cli.dump_log import dump_log

GOLDEN = Path(__file__).parents[1] / "golden"
DUMPS = sorted(path.relative_to(GOLDEN / "dumps") for path in (GOLDEN / "dumps").rglob("*.dump.txt"))
SEGMENTS = [path for path in DUMPS if path.name != "indexes.dump.txt"]
INDEXES = [path for path in DUMPS if path.name == "indexes.dump.txt"]


@pytest.fixture(autouse=True)
def in_golden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN / "logs")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(dump_log, list(arguments))


def flags(path: str) -> list[str]:
    if "__cluster_metadata-0" in path or path.endswith(".checkpoint"):
        return ["--cluster-metadata-decoder"]
    for word, decoder in (
        ("__consumer_offsets", "offsets-decoder"),
        ("__transaction_state", "transaction-log-decoder"),
        ("__share_group_state", "share-group-state-decoder"),
    ):
        if word in path:
            return [f"--{decoder}"]
    return [] if "/varint-0/" in path or "/blocks-0/" in path else ["--print-data-log"]


def without_summary(text: str) -> str:
    """Kafka prints gaps behind the files; ours go to the error stream."""
    return re.split(r"(?m)^(?=Non-consecutive offsets in )", text, maxsplit=1)[0]


@pytest.mark.parametrize("dump", SEGMENTS, ids=str)
def test_segments_and_snapshots(dump: Path) -> None:
    path = str(dump).removesuffix(".dump.txt")
    result = run("--files", path, *flags(path))
    assert result.stdout == without_summary((GOLDEN / "dumps" / dump).read_text())
    assert result.exit_code == (1 if "ALTERED" in path or result.stderr else 0)


@pytest.mark.parametrize("dump", INDEXES, ids=str)
def test_indexes_and_producer_snapshots(dump: Path) -> None:
    wanted = (GOLDEN / "dumps" / dump).read_text()
    printed = []
    for path in re.findall(r"(?m)^Dumping (\S+)", wanted):
        result = run("--files", path)
        printed.append(result.stdout)
        assert result.exit_code == (1 if "ALTERED" in path else 0), result.stderr
    assert "\n".join(printed).rstrip() == wanted.rstrip()


def test_gaps_are_reported_in_kafkas_words() -> None:
    for name in ("batches-swapped", "base-offset-differs"):
        path = f"replicas/ALTERED/{name}/rep-0/00000000000000000000.log"
        wanted = (GOLDEN / "dumps" / f"{path}.dump.txt").read_text()
        assert run("--files", path, "--deep-iteration").stderr == wanted[wanted.index("Non-consecutive") :]


def test_a_wrong_index_entry_is_named() -> None:
    path = "replicas/ALTERED/index-wrong-position/rep-0/00000000000000000000.index"
    result = run("--files", path, "--verify-index-only")
    assert result.exit_code == 1 and result.stdout == f"Dumping {path}\n"
    assert result.stderr.startswith(f"Mismatches in :{path}\n  Index offset: 26")
    assert run("--files", path, "--index-sanity-check").stdout.endswith("passed sanity check.\n")


def test_checkpoints() -> None:
    path = "replicas/authentic/broker-1/rep-0/leader-epoch-checkpoint"
    assert run("--files", path).stdout.splitlines()[1:] == [
        "epoch: 0 startOffset: 0",
        "epoch: 1 startOffset: 24",
        "epoch: 2 startOffset: 39",
    ]


def test_json_has_batches_with_records() -> None:
    path = "single-stopped/txn-0/00000000000000000007.log"
    result = json.loads(run("--files", path, "--print-data-log", "-o", "json").stdout)
    first, second = result["batches"][:2]
    assert first["records"][0]["control"] == "endTxnMarker: COMMIT coordinatorEpoch: 0"
    assert (second["baseOffset"], second["producerId"], second["records"][0]["value"]) == (8, 10, "a2")
    lines = run("--files", path, "-o", "jsonl").stdout.splitlines()
    assert len(lines) == len(result["batches"]) and "records" not in json.loads(lines[0])
    index = json.loads(run("--files", "single-stopped/txn-0/00000000000000000007.txnindex", "-o", "json").stdout)
    assert index["entries"][0] == {"version": 0, "producerId": 10, "firstOffset": 4, "lastOffset": 9, "lastStableOffset": 10}


@pytest.mark.parametrize("path", ["missing.log", "missing", "single-stopped/facts.json"])
def test_files_that_cannot_be_dumped_are_usage_errors(path: str) -> None:
    result = run("--files", path)
    assert result.exit_code == 2 and path in result.stderr and len(result.stderr.splitlines()) == 1
    assert ("No such file" in result.stderr) is path.startswith("missing")
