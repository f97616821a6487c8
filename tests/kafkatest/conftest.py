"""All scenarios but one run only when they are asked for: `pytest -m kafkatest tests/kafkatest`."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "kafkatest" in config.option.markexpr:
        return
    longer = [item for item in items if item.get_closest_marker("kafkatest")]
    if longer:
        config.hook.pytest_deselected(items=longer)
        items[:] = [item for item in items if item not in longer]
