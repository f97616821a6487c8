"""The conda recipe and the Homebrew formula, as they come out for a release."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def rendered(tmp_path: Path) -> Path:
    (tmp_path / "minikafka-1.2.3.tar.gz").write_bytes(b"a source distribution")
    command = [sys.executable, str(ROOT / "packaging" / "render.py"), "minikafka-1.2.3.tar.gz", "--url", "https://example.org/m.tar.gz"]
    subprocess.run([*command, "--homepage", "https://example.org"], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def test_the_conda_recipe(rendered: Path) -> None:
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((rendered / "recipe.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert recipe["context"] == {"name": "minikafka", "version": "1.2.3"}
    assert recipe["source"] == {"url": "https://example.org/m.tar.gz", "sha256": hashlib.sha256(b"a source distribution").hexdigest()}
    names = [text.split()[0].replace("_", "-") for text in recipe["requirements"]["run"]]
    assert names == ["python", *(text.replace(";", ">").split(">")[0] for text in project["dependencies"])]
    assert recipe["requirements"]["run"][:2] == ["python >=3.11", "click >=8.1"]
    entry = "minikafka = " + project["scripts"]["minikafka"]
    assert recipe["build"]["python"]["entry_points"] == [entry]


def test_the_homebrew_formula(rendered: Path) -> None:
    text = (rendered / "minikafka.rb").read_text()
    assert f'sha256 "{hashlib.sha256(b"a source distribution").hexdigest()}"' in text and "@VERSION@" not in text
    assert 'depends_on "python@3.13"' in text
    if shutil.which("ruby") is not None:
        checked = subprocess.run(["ruby", "-wc", "minikafka.rb"], cwd=rendered, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stdout.strip(), checked.stderr) == (0, "Syntax OK", "")


def test_alpine_needs_all_but_re2() -> None:
    lines = [line for line in (ROOT / "packaging" / "alpine.txt").read_text().splitlines() if not line.startswith("#")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert lines == [text for text in project["dependencies"] if not text.startswith("google-re2")]
