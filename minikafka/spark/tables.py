"""Tables on disk as work units and columns: Parquet by row groups, CSV and JSON lines by byte ranges cut at line ends.

Needs pyarrow. Units are small and picklable; a worker opens the file itself.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from minikafka.spark.json_lines import BYTE_ORDER_MARK, first_invalid_line
from minikafka.spark.packed import LINE_BYTES_MAX, PackedError, compression_of, name_inside, unpacked, windows_of_lines

FORMATS = ("parquet", "csv", "jsonl")
_SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "jsonl", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_CONTROL = r"[\x00-\x1f]"


class TableError(Exception):
    """The table cannot be read as asked; the text says what and where."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of a table. Parquet: row groups [begin, end); text: bytes [begin, end). `first_row` counts rows of Parquet units before,
    `rows` those of this one (0: text, nobody has counted). A compressed file is one unit, and `bytes` its compressed size."""

    path: str
    format: str
    begin: int
    end: int
    bytes: int
    first_row: int = 0
    columns: tuple[str, ...] = ()
    delimiter: str = ","
    rows: int = 0
    compression: str = ""
    unpacked_bytes_max: int = 0


def list_files(path: str, format_name: str = "") -> tuple[list[str], str]:
    """The files of a table (a file, a directory or a pattern) and its format. Raises TableError."""
    if os.path.isdir(path):
        files = sorted(found for found in glob.glob(os.path.join(glob.escape(path), "**", "*"), recursive=True) if os.path.isfile(found))
        files = [found for found in files if not os.path.basename(found).startswith(("_", "."))]
    else:
        files = sorted(glob.glob(path)) or [path]
    if not files or not all(os.path.exists(found) for found in files):
        raise TableError(f"{path}: no such file or table directory")
    for found in files:
        if not os.path.isfile(found):
            what = "is a directory" if os.path.isdir(found) else "is a pipe or a device, which can be read only once"
            raise TableError(f"{found}: {what}; give a file, or a directory of files")
    kinds = {_kind(found) for found in files}
    chosen = format_name or (kinds.pop() if len(kinds) == 1 else "")
    if not chosen:
        raise TableError(f"{path}: the format is not clear from the file names; give --format {'|'.join(FORMATS)}")
    return files, chosen


def format_of(path: str) -> str:
    """The format that a file's name tells. Raises TableError."""
    chosen = _kind(path)
    if not chosen:
        raise TableError(f"{path}: the format is not clear from the name; give --format")
    return chosen


def delimiter_of(path: str) -> str:
    """What separates columns of text by the file's name: a tab in `.tsv` (also packed), else a comma. Raises TableError."""
    return "\t" if _suffix(path) == ".tsv" else ","


def _kind(path: str) -> str:
    """The format by the name, without the suffix of a compression; "" when it does not tell. Raises TableError."""
    return _SUFFIXES.get(_suffix(path), "")


def _suffix(path: str) -> str:
    try:
        inside = name_inside(path)
    except PackedError as error:
        raise TableError(str(error)) from error
    return os.path.splitext(inside)[1].lower()


def plan_units(
    path: str, format_name: str = "", split_bytes: int = 64 << 20, delimiter: str = "", unpacked_bytes_max: int = 0
) -> tuple[list[Unit], list[str]]:
    """The work units of a table and its column names. An empty `delimiter` is the one of each file's name. Raises TableError."""
    files, chosen = list_files(path, format_name)
    units: list[Unit] = []
    columns: list[str] = []
    for file in files:
        try:
            between = delimiter or delimiter_of(file)
            if compression_of(file):
                found, names = _packed_units(file, chosen, between, unpacked_bytes_max)
            elif chosen == "parquet":
                found, names = _parquet_units(file, split_bytes)
            else:
                found, names = _text_units(file, chosen, split_bytes, between)
        except PackedError as error:
            raise TableError(str(error)) from error
        except (pa.ArrowException, OSError, ValueError) as error:
            raise TableError(f"{file}: cannot be read as {chosen}: {str(error).splitlines()[0]}") from error
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise TableError(f"{file}: two columns have the name {twice!r}")
        if columns and names and names != columns:
            raise TableError(f"{file}: its columns {', '.join(names)} differ from those of the earlier files")
        columns = columns or names
        units += found
    return units, columns


def _parquet_units(path: str, split_bytes: int) -> tuple[list[Unit], list[str]]:
    from pyarrow import parquet

    metadata = parquet.read_metadata(path)
    units, begin, size, row, first_row = [], 0, 0, 0, 0
    for group in range(metadata.num_row_groups):
        size += metadata.row_group(group).total_byte_size
        row += metadata.row_group(group).num_rows
        if size >= split_bytes or group == metadata.num_row_groups - 1:
            units.append(Unit(path, "parquet", begin, group + 1, size, first_row, rows=row - first_row))
            begin, size, first_row = group + 1, 0, row
    return units, list(metadata.schema.to_arrow_schema().names)


