"""Compressed tables: the same rows as the plain file, bounded whatever they unpack to, and clear words for what cannot be read."""

from __future__ import annotations

import bz2
import gzip
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

pa = pytest.importorskip("pyarrow")

from click.testing import CliRunner  # noqa: E402
from helpers.topic_server import TopicServer  # noqa: E402

from minikafka.cli.load import load  # noqa: E402
from minikafka.spark import packed, tables  # noqa: E402
from minikafka.spark.engine_local import LocalEngine  # noqa: E402
from minikafka.spark.load import LoadOptions, run_load  # noqa: E402

ROWS = 40_000
CSV = b"".join([b"number,name\n", *(b"%d,name-%d\n" % (n, n) for n in range(ROWS))])
JSON = b"".join(b'{"number": %d, "name": "name-%d"}\n' % (n, n) for n in range(ROWS))


def zipped(path: Path, data: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/", b"")
        archive.writestr(path.name.removesuffix(".zip"), data)
        archive.writestr("__MACOSX/._" + path.name, b"what a Mac adds")


PACKERS: dict[str, Callable[[Path, bytes], object]] = {
    "gz": lambda path, data: path.write_bytes(gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :])),
    "bz2": lambda path, data: path.write_bytes(bz2.compress(data)),
    "zst": lambda path, data: path.write_bytes(zstandard.compress(data)),
    "zip": zipped,
}


def rows_of(path: Path, columns: list[str] | None = None, **settings: Any) -> list[Any]:
    units, _ = tables.plan_units(str(path), **settings)
    return [row for unit in units for table in tables.read_unit(unit, columns) for row in table.to_pylist()]


def test_a_tsv_file_is_read_with_tabs_by_default(tmp_path: Path) -> None:
    plain, packed_one, other = tmp_path / "t.tsv", tmp_path / "p.TSV.gz", tmp_path / "comma.tsv"
    plain.write_bytes(b"number\tname\n1\ta,b\n")
    packed_one.write_bytes(gzip.compress(plain.read_bytes()))
    other.write_bytes(b"number,name\n1,a\n")
    assert rows_of(plain) == rows_of(packed_one) == [{"number": 1, "name": "a,b"}]
    assert rows_of(other, delimiter=",") == [{"number": 1, "name": "a"}]
    arguments = ["--bootstrap-server", "localhost:1", "--topic", "t", "--dry-run"]
    for name, delimiter in (("t.csv", "\\t"), ("t.tsv", "")):
        (tmp_path / name).write_bytes(plain.read_bytes())
        options = ["--delimiter", delimiter] if delimiter else []
        done = CliRunner().invoke(load, [str(tmp_path / name), *arguments, "--key", "name", *options])
        assert done.exit_code == 0, done.output
    long = CliRunner().invoke(load, [str(plain), *arguments, "--delimiter", "::"])
    assert long.exit_code == 2 and "longer than one character" in long.output


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize(("name", "data"), [("t.csv", CSV), ("t.jsonl", JSON)], ids=["csv", "jsonl"])
def test_the_rows_are_those_of_the_plain_file(kind: str, name: str, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "WINDOW_BYTES", 100_000)
    plain, path = tmp_path / name, tmp_path / f"{name}.{kind}"
    plain.write_bytes(data)
    PACKERS[kind](path, data)
    expected = rows_of(plain)
    assert len(expected) == ROWS and rows_of(path) == expected
    assert rows_of(path, ["name"]) == rows_of(plain, ["name"])
    if name == "t.jsonl":
        assert rows_of(path, []) == rows_of(plain, [])


def test_an_archive_is_named_as_one_likes(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "download.zip", "w") as archive:
        archive.writestr("deep/inside/flights.CSV", CSV)
    assert len(rows_of(tmp_path / "download.zip")) == ROWS


def test_tables_without_rows(tmp_path: Path) -> None:
    PACKERS["gz"](tmp_path / "a.csv.gz", b"number,name\n")
    PACKERS["zip"](tmp_path / "b.csv.zip", b"")
    PACKERS["bz2"](tmp_path / "c.jsonl.bz2", b"")
    assert [rows_of(tmp_path / name) for name in ("a.csv.gz", "b.csv.zip", "c.jsonl.bz2")] == [[], [], []]


