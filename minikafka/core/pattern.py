"""Patterns that clients send (KIP-1152: transactional ids; KIP-848: topic names), evaluated by RE2, like Apache Kafka's RE2J.

RE2 never backtracks, so matching takes time in proportion to the text. Compiling a pattern may still take long and need much memory; both
are limited. Nevertheless, do not match in the event loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

#: Longer patterns are refused; they could take seconds to compile.
CHARACTERS_MAX = 4096
#: Most memory of a compiled pattern.
BYTES_MAX = 1 << 20


#: RE2's message -> RE2J's message.
_WORDS = {
    "missing )": "missing closing )",
    "unexpected )": "regexp/syntax: internal error",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "bad repetition operator": "invalid nested repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "invalid repetition size": "invalid repeat count",
    "invalid named capture group": "invalid named capture",
}

#: The pieces of a pattern that RE2 accepts: quoted text, escapes, classes, the beginning of a named group, counts of repetitions.
_PIECES = re.compile(
    r"""\\Q.*?(?:\\E|\Z) | \\. | \[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\] | \(\?P?<(?P<name>[^>]*)> | (?P<count>\{\d+(?:,\d*)?\}) | .""",
    re.DOTALL | re.VERBOSE,
)
_NAME = re.compile(r"[0-9A-Za-z_]+")
#: RE2J's longest count, in digits.
_DIGITS = 8


def _unlike_re2j(text: str) -> Iterator[str]:
    """Why RE2J refuses what RE2 accepts."""
    names: set[str] = set()
    after_brace = False
    for piece in _PIECES.finditer(text):
        found, name, count = piece[0], piece["name"], piece["count"]
        if found == "\\C":
            # Any byte: a Java text has none.
            yield "invalid escape sequence"
        elif name is not None and not _NAME.fullmatch(name):
            yield "invalid named capture"
        elif name in names:
            yield "duplicate capture group name"
        elif count and any(len(number) > _DIGITS and number[0] != "0" for number in count[1:-1].split(",")):
            yield "invalid repeat count"
        elif after_brace and (found in "*+?" or count):
            # RE2J takes a brace that means itself for a repetition.
            yield "invalid nested repetition operator"
        if name is not None:
            names.add(name)
        after_brace = found == "{"


def _described(error: Exception) -> str:
    """The message without the position."""
    text = error.args[0] if error.args else ""
    said = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    what = said.partition(": ")[0]
    return _WORDS.get(what, what)


class InvalidPattern(ValueError):
    """The text is not an RE2 pattern, or exceeds a limit; or RE2 is not installed."""


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_regexp",)

    def __init__(self, text: str, bytes_max: int = BYTES_MAX) -> None:
        """Raises InvalidPattern."""
        if len(text) > CHARACTERS_MAX:
            raise InvalidPattern(f"a pattern of {len(text)} characters is longer than {CHARACTERS_MAX}")
        try:
            import re2  # type: ignore[import-untyped]
        except ImportError:
            # There are no wheels of it for musl (Alpine): everything but patterns works without.
            raise InvalidPattern("patterns need the package google-re2, which is not installed here") from None
        options = re2.Options()
        options.log_errors = False
        options.max_mem = bytes_max
        try:
            self._regexp = re2.compile(text, options)
        except (re2.error, UnicodeError) as error:
            raise InvalidPattern(_described(error)) from error
        else:
            for reason in _unlike_re2j(text):
                raise InvalidPattern(reason)
        finally:
            # Without this the library would cache clients' patterns.
            re2.purge()

    def matches(self, text: str) -> bool:
        """Whether the pattern matches the whole text."""
        return self._regexp.fullmatch(text) is not None


def matching(pattern: str, texts: Iterable[str]) -> set[str]:
    """The texts that the pattern matches as a whole. Raises InvalidPattern."""
    matches = Pattern(pattern).matches
    return {text for text in texts if matches(text)}
