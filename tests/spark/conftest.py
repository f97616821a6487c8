"""Clusters made of copies of real brokers' files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.log_fault_clusters import keep_lines

GOLDEN = Path(__file__).parents[1] / "golden" / "logs"
REPLICAS = GOLDEN / "replicas"


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder of golden files so that a test may write in it."""
    shutil.copytree(source, target, dirs_exist_ok=True, copy_function=shutil.copyfile)
    for path in [target, *target.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.fixture
def golden() -> Path:
    return GOLDEN


@pytest.fixture
def three_brokers(tmp_path: Path) -> Callable[..., list[str]]:
    """Log directories of three brokers with the partition rep-0; broker 1 may get a damaged copy."""

    def make(altered: str = "") -> list[str]:
        paths = []
        for broker in (1, 2, 3):
            target = tmp_path / f"broker-{broker}"
            copy_tree(REPLICAS / "authentic" / f"broker-{broker}" / "root", target)
            damaged = bool(altered) and broker == 1
            source = REPLICAS / "ALTERED" / altered if damaged else REPLICAS / "authentic" / f"broker-{broker}"
            copy_tree(source / "rep-0", target / "rep-0")
            keep_lines(target)
            paths.append(str(target))
        if altered == "index-not-multiple":
            # Kafka's own dump tool cut the index to whole entries when it opened it, so the stored copy lost its damage.
            index = tmp_path / "broker-1" / "rep-0" / "00000000000000000000.index"
            index.write_bytes(index.read_bytes() + bytes(3))
        return paths

    return make


@pytest.fixture
def stopped_broker(tmp_path: Path) -> Callable[[str], str]:
    """A single broker's log directory put together from one of the golden folders (its `root` files at the top)."""

    def make(folder: str) -> str:
        target = tmp_path / folder.replace("/", "-")
        copy_tree(GOLDEN / folder, target)
        if (target / "root").is_dir():
            copy_tree(target / "root", target)
            shutil.rmtree(target / "root")
        keep_lines(target)
        if folder == "compaction/after":  # its root files were not kept
            (target / "cleaner-offset-checkpoint").write_text("0\n2\ncompact 0 38\ncompact2 0 38\n")
        return str(target)

    return make


@pytest.fixture(scope="session")
def session() -> Iterator[Any]:
    """One Spark for all tests: two cores, and a task may fail three times. Its workers import what this process imports."""
    import os
    import sys

    from minikafka.spark.engine_spark import start_session

    root = str(Path(__file__).parents[2])
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(part for part in (root, before) if part))
    if root not in sys.path:
        sys.path.insert(0, root)
    started = start_session("local[2,4]")
    yield started
    started.stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of Spark with brokers take minutes: they run when asked for, `pytest -m interop`."""
    if "interop" in config.option.markexpr:
        return
    longer = [item for item in items if item.get_closest_marker("interop")]
    if longer:
        config.hook.pytest_deselected(items=longer)
        items[:] = [item for item in items if item not in longer]
