"""The files of a stopped broker as lines that are the same for both kinds: ids that it drew, ports, and times become words. Records of
clients stay as they are, byte for byte."""

from __future__ import annotations

import difflib
import itertools
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from minikafka.cli.dump_files import DumpOptions, Problems, dump_file, read_log, shown
from minikafka.cli.dump_records import control_record

KNOWN = Path(__file__).parent / "differences.toml"
#: Internal topics and what decodes their records.
DECODERS = {
    "__cluster_metadata": "metadata", "__consumer_offsets": "offsets", "__transaction_state": "transaction", "__share_group_state": "share",
}  # fmt: skip
UUID = re.compile(r'(?<![\w-])(?![A-Z_]{22})[A-Za-z0-9_-]{22}(?![\w-]|":)')
MEMBER = re.compile(r"(?<![\w-])(instance|minikafka-probe|[\w.-]+?)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"(?<=[ :\[])1[78]\d{11}(?=[,\]} ]|$)")
OF_THE_RUN = re.compile(r'"(\w*[tT]imestamp\w*|\w*TimeMs|port|metadataHash|brokerEpoch)":\s?"?-?\d+"?')
UNORDERED = re.compile('"(CONFIG|PARTITION_CHANGE)_RECORD"')
OFFSET_OF_METADATA = re.compile(r"(__cluster_metadata-0/)\d{20}(?=\.snapshot)")
FEATURES = re.compile(r'"features":\[[^\]]*\]')


class Words:
    """A word for each id that a broker drew, numbered as they come."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}

    def of(self, line: str) -> str:
        """The line with words."""
        line = MEMBER.sub(lambda found: self._word("member", found[0]), line)
        line = UUID.sub(lambda found: self._word("uuid", found[0]), line)
        line = OF_THE_RUN.sub(r'"\1":?', line)
        line = FEATURES.sub('"features":?', line)
        return TIME.sub(lambda found: found[0] if found[0].startswith("17000000") else "TIME", line)

    def _word(self, kind: str, drawn: str) -> str:
        return self._words.setdefault(drawn, f"{kind}-{len(self._words)}")


def contents(root: Path) -> dict[str, list[str]]:
    """A file's path below `root` -> its lines. The log of the cluster comes first, since it has every id in the order of the requests."""
    words = Words()
    found = {}
    paths = (path for path in root.rglob("*") if path.is_file())
    for path in sorted(paths, key=lambda path: (not path.parent.name.startswith("__cluster"), path)):
        lines = list(_lines(path))
        name = OFFSET_OF_METADATA.sub(r"\1END", re.sub(r"\.[0-9a-f]{32}-", ".ID-", str(path.relative_to(root))))
        found[name] = _in_order([words.of(line) for line in lines])
    return found


def _in_order(lines: list[str]) -> list[str]:
    """Configurations that are set at once, and partitions that a broker leaves, come in the order of a hash map of Java there."""
    found: list[str] = []
    for is_unordered, group in itertools.groupby(lines, lambda line: UNORDERED.search(line) is not None):
        same = list(group)
        found += sorted(same) if is_unordered else same
    return found


def differences(kafka: Path, ours: Path) -> list[str]:
    """What differs between two directories and is not in differences.toml: lines of files, "-" there, "+" here."""
    listed = tomllib.loads(KNOWN.read_text())["file"]
    left_out = [re.compile(row["path"]) for row in listed if not row.keys() & {"line", "part"}]
    lines_left_out = [(re.compile(row["path"]), re.compile(row["line"])) for row in listed if "line" in row]
    parts_left_out = [(re.compile(row["path"]), re.compile(row["part"])) for row in listed if "part" in row]
    sides = []
    for root in (kafka, ours):
        found = {path: lines for path, lines in contents(root).items() if not any(one.fullmatch(path) for one in left_out)}
        for file, line in lines_left_out:
            for path in filter(file.fullmatch, found):
                found[path] = [one for one in found[path] if not line.search(one)]
        for file, part in parts_left_out:
            for path in filter(file.fullmatch, found):
                found[path] = [part.sub(r"\1", one) for one in found[path]]
        sides.append(found)
    there, here = sides
    differing = [f"- {path}" for path in sorted(there.keys() - here.keys())] + [f"+ {path}" for path in sorted(here.keys() - there.keys())]
    for path in sorted(there.keys() & here.keys()):
        differing += [f"{path}: {line}" for line in difflib.ndiff(there[path], here[path]) if line[0] in "+-"]
    return differing


def _lines(path: Path) -> Iterator[str]:
    topic = path.parent.name.rpartition("-")[0]
    if path.suffix in (".log", ".checkpoint") and (topic in DECODERS or path.name == "bootstrap.checkpoint"):
        yield from _internal_log(path, DECODERS.get(topic, "metadata"))
    elif path.suffix == ".log":
        yield from _log(path)
    elif path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
        problems = Problems()
        yield from (line for line in dump_file(str(path), DumpOptions(), problems) if not line.startswith("Dumping "))
        assert not problems.lines, problems.lines
    elif path.suffix == ".lock" or not path.stat().st_size:
        yield f"{path.stat().st_size} bytes"
    else:
        text = path.read_text(errors="replace")
        if text.startswith("{"):
            yield json.dumps(json.loads(text), sort_keys=True)
        elif path.name == "meta.properties":
            yield from sorted(line for line in text.splitlines() if not line.startswith("#"))
        elif path.name.endswith("-offset-checkpoint"):
            yield from sorted(text.splitlines())
        else:
            yield from text.splitlines()


def _log(path: Path) -> Iterator[str]:
    """The batches of clients to the byte, those of coordinators (markers) without their time."""
    data = path.read_bytes()
    for item in read_log(str(path), DumpOptions(deep=True)):
        begin = item["position"]
        if item["isControl"]:
            shown = {name: value for name, value in item.items() if name not in ("crc", "timestamp", "records")}
            yield f"{shown} {[(record['key'], record['value']) for record in item['records']]}"
        else:
            yield data[begin : begin + item["size"]].hex()
    yield f"{len(data)} bytes"


def _internal_log(path: Path, decoder: str) -> Iterator[str]:
    """Records and the batches that they came in. Offsets and sizes are left out: they vary with what a broker writes of itself."""
    for item in read_log(str(path), DumpOptions(deep=True)):
        if decoder != "metadata":  # where batches depend on how fast requests come
            producer = f"{item['producerId']} {item['producerEpoch']}, transactional {item['isTransactional']}"
            yield f"batch of {item['count']}, producer {producer}"
        for record in item["records"]:
            line = control_record(record["key"], record["value"]) if record["control"] else " ".join(map(str, shown(record, decoder)))
            if '"NO_OP_RECORD"' not in line:
                yield line