def several(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(7):
            archive.writestr(f"{number}.csv", CSV)


def cut(kind: str) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        PACKERS[kind](path, CSV)
        path.write_bytes(path.read_bytes()[: -path.stat().st_size // 3])

    return write


BAD: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "several members": ("t.zip", several, "contains 7 files (0.csv, 1.csv, 2.csv, 3.csv, 4.csv, ...)"),
    "no archive": ("t.csv.zip", lambda path: path.write_bytes(CSV), "no zip archive"),
    "no gzip": ("t.csv.gz", lambda path: path.write_bytes(CSV), "cannot be unpacked"),
    "no zstd": ("t.csv.zst", lambda path: path.write_bytes(CSV), "cannot be unpacked"),
    "gzip, cut": ("t.csv.gz", cut("gz"), "Truncated"),
    "bz2, cut": ("t.csv.bz2", cut("bz2"), "Truncated"),
    "zstd, cut": ("t.csv.zst", cut("zst"), "Truncated"),
    "parquet": ("t.parquet.gz", lambda path: PACKERS["gz"](path, b"PAR1"), "Parquet files compress themselves"),
    "a tar archive": ("t.tar.gz", lambda path: PACKERS["gz"](path, b"tar"), "the format is not clear"),
}


@pytest.mark.parametrize("what", BAD)
def test_an_unreadable_file_is_reported(what: str, tmp_path: Path) -> None:
    name, write, said = BAD[what]
    write(tmp_path / name)
    with pytest.raises(tables.TableError) as error:
        rows_of(tmp_path / name)
    assert said in str(error.value) and str(tmp_path / name) in str(error.value)


def test_an_encrypted_archive(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.zip"
    zipped(path, CSV)
    data = bytearray(path.read_bytes())
    # The flag in the central directory: Python writes no encrypted archives.
    at = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 1)
    data[at + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(tables.TableError, match="encrypted"):
        rows_of(path)


@pytest.mark.parametrize("kind", PACKERS)
def test_a_bomb_is_stopped_at_what_is_allowed(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "UNPACKED_BYTES_ALLOWED", 1 << 20)
    path = tmp_path / f"bomb.jsonl.{kind}"
    PACKERS[kind](path, b'{"a": 1}\n' * (1 << 20))
    read = 0
    with pytest.raises(tables.TableError, match="--unpacked-bytes-max"):
        for unit in tables.plan_units(str(path))[0]:
            for table in tables.read_unit(unit, []):
                read += table.num_rows
    assert read * 9 <= max(1 << 20, packed.RATIO_MAX * path.stat().st_size)
    assert len(rows_of(path, [], unpacked_bytes_max=9 << 20)) == 1 << 20


def test_a_line_without_an_end_is_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "WINDOW_BYTES", 1000)
    monkeypatch.setattr(packed, "LINE_BYTES_MAX", 10_000)
    PACKERS["gz"](tmp_path / "t.jsonl.gz", b"0" * 20_000)
    with pytest.raises(tables.TableError, match="a line is longer than"):
        rows_of(tmp_path / "t.jsonl.gz")


def test_a_zipped_table_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "flights.csv.zip"
    zipped(path, CSV)
    with TopicServer("t", 2) as server:
        report = run_load(str(path), LoadOptions(bootstrap=server.bootstrap, topic="t", key="name"), LocalEngine(0))
    assert report.acknowledged == ROWS


def test_the_command_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    several(tmp_path / "t.zip")
    done = CliRunner().invoke(load, [str(tmp_path / "t.zip"), "--topic", "t", "--dry-run", "--engine", "local"])
    assert done.exit_code == 2 and done.output.startswith("minikafka load: ") and done.output.count("\n") == 1, done.output
    PACKERS["zst"](tmp_path / "t.csv.zst", CSV)
    words = [str(tmp_path / "t.csv.zst"), "--topic", "t", "--dry-run", "--engine", "local", "-o", "json"]
    assert json.loads(CliRunner().invoke(load, words).output)["rows"] == ROWS
