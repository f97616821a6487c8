"""Bits that flip in a simulated cluster: who finds them, and that everything goes on."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from minikafka.sim.swarm import ROT_KINDS, Fault, Options, draw
from minikafka.sim.world import Outcome, World


def play(options: Options, *faults: Fault) -> tuple[Outcome, str]:
    """A run without a violation, and what was told in it."""
    world = World(options, list(faults))
    outcome = world.run()
    assert outcome.violation is None, outcome.story
    assert all(outcome.injected[fault.kind] for fault in faults)
    return outcome, "\n".join(f"{who} {text}" for _, who, text in world.lines)


@pytest.mark.parametrize("misses_every", [0, 1])
def test_a_leader_of_the_quorum_that_is_to_hand_on_what_has_rotted_ends_and_another_leads(misses_every: int) -> None:
    """A broker without a log asks for everything; a voter with such a log does not vote until it has everything again. A leader that had to
    wait for the disk led on, and ended its followers' connections."""
    fault = Fault(0.5, "rot_metadata", "controller", 1.8, pick=4)
    _, reported = play(Options(seed=1, shape="quorum", duration_s=4.0, misses_every=misses_every), fault)
    assert "the metadata quorum stops on this node: /data/__cluster_metadata-0: the batch at offset 0 of the metadata log is" in reported
    assert "epoch 2 of the metadata quorum has leader" in reported
    assert reported.count("the metadata log is removed") == 1, "the broker's"
    assert re.search(r"does not vote until .*\n(.*\n)*.*nothing is missing any more; this voter votes again", reported)


@pytest.mark.parametrize(
    ("pick", "line"),
    [
        (0, r"__consumer_offsets-1 cannot be loaded: a batch at offset 0 "),
        (8, r"__consumer_offsets-1: cannot append the records of broker \d: .* the batch at offset 0 is corrupt"),
    ],
)
def test_groups_go_on_when_a_rotten_copy_is_replaced(pick: int, line: str) -> None:
    """A follower's copy, who then leads; or the leader's, which another is to copy."""
    fault = Fault(1.0, "rot_internal", "any", 0.6, pick)
    outcome, reported = play(Options(seed=3, shape="combined", duration_s=3.0, pace_s=0.05), fault)
    assert re.search(line, reported) and "/data/__consumer_offsets-1 is removed" in reported
    assert outcome.consumed > 0


def test_rot_is_drawn_apart() -> None:
    """A seed without the faults that came later is what it was."""
    drawn = [draw(seed) for seed in range(200)]
    with_rot = [(options, faults) for options, faults in drawn if any(fault.kind in ROT_KINDS for fault in faults)]
    assert 20 < len(with_rot) < 60
    for options, faults in with_rot:
        assert options.profile not in ("calm", "one")
        assert all(earlier.at_s <= later.at_s for earlier, later in pairwise(faults))


def test_a_voter_whose_power_cut_left_a_gap_goes_on_when_it_has_everything_again() -> None:
    """It cannot tell a hole from rot."""
    faults = [Fault(0.5, "hole", "controller", 0.5, pick) for pick in range(8)]
    for seed in range(1, 9):
        world = World(Options(seed=seed, shape="quorum", duration_s=4.0), faults[seed - 1 : seed])
        outcome = world.run()
        assert outcome.violation is None, outcome.story
        reported = "\n".join(text for _, _, text in world.lines)
        if "does not vote until" in reported:
            assert "the metadata log has a gap in the batch at" in reported and "this voter votes again" in reported
            return
    raise AssertionError("no hole in eight seeds")
