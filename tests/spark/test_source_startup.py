"""The data source and `audit explain` read a directory as the next start of its broker would load it: what a cleaner or a broker left there
in the midst of its work is legal, and costs no record."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")

from helpers import partition_files as files  # noqa: E402
from helpers.audited_clusters import TOPIC, registered_topic  # noqa: E402
from helpers.log_clusters import Batch, Partition, plain, write_broker  # noqa: E402
from helpers.partition_files import high_watermarks, one_by_one, partition  # noqa: E402

from minikafka.spark import source_files, source_ranges, source_times  # noqa: E402
from minikafka.spark.explain import around  # noqa: E402
from minikafka.spark.source_files import Held, segment_bases, segment_path  # noqa: E402
from minikafka.spark.source_listing import available  # noqa: E402
from minikafka.spark.source_loss import DataLossError  # noqa: E402
from minikafka.spark.source_options import SourceOptions  # noqa: E402
from minikafka.spark.source_reading import read_range  # noqa: E402

SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.binary())])
PARTS = ("log", "index", "timeindex")


def offsets(directory: Path, **options: str) -> list[int]:
    """The offsets of a batch query."""
    wanted = source_ranges.batch_ranges(SourceOptions.parse({"logdirs": str(directory), **options}))
    return [row["offset"] for one in wanted for rows in read_range(one, "records", SCHEMA) for row in rows.to_pylist()]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """300 records of t-0 in three segments; offsets 0 to 199 are cleaned, every third is left."""
    made = files.log_directory(tmp_path / "b1")
    kept = [one_by_one(base, base + 100)[:: 3 if base < 200 else 1] for base in (0, 100, 200)]
    partition(made, "t-0", {0: kept[0], 100: kept[1], 200: kept[2]}, interval_bytes=200)
    high_watermarks(made, t=300)
    return made


LEFT = [*range(0, 100, 3), *range(100, 200, 3), *range(200, 300)]


def rename(place: Path, base: int, suffix: str = ".swap") -> None:
    for part in PARTS:
        path = place / f"{base:020d}.{part}"
        path.rename(path.with_name(path.name + suffix))


def replaced(place: Path) -> None:
    """Both closed segments became one, whose old ones are still there."""
    merged = [one for base in (0, 100) for one in one_by_one(base, base + 100)[::3]]
    aside = place.parent / "aside"
    aside.mkdir()
    files.write_segment(aside, 0, merged, 200)
    for part in PARTS:
        (aside / f"{0:020d}.{part}").rename(place / f"{0:020d}.{part}.swap")
    aside.rmdir()


def only_the_log(place: Path) -> None:
    """Its indexes have their names already."""
    (place / f"{0:020d}.log").rename(place / f"{0:020d}.log.swap")


def indexes_of_old(place: Path) -> None:
    """The replacement has none, and those that are there are of the segment that it replaces."""
    replaced(place)
    for part in PARTS[1:]:
        (place / f"{0:020d}.{part}.swap").unlink()
    (place / f"{0:020d}.index").write_bytes(bytes.fromhex("0000000100ffff00"))


@pytest.mark.parametrize("leave", [
    lambda place: rename(place, 0), lambda place: rename(place, 100), lambda place: (rename(place, 0), rename(place, 100)), replaced,
    only_the_log, indexes_of_old,
])  # fmt: skip
def test_an_interrupted_replacement_is_read(directory: Path, leave: Callable[[Path], None]) -> None:
    leave(directory / "t-0")
    assert offsets(directory) == LEFT
    at = {"subscribe": "t", "startingOffsets": '{"t": {"0": 60}}', "endingOffsets": '{"t": {"0": 250}}'}
    assert offsets(directory, **at) == [one for one in LEFT if 60 <= one < 250]


def test_where_the_newest_segment_is_a_replacement_the_log_ends_with_it(directory: Path) -> None:
    rename(directory / "t-0", 200)
    assert available(SourceOptions.parse({"logdirs": str(directory)})).bounds["t", 0] == (0, 300)
    assert offsets(directory) == LEFT


def test_times_are_looked_up_in_replacements(directory: Path) -> None:
    rename(directory / "t-0", 0)
    held = Held("t", 0, "1", str(directory / "t-0"), (), 0, -1, "")
    assert [source_times.in_files(held, 1_000_000 + offset) for offset in (0, 4, 95, 198)] == [0, 6, 96, 199]


def test_unfinished_files_and_those_awaiting_deletion_are_not_read(directory: Path) -> None:
    place = directory / "t-0"
    for suffix in (".cleaned", ".deleted"):
        for part in PARTS:
            shutil.copyfile(place / f"{200:020d}.{part}", place / f"{0:020d}.{part}{suffix}")
            shutil.copyfile(place / f"{200:020d}.{part}", place / f"{500:020d}.{part}{suffix}")
    shutil.copytree(place, directory / "t-0.aaaa-future")
    shutil.copytree(place, directory / "t-1.aaaa-delete")
    (directory / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 200\n")
    assert offsets(directory) == LEFT
    # A `.cleaned` file at or before it says that a replacement was not finished: the old segment stands.
    (place / f"{0:020d}.log.swap").write_bytes(b"".join(one_by_one(0, 1)))
    assert offsets(directory) == LEFT


def test_a_replacement_that_gets_its_name_meanwhile(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the listing and the look into the file the broker has renamed it, as often as is looked and once more."""
    place = directory / "t-0"
    rename(place, 0)
    listed, looks = source_files.at_start, []

    def renamed(names: list[str], end_of: Callable[[int], int]) -> dict[tuple[int, str], str]:
        looks.append(names)
        if len(looks) < times:
            raise FileNotFoundError
        return listed(names, end_of)

    monkeypatch.setattr(source_files, "at_start", renamed)
    times = source_files.LISTINGS_MAX + 1
    assert segment_bases(str(place)) == [0, 100, 200]
    looks.clear()
    times += 1
    with pytest.raises(FileNotFoundError):
        segment_bases(str(place))