def _text_units(path: str, format_name: str, split_bytes: int, delimiter: str) -> tuple[list[Unit], list[str]]:
    size = os.path.getsize(path)
    columns: list[str] = []
    begin = 0
    units = []
    with open(path, "rb") as file:
        if format_name == "csv":
            columns = _columns(file.readline(), delimiter)
            begin = file.tell()
        while begin < size:
            file.seek(min(begin + split_bytes, size))
            file.readline()
            end = file.tell()
            units.append(Unit(path, format_name, begin, end, end - begin, columns=tuple(columns), delimiter=delimiter))
            begin = end
    return units, columns


def _packed_units(path: str, format_name: str, delimiter: str, unpacked_bytes_max: int) -> tuple[list[Unit], list[str]]:
    if format_name == "parquet":
        raise PackedError(f"{path}: Parquet files compress themselves; unpack it first")
    columns: list[str] = []
    with unpacked(path, unpacked_bytes_max) as stream:
        first = stream.readline(LINE_BYTES_MAX)
    if not first:
        return [], columns
    if format_name == "csv":
        columns = _columns(first, delimiter)
    size = os.path.getsize(path)
    unit = Unit(
        path, format_name, 0, size, size, columns=tuple(columns), delimiter=delimiter, compression=compression_of(path),
        unpacked_bytes_max=unpacked_bytes_max,
    )  # fmt: skip
    return [unit], columns


def _columns(first: bytes, delimiter: str) -> list[str]:
    import csv

    return next(csv.reader([first.decode("utf-8-sig")], delimiter=delimiter), [])


def read_unit(unit: Unit, columns: list[str] | None) -> Iterator[pa.Table]:
    """The rows of a unit in tables of bounded size. `columns` None means all. Raises TableError.

    JSON lines with `columns` [] come back as one binary column `line`.
    """
    try:
        if unit.format == "parquet":
            yield from _read_parquet(unit, columns)
        elif unit.format == "csv":
            yield from _read_csv(unit, columns)
        else:
            yield from _read_jsonl(unit, columns)
    except PackedError as error:
        raise TableError(str(error)) from error
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{unit.path}: {str(error).splitlines()[0]}") from error


ROWS_MAX = 1 << 15  # a few MiB: what a core keeps in its cache between the steps of encoding


def _read_parquet(unit: Unit, columns: list[str] | None) -> Iterator[pa.Table]:
    from pyarrow import parquet

    with parquet.ParquetFile(unit.path, memory_map=True) as file:
        for group in range(unit.begin, unit.end):
            table = file.read_row_group(group, columns=columns, use_threads=False)
            for start in range(0, table.num_rows, ROWS_MAX):
                yield table.slice(start, ROWS_MAX)


def _range(unit: Unit) -> bytes:
    with open(unit.path, "rb") as file:
        file.seek(unit.begin)
        return file.read(unit.end - unit.begin)


def _read_csv(unit: Unit, columns: list[str] | None) -> Iterator[pa.Table]:
    if not unit.compression:
        yield from _csv_tables(pa.BufferReader(_range(unit)), unit, columns)
        return
    with unpacked(unit.path, unit.unpacked_bytes_max) as text:
        text.readline(LINE_BYTES_MAX)
        if text.peek(1):
            yield from _csv_tables(pa.PythonFile(text, "r"), unit, columns)


def _csv_tables(source: pa.NativeFile, unit: Unit, columns: list[str] | None) -> Iterator[pa.Table]:
    from pyarrow import csv

    names = list(unit.columns)
    convert = csv.ConvertOptions(include_columns=columns, column_types=None, strings_can_be_null=True)
    reader = csv.open_csv(
        source,
        read_options=csv.ReadOptions(column_names=names, use_threads=False, block_size=8 << 20),
        parse_options=csv.ParseOptions(delimiter=unit.delimiter),
        convert_options=convert,
    )
    for batch in reader:
        yield pa.Table.from_batches([batch])


def _read_jsonl(unit: Unit, columns: list[str] | None) -> Iterator[pa.Table]:
    if not unit.compression:
        yield from _json_tables(_range(unit), columns, unit, 0)
        return
    first = 1
    with unpacked(unit.path, unit.unpacked_bytes_max) as text:
        for window in windows_of_lines(text, unit.path):
            yield from _json_tables(window, columns, unit, first)
            first += window.count(b"\n")


