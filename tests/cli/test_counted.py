"""No line says "1 partitions": lines that people read take their numbers and words from `counted`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.counted import counted

PACKAGE = Path(__file__).resolve().parents[2] / "minikafka"
THINGS = (
    "partitions rows batches brokers replicas topics seeds logs segments findings tasks files records members questions times runs "
    "producers transactions offsets groups nodes connections fetchers"
)
NUMBER_AND_THINGS = re.compile(rf"(?:%d|\0)(?: (?:more|acknowledged|internal|distinct))? (?:{'|'.join(THINGS.split())})\b(?!=| \0)")
# Words of Apache Kafka's tools, kinds of groups, and numbers that are never 1.
OTHERWISE = (
    "Error: Deletion of some \0 groups failed:",
    "Deletion of requested \0 groups (\0) was successful.",
    "\nThese \0 groups were deleted successfully: \0",
    "\0 records sent, \0 records/sec (\0 MB/sec), ",
    "[green]no acknowledged record is missing[/]: all \0 live and \0 loaded records are at the offsets that were acknowledged",
    "\0 on a machine where \0 tasks compete for each core",
    "a batch of \0 records",
)


@pytest.mark.parametrize(
    "number, words, text",
    [
        (0, ("row",), "0 rows"),
        (1, ("row",), "1 row"),
        (2000, ("row",), "2,000 rows"),
        (1, ("batch", "batches"), "1 batch"),
        (3, ("partition changes", "partitions change"), "3 partitions change"),
    ],
)
def test_a_number_has_its_word(number: int, words: tuple[str, ...], text: str) -> None:
    assert counted(number, *words) == text


def texts(tree: ast.AST) -> Iterator[str]:
    """Each text of a module, with NUL for what is put into it. Names in capitals are constants, which a reader of the code sees."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(_piece(part) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _piece(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    return "<constant>" if isinstance(part.value, ast.Name) and part.value.id.isupper() else "\0"


@pytest.mark.parametrize("package", ["broker", "cli", "spark", "testing"])
def test_lines_count_with_the_right_word(package: str) -> None:
    found = [
        f"{path.relative_to(PACKAGE)}: {text!r}"
        for path in sorted((PACKAGE / package).rglob("*.py"))
        for text in texts(ast.parse(path.read_text()))
        if NUMBER_AND_THINGS.search(text) and not text.startswith(OTHERWISE)
    ]
    assert not found, "\n".join(found)
