"""Patterns that RE2 accepts and RE2J, which Apache Kafka uses, does not. The messages are those of RE2J 1.8."""

from __future__ import annotations

import pytest

from minikafka.core.pattern import InvalidPattern, Pattern

ESCAPE, NAME, TWICE = "invalid escape sequence", "invalid named capture", "duplicate capture group name"
COUNT, NESTED, PARENTHESIS = "invalid repeat count", "invalid nested repetition operator", "regexp/syntax: internal error"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (r"\C", ESCAPE), (r"a\C*", ESCAPE), (r"[a]\\\C", ESCAPE), (r"\Q[\E\C", ESCAPE), (r"[[:alpha:]]\C", ESCAPE), ("(?P<é>a)", NAME),
        ("(?<ä>a)", NAME), ("(?P<n>a)(?P<n>b)", TWICE), ("(?<n>a)|(?P<n>b)", TWICE), ("a{99999999999}", COUNT), ("a{1,123456789}", COUNT),
        ("{*", NESTED), ("a{+}", NESTED), ("a{{2}", NESTED), (".A{?", NESTED), ("a)", PARENTHESIS),
    ],
)  # fmt: skip
def test_what_re2j_refuses_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidPattern, match=reason.replace("(", r"\(")):
        Pattern(text)


@pytest.mark.parametrize(
    ("text", "matched"),
    [
        (r"\\C", r"\C"),
        (r"\Q\C\E", r"\C"), ("[{]*", "{{"), (r"\{*", "{{"), ("{a*", "{aa"), ("{", "{"),
        ("a{01}", "a{01}"), ("(?P<n>a)(?P<m>b)", "ab"), ("a{000000001}", "a{000000001}"), ("[]{]+", "]{"),
        ("[[:alpha:]{]+", "a{"), (r"[\]{]+", "]{"), ("[(?P<n>](?P<n>a)", "na"),
    ],
)  # fmt: skip
def test_what_only_looks_like_it_is_not(text: str, matched: str) -> None:
    assert Pattern(text).matches(matched)
