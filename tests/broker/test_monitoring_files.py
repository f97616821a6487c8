"""What the compose profile for monitoring is made of fits together; what it asks of brokers is tested in tests/dashboards."""

from __future__ import annotations

import json
import re
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
    seen_inside: dict[str, Path] = {}
    for service in (services["prometheus"], services["grafana"]):
        for volume in service["volumes"]:
            here, inside, _ = volume.split(":")
            assert (DOCKER.parent / here).exists(), volume
            seen_inside[inside] = DOCKER.parent / here
    for scrape in yaml.safe_load((DOCKER / "prometheus.yml").read_text())["scrape_configs"]:
        targets = scrape["static_configs"][0]["targets"]
        assert [target.split(":")[0] for target in targets] == compose
    source = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"][0]
    provider = yaml.safe_load((DOCKER / "grafana/provisioning/dashboards/minikafka.yml").read_text())["providers"][0]
    assert seen_inside[provider["options"]["path"]] == DASHBOARDS[0].parent
    folder, home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"].rsplit("/", 1)
    assert (seen_inside[folder] / home).exists()
    scrape_interval = yaml.safe_load((DOCKER / "prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scrape_interval, "$__rate_interval follows from it"
    dashboards = [json.loads(path.read_text()) for path in DASHBOARDS]
    assert len({dashboard["uid"] for dashboard in dashboards}) == len(dashboards) == 2
    for dashboard in dashboards:
        panels = dashboard["panels"]
        chosen = next(one for one in dashboard["templating"]["list"] if one["type"] == "datasource")
        assert (chosen["query"], chosen["current"]["value"]) == (source["type"], source["name"])
        users = [panel for panel in panels if panel["type"] != "row"] + dashboard["annotations"]["list"]
        users += [target for panel in panels for target in panel.get("targets", [])]
        users += [one for one in dashboard["templating"]["list"] if one["type"] == "query"]
        assert {(user["datasource"]["type"], user["datasource"]["uid"]) for user in users} == {(source["type"], f"${{{chosen['name']}}}")}
        assert all(panel["description"] for panel in panels if panel["type"] != "row")
        assert len({panel["id"] for panel in panels}) == len(panels)
        spots = [tuple(panel["gridPos"][key] for key in "xywh") for panel in panels]
        assert not [(a, b) for a, b in combinations(spots, 2) if overlap(a, b)]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_grafanas_own_types_understand_every_word(path: Path) -> None:
    """Nothing is lost when Grafana's SDK reads a dashboard and writes it again, but for the data source's own words for its annotations."""
    written = json.loads(path.read_text())
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(written)))
    assert not [what for what in lost(written, read) if not re.match(r"\.annotations\.list\[0\]\.(titleFormat|textFormat|tagKeys):", what)]


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
