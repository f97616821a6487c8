"""The conda recipe and the Homebrew formula of a release, from its source distribution.

    python packaging/render.py dist/minikafka-0.1.0.tar.gz --url URL --homepage URL --into dist

`--url` is where the distribution can be fetched. Writes `recipe.yaml` and `minikafka.rb` into the folder. Dependencies come from
pyproject.toml, the checksum from the file.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
#: PyPI's name -> conda-forge's, where they differ.
CONDA_NAMES = {"prometheus-client": "prometheus_client"}
_REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?P<versions>[^;]*)")


def conda_requirement(text: str) -> str:
    """`click>=8.1` as conda writes it; the marker of a platform is left out, since the recipe skips Windows."""
    found = _REQUIREMENT.match(text)
    assert found is not None, text
    name = found["name"].lower()
    return f"{CONDA_NAMES.get(name, name)} {found['versions'].strip()}".strip()


def rendered(distribution: Path, url: str, homepage: str) -> dict[str, str]:
    """File name -> text."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    values = {
        "VERSION": distribution.name.removeprefix("minikafka-").removesuffix(".tar.gz"),
        "URL": url,
        "SHA256": hashlib.sha256(distribution.read_bytes()).hexdigest(),
        "HOMEPAGE": homepage,
        "PYTHON": project["requires-python"],
        "RUN": "\n".join(f"    - {conda_requirement(text)}" for text in project["dependencies"]),
    }
    texts = {}
    for template in (HERE / "conda" / "recipe.yaml", HERE / "homebrew" / "minikafka.rb"):
        texts[template.name] = re.sub(r"@([A-Z0-9]+)@", lambda found: values[found[1]], template.read_text())
    return texts


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("distribution", type=Path)
    parser.add_argument("--url", required=True)
    parser.add_argument("--homepage", required=True)
    parser.add_argument("--into", type=Path, default=Path())
    options = parser.parse_args()
    for name, text in rendered(options.distribution, options.url, options.homepage).items():
        (options.into / name).write_text(text)
        print(options.into / name)


if __name__ == "__main__":
    main()
