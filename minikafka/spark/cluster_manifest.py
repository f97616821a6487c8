"""The manifest of a cluster that was written as files: sizes and checksums of all files, and the check of a directory against it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, TypeVar

from crc32c import crc32c

from minikafka.counted import counted

MANIFEST = "manifest.json"
SCHEMA = "minikafka.load.files/1"
READ_BYTES = 1 << 20
LOCK = ".lock"
PROBLEMS_MAX = 20

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Protocol):
    """Runs a function on many items. Results come in any order."""

    def map(self, function: Callable[[Item], Result], items: list[Item]) -> Iterator[Result]: ...


class ManifestError(Exception):
    """The manifest is missing or cannot be understood; the text is one line."""


@dataclass(slots=True)
class Manifest:
    """Within a schema version, keys are only ever added. `files`: relative path -> [bytes, CRC-32C as 8 hexadecimal digits].

    `rows_in`: rows read from the table. `records_written`: records counted again in the batches of the segments.
    """

    created: str
    cluster_id: str
    nodes: list[dict[str, Any]]
    topic: dict[str, Any]
    partitions: list[dict[str, Any]]
    source: str
    rows_in: int
    records_written: int
    files: dict[str, list[Any]] = field(default_factory=dict)
    schema: str = SCHEMA

    def add(self, path: str, size: int, checksum: int) -> None:
        self.files[path] = [size, f"{checksum:08x}"]

    @property
    def bytes(self) -> int:
        return sum(size for size, _ in self.files.values())

    def write(self, directory: str) -> None:
        """Write the manifest to the directory and sync it. Raises OSError."""
        document = {"schema": self.schema, **{name: value for name, value in asdict(self).items() if name != "schema"}}
        document["files"] = dict(sorted(self.files.items()))
        with open(f"{directory}/{MANIFEST}", "x", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def read(cls, directory: str) -> Manifest:
        """Read the manifest of a directory. Raises ManifestError."""
        path = f"{directory}/{MANIFEST}"
        try:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
        except OSError as error:
            raise ManifestError(f"{path}: {error.strerror}; did `load --to-files` write this directory?") from error
        except ValueError as error:
            raise ManifestError(f"{path} is damaged: {error}") from error
        schema = document.get("schema") if isinstance(document, dict) else None
        if schema != SCHEMA:
            raise ManifestError(f"{path}: schema {schema!r} is not {SCHEMA}")
        try:
            found = cls(**{name: document[name] for name in cls.__slots__ if name in document})
            for size, checksum in found.files.values():
                int(checksum, 16), int(size)
        except (TypeError, ValueError, AttributeError) as error:
            raise ManifestError(f"{path} is damaged: {error}") from error
        return found


@dataclass(slots=True)
class Checked:
    """The result of a check. `problems`: at most PROBLEMS_MAX lines, of `count` in all. `used_by`: nodes that have been started since."""

    files: int
    bytes: int
    rows: int
    count: int = 0
    problems: list[str] = field(default_factory=list)
    used_by: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return self.count == 0


def check_directory(directory: str, engine: Engine) -> Checked:
    """Compare every file of the directory with the manifest, and report missing, changed and extra files. Raises ManifestError."""
    manifest = Manifest.read(directory)
    found = Checked(len(manifest.files), manifest.bytes, manifest.records_written)
    entries = sorted(manifest.files.items(), key=lambda entry: -entry[1][0])
    tasks = [(directory, path, size, int(checksum, 16)) for path, (size, checksum) in entries]
    problems = [said for said in engine.map(check_file, tasks) if said]
    for path in files_below(directory):
        if os.path.basename(path) == LOCK:
            found.used_by.append(path.split(os.sep)[0])
        elif path not in manifest.files and path != MANIFEST:
            problems.append(f"{path} is not in the manifest")
    if manifest.rows_in != manifest.records_written:
        problems.append(f"{counted(manifest.rows_in, 'row was', 'rows were')} read, but {manifest.records_written:,} written")
    found.count, found.problems = len(problems), sorted(problems)[:PROBLEMS_MAX]
    return found


def check_file(task: tuple[str, str, int, int]) -> str:
    """What is wrong with a file, or "". `task`: (directory, path, bytes, CRC-32C)."""
    directory, path, size, checksum = task
    try:
        with open(f"{directory}/{path}", "rb", buffering=0) as file:
            actual = os.fstat(file.fileno()).st_size
            if actual != size:
                return f"{path} has {actual:,} bytes, the manifest says {size:,}"
            if checksum_of(file.fileno()) != checksum:
                return f"{path} does not have the CRC-32C in the manifest"
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return ""


def checksum_of(descriptor: int) -> int:
    """CRC-32C of a whole file."""
    found, position, buffer = 0, 0, memoryview(bytearray(READ_BYTES))
    while (count := os.preadv(descriptor, [buffer], position)) > 0:
        found = crc32c(buffer[:count], found)
        position += count
    return found


def files_below(directory: str) -> Iterator[str]:
    """Paths of all files, relative to the directory."""
    for folder, _, names in os.walk(directory):
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), directory)
