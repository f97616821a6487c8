"""The disks of simulated clusters in the midst of what brokers do (tests/bench/audit_simulated.py): no copy may be an alarm."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).resolve().parents[1]
#: Short runs, with kills, power cuts, transactions, compaction and reassignments between them.
SEEDS = (30000, 30002, 30112, 30125)


@pytest.fixture(scope="module")
def simulated() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit_simulated", TESTS / "bench" / "audit_simulated.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit_simulated"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", SEEDS)
def test_no_moment_of_a_cluster_is_an_alarm(seed: int, simulated: ModuleType, tmp_path: Path) -> None:
    copies = simulated.copies_of(seed, 3, tmp_path).copies
    assert len(copies) > 1
    outcomes = {}
    for copy in copies:
        result = simulated.audit(copy)
        assert simulated.alarms(result, copy.harmed) == [], copy.place.name
        outcomes[copy.place.name] = result.outcome
    assert outcomes[f"{seed}-stopped"] == "PASS"  # all nodes stopped in order: everything can be compared
