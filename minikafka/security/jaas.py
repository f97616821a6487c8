"""Parses sasl.jaas.config: one login module with options, in Java's syntax (org.apache.kafka.common.security.JaasConfig)."""

from __future__ import annotations

import re

from minikafka.late_dataclass import dataclass
from minikafka.security.errors import SecurityError

_TOKEN = re.compile(r"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([=;])|([^\s"'=;]+))""")
_FLAGS = ("required", "requisite", "sufficient", "optional")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """`name` is the Java class without its package; `options` are as written."""

    name: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name}, {', '.join(sorted(self.options))})"

    def credentials(self) -> tuple[str, str]:
        """(username, password). Raises SecurityError if either is missing."""
        user, password = self.options.get("username"), self.options.get("password")
        if not user or password is None:
            raise SecurityError("sasl.jaas.config: username and password are missing, as in username=\"alice\" password=\"...\"")
        return user, password


def parse_jaas(text: str) -> LoginModule:
    """Parse `org.apache...PlainLoginModule required username="alice" password="secret";`. Raises SecurityError, without values."""
    tokens = _tokens(text)
    if not tokens or tokens[-1] != (";", False):
        raise SecurityError("sasl.jaas.config: must be one login module, ended by a semicolon")
    if (";", False) in tokens[:-1]:
        raise SecurityError("sasl.jaas.config: there must be one login module, not several")
    words = tokens[:-1]
    if len(words) < 2 or words[1][0].lower() not in _FLAGS:
        raise SecurityError(f"sasl.jaas.config: the login module must be followed by one of {', '.join(_FLAGS)}")
    rest = words[2:]
    if len(rest) % 3 or any(equals != ("=", False) for equals in rest[1::3]):
        raise SecurityError('sasl.jaas.config: options must be written name="value"')
    options = {name: value for (name, _), (value, _) in zip(rest[0::3], rest[2::3], strict=True)}
    return LoginModule(words[0][0].rpartition(".")[2], options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """(token, whether it was quoted) for each token."""
    tokens: list[tuple[str, bool]] = []
    position, text = 0, text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise SecurityError("sasl.jaas.config: a quotation mark is not closed")
        position = match.end()
        quoted = match[1] if match[1] is not None else match[2]
        if quoted is not None:
            tokens.append((re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), quoted, flags=re.DOTALL), True))
        else:
            tokens.append((match[3] or match[4], False))
    return tokens
