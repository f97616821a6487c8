"""What every test run plays of the chaos: one fault of each family, on three and on five nodes. Longer: README.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos import disk
from chaos.run import COPIES, run

pytestmark = pytest.mark.timeout(180)
PLANS = {
    3: ["kill leader", "stall a follower", "silence leader", "isolate controller", "pause leader", "disk slow", "disk EIO", "wipe"],
    5: ["mute leader", "kill controller", "wipe, start at once", "majority ring"],
}


@pytest.mark.parametrize("nodes", [3, pytest.param(5, marks=pytest.mark.long)])
def test_nothing_acknowledged_is_lost(nodes: int, tmp_path: Path) -> None:
    plan = [name for name in PLANS[nodes] if disk.compiler() is not None or not name.startswith("disk")]
    reported: list[str] = []
    copies = {"copy-bundled": COPIES["copy-bundled"]} if nodes == 3 else {}
    figures = run(seed=nodes, nodes=nodes, directory=tmp_path, say=reported.append, plan=plan, fault_s=(0.5, 1.5), copies=copies)
    assert figures.problems == [], "\n".join(reported + figures.problems)
    assert figures.faults == dict.fromkeys(plan, 1)
    if nodes == 3:
        assert figures.transactions > 20 and figures.transactions_aborted > 0 and figures.copied == figures.acknowledged
    assert figures.audit == "PASS" and figures.acknowledged > 1000 and figures.polled > figures.acknowledged