def test_a_gap_of_a_cleaner_that_had_not_written_its_checkpoint(tmp_path: Path) -> None:
    """The replacement has its name, and the broker was killed before it wrote how far its cleaner came: the controller's record tells."""
    kept = [Batch(at, [(0, b"k%d" % at, b"v")]) for at in range(60) if at % 3 == 0 or at >= 40]
    for policy in ("compact", "delete"):
        metadata = registered_topic().config("t", "cleanup.policy", policy).encode()
        made = write_broker(tmp_path / policy, 1, [Partition("t-0", kept, (0, 40), topic_id=TOPIC)], metadata, clean=False)
        wanted = {"subscribe": "t"}
        if policy == "compact":
            assert offsets(made, **wanted) == [one.base for one in kept]
        else:
            with pytest.raises(DataLossError):
                offsets(made, **wanted)


def test_explain_shows_what_the_next_start_reads(tmp_path: Path) -> None:
    place = write_broker(tmp_path / "b1", 1, [Partition("t-0", [plain(at) for at in range(20)], (0, 10))]) / "t-0"
    before = list(around(str(place), 5))
    rename(place, 0)
    assert list(around(str(place), 5)) == before and any(line.startswith("->5..5") for line in before)
    (place / f"{0:020d}.log.swap").write_bytes(b"".join(plain(at, text="w").encode() for at in range(10)))
    assert any("w00000005" in line for line in around(str(place), 5))
    assert segment_path(str(place), 10) == str(place / f"{10:020d}.log")
    for name in place.glob("*.log*"):
        name.unlink()
    assert list(around(str(place), 5)) == ["  there is no segment"]
    assert list(around(str(tmp_path / "none"), 5)) == ["  cannot be read now: No such file or directory"]
