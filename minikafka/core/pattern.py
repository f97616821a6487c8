"""Patterns that clients send (KIP-1152: transactional ids; KIP-848: topic names), evaluated by RE2, like Apache Kafka's RE2J.

RE2 never backtracks, so matching takes time in proportion to the text. Compiling a pattern may still take long and need much memory; both
are limited. Nevertheless, do not match in the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable

#: Longer patterns are refused; they could take seconds to compile.
CHARACTERS_MAX = 4096
#: Most memory of a compiled pattern.
BYTES_MAX = 1 << 20


#: RE2's message -> RE2J's message.
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
