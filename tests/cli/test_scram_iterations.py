"""The tool computes a password's verifiers itself: it refuses a number of iterations that would keep it busy for hours."""

from __future__ import annotations

import pytest

from minikafka.cli.users import _credential
from minikafka.client.errors import ClientError


@pytest.mark.parametrize("iterations", ["2000000000", "16385", "0", "-1", "many"])
def test_no_iterations_that_take_hours_or_mean_nothing(iterations: str) -> None:
    with pytest.raises(ClientError):
        _credential("SCRAM-SHA-256", f"iterations={iterations},password=p")


def test_those_of_a_broker_pass() -> None:
    assert _credential("SCRAM-SHA-256", "iterations=16384,password=p")["iterations"] == 16384
    assert _credential("SCRAM-SHA-256", "iterations=4095,password=p")["iterations"] == 4095  # the controller refuses it, in Kafka's words
    assert _credential("SCRAM-SHA-256", "password=p")["iterations"] == 4096
