"""What the compose profile for monitoring is made of fits together; what it asks of brokers is tested in tests/dashboards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

DOCKER = Path(__file__).resolve().parents[2] / "docker"
DASHBOARDS = sorted((DOCKER / "grafana/dashboards").glob("*.json"))


def test_the_files_fit_together() -> None:
    services = yaml.safe_load((DOCKER.parent / "docker-compose.yml").read_text())["services"]
    compose = [name for name, service in services.items() if "profiles" not in service]
    for service in (services["prometheus"], services["grafana"]):
        for volume in service["volumes"]:
            assert (DOCKER.parent / volume.split(":")[0]).exists(), volume
    for scrape in yaml.safe_load((DOCKER / "prometheus.yml").read_text())["scrape_configs"]:
        targets = scrape["static_configs"][0]["targets"]
        assert [target.split(":")[0] for target in targets] == compose
    source = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"][0]
    dashboards = [json.loads(path.read_text()) for path in sorted((DOCKER / "grafana/dashboards").glob("*.json"))]
    assert len({dashboard["uid"] for dashboard in dashboards}) == len(dashboards) == 2
    for dashboard in dashboards:
        panels = dashboard["panels"]
        assert {panel["datasource"]["uid"] for panel in panels} == {source["uid"]}
        assert len({panel["id"] for panel in panels}) == len(panels)
        spots = [tuple(panel["gridPos"][key] for key in "xywh") for panel in panels]
        assert not [(a, b) for a, b in combinations(spots, 2) if overlap(a, b)]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_grafanas_own_types_understand_every_word(path: Path) -> None:
    """Nothing is lost when Grafana's SDK reads a dashboard and writes it again."""
    written = json.loads(path.read_text())
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(written)))
    assert not list(lost(written, read))


def lost(before: object, after: object, path: str = "") -> Iterator[str]:
    """Where `after` lacks something of `before`."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            yield from lost(value, after.get(key), f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from lost(one, other, f"{path}[{number}]")
    elif before != after:
        yield f"{path}: {before!r} became {after!r}"


def overlap(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two panels (x, y, width, height) have a place in common."""
    return a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]
