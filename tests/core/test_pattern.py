"""Patterns of clients: what RE2 means by them, and that none of them takes long."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.core.pattern import CHARACTERS_MAX, InvalidPattern, Pattern, matching


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("a.*", "abc", True), ("b", "abc", False), ("abc|d", "abc", True), (r"\d+", "12", True), ("(?i)ABC", "abc", True),
        ("é+", "éé", True), (r"\pL+", "ñandú", True), ("", "", True), (".", "\n", False),
    ],
)  # fmt: skip
def test_the_whole_text_is_matched(pattern: str, text: str, matches: bool) -> None:
    assert Pattern(pattern).matches(text) is matches


@pytest.mark.parametrize(
    "pattern", ["(", "a{1001}", "(?=a)", r"(a)\1", "*", "[z-a]", "((a{1000}){1000})", "x" * (CHARACTERS_MAX + 1), "\ud800"]
)
def test_patterns_outside_re2_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+b", "(a|a)*b", "(((a*)*)*)*b", "(.*)*(.*)*(.*)*b", "(a?){60}a{60}b", "(x|y|z|a)*" * 400, r"\pL" * 300, "(" * 900 + ")" * 900],
)
def test_no_pattern_takes_long(pattern: str) -> None:
    began_s = time.process_time()
    with contextlib.suppress(InvalidPattern):
        matching(pattern, ["a" * 249] * 20)
    assert time.process_time() - began_s < 2


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab()[]{}*+?|.\\^$,0129-:PpLs", max_size=40), st.text(alphabet="ab0", max_size=30))
def test_any_text_is_a_pattern_or_refused(pattern: str, text: str) -> None:
    with contextlib.suppress(InvalidPattern):
        assert matching(pattern, [text]) <= {text}


WITHOUT_RE2 = """
import sys
sys.modules["re2"] = None
from minikafka.core.pattern import InvalidPattern, Pattern
from minikafka.testing import EmbeddedBroker
with EmbeddedBroker(topics=["t"]) as broker:
    assert broker.leader("t", 0) == 1
try:
    Pattern("a.*")
except InvalidPattern as error:
    print(error)
"""


def test_without_re2_only_patterns_are_refused() -> None:
    """As on Alpine, where it has no wheels."""
    said = subprocess.run([sys.executable, "-c", WITHOUT_RE2], capture_output=True, text=True, check=True).stdout
    assert said == "patterns need the package google-re2, which is not installed here\n"
