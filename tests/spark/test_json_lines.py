"""JSON lines that are none are refused with file and line, as rows of CSV are. They were loaded as they were."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from minikafka.spark import json_lines
from minikafka.spark.tables import TableError, plan_units, read_unit

GOOD = b'{"a": 1}\n\n{"a": "x", "b": [{}, {}]}\n'


def rows(path: Path, columns: list[str] | None, split_bytes: int = 1 << 20) -> int:
    units, _ = plan_units(str(path), "jsonl", split_bytes)
    return sum(table.num_rows for unit in units for table in read_unit(unit, columns))


@pytest.mark.parametrize("columns", [[], None], ids=["the row", "columns"])
@pytest.mark.parametrize(
    "bad",
    [
        b"\x93\xffrandom", b"{", b'{"a": 1', b'{"a": 1} x', b'{"a": 1}{"b": 2}', b"{a: 1}", b'{"a": 1,}', b'{"a": "\xff"}', b"\x00",
        b'{"a":\n1}', b'{"a": 1}{"b":\n2}', b'{"a": 1}{"b": [{}\n{}]}', b'"a', b"a,b", b"[" * 5000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["plain", "split", "packed"])
def test_a_line_that_is_no_json(tmp_path: Path, kind: str, bad: bytes, columns: list[str] | None) -> None:
    path = tmp_path / ("t.jsonl.gz" if kind == "packed" else "t.jsonl")
    data = GOOD * 3 + bad + b"\n" + GOOD
    path.write_bytes(gzip.compress(data) if kind == "packed" else data)
    with pytest.raises(TableError, match=rf"{path}: line 10 is not JSON: "):
        rows(path, columns, 5 if kind == "split" else 1 << 20)


def test_every_value_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n  {"a": 2}  \n3\n"x"\nnull\n[1]\n{"a": "\\u00e9"}')
    assert rows(path, []) == 7


@pytest.mark.parametrize("split_bytes", [5, 1 << 20])
@pytest.mark.parametrize("packed", [False, True])
def test_marks_of_the_file_are_in_no_row(tmp_path: Path, packed: bool, split_bytes: int) -> None:
    """The first record began with the byte order mark, and each ended with a carriage return."""
    path = tmp_path / ("t.jsonl.gz" if packed else "t.jsonl")
    data = b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 2}\r\n'
    path.write_bytes(gzip.compress(data) if packed else data)
    units, _ = plan_units(str(path), "jsonl", split_bytes)
    assert [row["line"] for unit in units for table in read_unit(unit, []) for row in table.to_pylist()] == [b'{"a": 1}', b'{"a": 2}']


@pytest.mark.parametrize("columns", [[], None], ids=["the row", "columns"])
@pytest.mark.parametrize(("data", "count"), [
    (b"\xef\xbb\xbf", 0), (b'\xef\xbb\xbf\r\n{"a": 1}\r\n', 1), (b"\n \n", 0), (b' {"a": ' + b"9" * 5000 + b"}\n", 1),
])  # fmt: skip
def test_odd_lines_that_are_json(tmp_path: Path, data: bytes, count: int, columns: list[str] | None) -> None:
    """They were refused."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(data)
    assert rows(path, columns) == count


def test_objects_need_no_second_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(json_lines, "json")
    lines = [json.dumps({"a": value}).encode() for value in (1, "x", None, [1, {"b": 2}])]
    assert json_lines.first_invalid_line(b"\n".join(lines), lines) is None
