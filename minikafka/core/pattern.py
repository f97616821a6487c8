"""Patterns that clients send (KIP-1152: transactional ids; KIP-848: names of topics), by RE2, as Apache Kafka's RE2J has it.

RE2 never backtracks, so that matching takes time in proportion to the text. Writing a pattern down still may take long, and memory: both
are bounded. Match where nobody waits for the turn all the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import re2  # type: ignore[import-untyped]

#: Beyond them a pattern is refused; a longer one could take seconds to compile.
CHARACTERS_MAX = 4096
#: What a compiled pattern may take.
BYTES_MAX = 1 << 20


#: What RE2 says -> what RE2J says.
_WORDS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "bad repetition operator": "invalid nested repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "invalid repetition size": "invalid repeat count",
    "invalid named capture group": "invalid named capture",
}


def _described(error: Exception) -> str:
    """What is wrong, without the place."""
    text = error.args[0] if error.args else ""
    said = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    what = said.partition(": ")[0]
    return _WORDS.get(what, what)


class InvalidPattern(ValueError):
    """Not a pattern of RE2, or one that takes more than it may."""


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_regexp",)

    def __init__(self, text: str, bytes_max: int = BYTES_MAX) -> None:
        """Raises InvalidPattern."""
        if len(text) > CHARACTERS_MAX:
            raise InvalidPattern(f"a pattern of {len(text)} characters is longer than {CHARACTERS_MAX}")
        options = re2.Options()
        options.log_errors = False
        options.max_mem = bytes_max
        try:
            self._regexp = re2.compile(text, options)
        except (re2.error, UnicodeError) as error:
            raise InvalidPattern(_described(error)) from error
        finally:
            # The library would keep what clients send.
            re2.purge()

    def matches(self, text: str) -> bool:
        """Whether the whole text is of the pattern."""
        return self._regexp.fullmatch(text) is not None


def matching(pattern: str, texts: Iterable[str]) -> set[str]:
    """Those of the texts that match as a whole. Raises InvalidPattern."""
    matches = Pattern(pattern).matches
    return {text for text in texts if matches(text)}