def _json_tables(data: bytes, columns: list[str] | None, unit: Unit, first_line: int) -> Iterator[pa.Table]:
    """`first_line`: the number of the first line; 0: nobody has counted."""
    if unit.begin == 0 and first_line <= 1:
        data = data.removeprefix(BYTE_ORDER_MARK)  # the file's, not the first row's
    lines = [line.removesuffix(b"\r") for line in data.split(b"\n") if line.strip()]
    if not lines:
        return
    bad = first_invalid_line(data, lines)
    if bad is not None:
        index, why = bad
        before = [number for number, line in enumerate(data.split(b"\n")) if line.strip()][index]
        raise TableError(f"{unit.path}: line {(first_line or _lines_before(unit) + 1) + before} is not JSON: {why}")
    if columns == []:
        for start in range(0, len(lines), ROWS_MAX):
            yield pa.table({"line": pa.array(lines[start : start + ROWS_MAX], pa.binary())})
        return
    from pyarrow import json as arrow_json

    table = arrow_json.read_json(
        pa.BufferReader(data), read_options=arrow_json.ReadOptions(use_threads=False, block_size=max(len(data), 1))
    )
    for start in range(0, table.num_rows, ROWS_MAX):
        part = table.slice(start, ROWS_MAX)
        yield part if columns is None else part.select(columns)


def _lines_before(unit: Unit) -> int:
    """How many lines of its file come before a unit of text."""
    count, left = 0, unit.begin
    with open(unit.path, "rb") as file:
        while left and (piece := file.read(min(left, 1 << 20))):
            count += piece.count(b"\n")
            left -= len(piece)
    return count


# ---- columns to bytes ---------------------------------------------------------------------------------------------------------


def as_binary(column: pa.ChunkedArray) -> pa.Array:
    """A column as bytes: binary as it is, text as UTF-8, structs, lists and maps as JSON, everything else as its text."""
    kind = column.type
    if pa.types.is_nested(kind):
        column = _json_values(column)
        kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        column = column.cast(pa.binary() if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) else pa.string())
    column = column.cast(pa.binary())
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) and combined.num_chunks else _plain(combined)


def _plain(array: Any) -> pa.Array:
    return pa.array([], pa.binary()) if isinstance(array, pa.ChunkedArray) else array


def rows_as_json(table: pa.Table) -> pa.Array:
    """Every row as a JSON object (UTF-8), fields in column order, null as null. NaN and infinities become null (JSON has
    none); points in time are ISO 8601 text."""
    parts: list[Any] = []
    for number, name in enumerate(table.column_names):
        lead = ("{" if number == 0 else ",") + json.dumps(name, ensure_ascii=False) + ":"
        parts += [pa.scalar(lead, pa.string()), _json_values(table.column(name))]
    parts.append(pa.scalar("}" if parts else "{}", pa.string()))
    joined = pc.binary_join_element_wise(*parts, pa.scalar("", pa.string()), null_handling="replace", null_replacement="null")
    return as_binary(joined if isinstance(joined, pa.ChunkedArray) else pa.chunked_array([joined]))


def _json_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _json_values(column.cast(kind.value_type))
    if pa.types.is_boolean(kind):
        return pc.if_else(column, "true", "false")
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_finite(column), column.cast(pa.string()), pa.scalar(None, pa.string()))
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        return _quoted(pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_temporal(kind):
        return _quoted(column.cast(pa.string()))
    text = [
        None if value is None else json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":")) for value in column.to_pylist()
    ]
    return pa.chunked_array([pa.array(text, pa.string())])


def _quoted(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text as JSON strings."""
    if pc.any(pc.match_substring_regex(column, _CONTROL)).as_py():
        text = [None if value is None else json.dumps(value, ensure_ascii=False) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(text, pa.string())])
    escaped = pc.replace_substring(pc.replace_substring(column, "\\", "\\\\"), '"', '\\"')
    quote = pa.scalar('"', pa.string())
    return pc.binary_join_element_wise(quote, escaped, quote, pa.scalar("", pa.string()))


def as_partitions(column: pa.ChunkedArray, partitions: int) -> np.ndarray[Any, Any]:
    """A column of partition numbers as int64. Raises TableError for nulls, other types and numbers that the topic does not have."""
    if not pa.types.is_integer(column.type) or column.null_count:
        raise TableError(f"a partition column must hold integers without nulls, not {column.type} with {column.null_count} nulls")
    found: np.ndarray[Any, Any] = column.cast(pa.int64()).to_numpy()
    if len(found) and not (found.min() >= 0 and found.max() < partitions):
        raise TableError(f"the partition column ranges from {found.min()} to {found.max()}, but the topic has partitions 0 to "
                         f"{partitions - 1}")
    return found


def as_milliseconds(column: pa.ChunkedArray, now_ms: int) -> np.ndarray[Any, Any]:
    """A timestamp column (timestamp, date or integer milliseconds) as int64; nulls become `now_ms`. Raises TableError."""
    kind = column.type
    if pa.types.is_integer(kind):
        values = column.cast(pa.int64())
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        values = column.cast(pa.timestamp("ms", tz=getattr(kind, "tz", None)), safe=False).cast(pa.int64())
    else:
        raise TableError(f"a timestamp column must hold timestamps, dates or integer milliseconds, not {kind}")
    filled: np.ndarray[Any, Any] = values.fill_null(now_ms).to_numpy()
    return filled
