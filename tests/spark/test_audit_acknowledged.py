"""Ledgers of acknowledged records: what two lines say of one record, and what is no record."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pytest
from helpers.audited_clusters import audit, messages_of, three_alike
from helpers.log_clusters import TRANSACTIONAL, Batch, marker, plain

from minikafka.spark.ledger import LedgerError, read_ledgers


def ledger(path: Path, *rows: dict[str, object]) -> str:
    path.write_text("".join(json.dumps({"topic": "t", "partition": 0, **row}) + "\n" for row in rows))
    return str(path)


def test_a_line_without_the_value_contradicts_none_that_has_it(tmp_path: Path) -> None:
    """Two producers' recorders, of which one writes offsets only. The value is checked, in whatever order the lines are."""
    root = three_alike(tmp_path / "c", [plain(0, 5)], high_watermark=5)
    bare, right, wrong = {"offset": 3}, {"offset": 3, "value": "v00000003"}, {"offset": 3, "value": "other"}
    for order in permutations((bare, right, bare)):
        assert audit(root, acked=(ledger(tmp_path / "a", *order),)).exit_code == 0, order
    for order in permutations((bare, wrong)):
        result = audit(root, acked=(ledger(tmp_path / "a", *order),))
        assert len(messages_of(result, "acked-differs")) == 3 and not messages_of(result, "acked-conflict")
    for order in permutations((bare, right, wrong)):
        assert messages_of(audit(root, acked=(ledger(tmp_path / "a", *order),)), "acked-conflict"), order


def test_a_marker_is_not_the_record_that_was_acknowledged(tmp_path: Path) -> None:
    one = Batch(0, [(0, None, b"v")], producer=7, producer_epoch=0, sequence=0, attributes=TRANSACTIONAL)
    root = three_alike(tmp_path / "c", [one, marker(1, 1, 7)], high_watermark=2)
    assert audit(root, acked=(ledger(tmp_path / "a", {"offset": 0}),)).exit_code == 0
    result = audit(root, acked=(ledger(tmp_path / "a", {"offset": 1}),))
    assert result.exit_code == 1 and "1 acknowledged record on no replica: offset 1" in messages_of(result, "acked-missing")[0]


@pytest.mark.parametrize(("line", "text"), [
    ("[" * 100_000, "line 2: not a JSON object"),
    ('{"topic": "t", "partition": 0, "offset": "1_0"}', "line 2: not a JSON object"),
    ('{"topic": "t", "partition": 0, "offset": 1, "value": "\\ud800"}', "line 2: its key or value is not text"),
])  # fmt: skip
def test_a_line_that_says_nothing_clear_is_named(tmp_path: Path, line: str, text: str) -> None:
    path = tmp_path / "acked.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(LedgerError, match=text):
        read_ledgers([str(path)])


def test_a_byte_order_mark_is_no_part_of_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "acked.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"topic": "t", "partition": 0, "offset": 1}\r\n')
    assert list(read_ledgers([str(path)])[0]) == [("t", 0)]
