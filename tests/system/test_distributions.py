"""What is published: the source distribution, the wheel that is built from it, and the wheel beside packages named as our folders are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).parents[2]
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
STORY = """
import storage, wire

assert wire.WHOSE == "site-packages", wire
assert storage.WHOSE == "the project", storage
import minikafka.storage.log, minikafka.wire.registry
from minikafka.testing import EmbeddedCluster

print(minikafka.__file__)
with EmbeddedCluster(1, mode="process", topics=["orders"]) as cluster:
    print(cluster.leader("orders", 0))
"""


def run(*command: str, cwd: Path, path: Path | None = None) -> str:
    """What it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(hook: str, source: Path, into: Path) -> Path:
    """As `python -m build --no-isolation` does it: in a process of its own, in the folder of the source."""
    into.mkdir(exist_ok=True)
    return into / run(sys.executable, "-c", BUILD, hook, str(into), cwd=source).splitlines()[-1]


@pytest.fixture(scope="module")
def source_distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a copy, since a build leaves folders behind."""
    copy = tmp_path_factory.mktemp("copy")
    for path in ROOT.iterdir():
        if path.is_dir() and not path.name.startswith(".") and path.name not in ("build", "dist"):
            shutil.copytree(path, copy / path.name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        elif path.is_file():
            shutil.copy(path, copy)
    return built("build_sdist", copy, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(source_distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source distribution, as pip does where no wheel fits."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(source_distribution) as archive:
        archive.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    return built("build_wheel", source, tmp_path_factory.mktemp("wheel"))


def test_the_source_distribution_holds_what_its_tests_need(source_distribution: Path) -> None:
    with tarfile.open(source_distribution) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = ("LICENSE", "README.md", "CHANGELOG.md", "mkdocs.yml", "docker-compose.yml", "storage/log.py", "wire/registry.py")
    assert not {*wanted, "tests/conftest.py", "examples/README.md", "docs/index.md", "minikafka/broker/observe/ui.html"} - names
    assert not [name for name in names if name.endswith(".pyc")]


def test_the_wheel_has_no_packages_but_ours(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    information = next(name.partition("/")[0] for name in names if name.endswith(".dist-info/METADATA"))
    assert {name.partition("/")[0] for name in names} == {"minikafka", "pyspark_minikafka", information}
    wanted = {"minikafka/py.typed", "minikafka/broker/observe/ui.html", "minikafka/wire/registry.py", "minikafka/storage/log.py"}
    assert not {*wanted, f"{information}/licenses/LICENSE"} - set(names)


def test_neighbours_of_our_folders_names_change_nothing(wheel: Path, tmp_path: Path) -> None:
    """Installed beside a package `wire`, used in a project with a folder `storage`, with brokers in processes of their own."""
    site, project = tmp_path / "site", tmp_path / "project"
    for folder, whose in ((site / "wire", "site-packages"), (site / "storage", "site-packages"), (project / "storage", "the project")):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f"WHOSE = {whose!r}\n")
    install = ("-m", "pip", "install", "-q", "--no-compile", "--no-deps", "--no-index", "--target", str(site), str(wheel))
    run(sys.executable, *install, cwd=tmp_path)
    where, leader = run(sys.executable, "-c", STORY, cwd=project, path=site).split()
    assert (Path(where).parent, leader) == (site / "minikafka", "1")
