"""The recipes for CI and containers: the commands in them exist and take these options, and the page shows the files as they are."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from helpers.pages import FIRST_TERMINAL, Block, Reader

from minikafka.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
CI = ROOT / "examples" / "ci"
FILES = ("github-actions.yml", "gitlab-ci.yml", "devcontainer/devcontainer.json", "devcontainer/compose.yml")


def commands() -> list[str]:
    """Every line for a shell."""
    actions = yaml.safe_load((CI / "github-actions.yml").read_text())
    gitlab = yaml.safe_load((CI / "gitlab-ci.yml").read_text())["tests"]
    compose = yaml.safe_load((CI / "devcontainer" / "compose.yml").read_text())["services"]["kafka"]
    steps = [step["run"] for step in actions["jobs"]["tests"]["steps"] if "run" in step]
    return [*steps, *gitlab["script"], shlex.join(compose["command"]), shlex.join(compose["healthcheck"]["test"][1:])]


@pytest.mark.parametrize("line", [line for line in commands() if line.startswith("minikafka")])
def test_the_commands_take_these_words(line: str) -> None:
    words = shlex.split(line.removesuffix("&"))[1:]
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        _, found, words = command.resolve_command(context, words)
        assert found is not None
        command, context = found, click.Context(found, parent=context)
    command.make_context(command.name, words, resilient_parsing=False)


def test_pytest_takes_these_options() -> None:
    plugin = (ROOT / "minikafka" / "testing" / "pytest_plugin.py").read_text()
    options = [word.partition("=")[0] for line in commands() if line.startswith("pytest") for word in line.split()[1:]]
    assert options and all(f'"{option}"' in plugin for option in options)


PRODUCING = """
import confluent_kafka, os

def test_an_order{fixtures}:
    producer = confluent_kafka.Producer({configuration})
    producer.produce({topic}, value="apples")
    assert producer.flush(30) == 0
"""
ON_THE_CLUSTER = {"fixtures": "()", "configuration": '{"bootstrap.servers": os.environ["MINIKAFKA_BOOTSTRAP"]}', "topic": '"orders"'}
IN_THE_TEST = {"fixtures": "(kafka, kafka_topic)", "configuration": 'kafka.client_config("confluent")', "topic": "kafka_topic"}


@pytest.mark.docs
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("job", "suite", "left"), [("gitlab", ON_THE_CLUSTER, "audit/junit.xml"), ("github", IN_THE_TEST, "kafka-logs")])
def test_the_job_passes(job: str, suite: dict[str, str], left: str, tmp_path: Path) -> None:
    """The commands of the file, in its order, in a project with one test. pip is left out: the package is there."""
    if job == "gitlab":
        lines = yaml.safe_load((CI / "gitlab-ci.yml").read_text())["tests"]["script"]
    else:
        steps = yaml.safe_load((CI / "github-actions.yml").read_text())["jobs"]["tests"]["steps"]
        lines = [step["run"] for step in steps if "run" in step]
    with Reader(tmp_path / "project") as reader:
        (reader.directory / "test_orders.py").write_text(PRODUCING.format(**suite))
        ran = 0
        for line in lines:
            if not line.startswith("pip "):
                note = FIRST_TERMINAL if line.endswith(" &") else ""
                reader.run(Block("bash", note, line.removesuffix(" &").replace("pytest", "python -m pytest"), None))
                ran += 1
        assert ran and (reader.directory / left).exists()


def test_the_images_are_those_of_the_compose_file() -> None:
    compose: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    own = yaml.safe_load((CI / "devcontainer" / "compose.yml").read_text())["services"]["kafka"]["image"]
    assert own == compose["x-image"]["image"]
    container = json.loads((CI / "devcontainer" / "devcontainer.json").read_text())
    assert container["service"] in yaml.safe_load((CI / "devcontainer" / container["dockerComposeFile"]).read_text())["services"]


@pytest.mark.parametrize("name", FILES)
def test_the_page_shows_the_files_as_they_are(name: str) -> None:
    page = (ROOT / "docs" / "recipes.md").read_text()
    blocks = re.findall(r"^```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert (CI / name).read_text() in blocks
