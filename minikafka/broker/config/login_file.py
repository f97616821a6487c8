"""Translates the JAAS file of KAFKA_OPTS=-Djava.security.auth.login.config=FILE into properties.

Source: JaasContext.java. A listener's section is NAME.KafkaServer with the name in lower case, else KafkaServer. Properties take
precedence over the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from minikafka.broker.config.properties import ConfigurationError

_OPTION = re.compile(r"-Djava\.security\.auth\.login\.config==?(?:\"([^\"]*)\"|(\S+))")
_TOKEN = re.compile(r"""\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[{}=;]|[^\s"'{}=;]+)""", re.DOTALL)
_SECTION = "KafkaServer"
#: Mechanism -> its login module: the name of the Java class without the package.
MODULES = {"PLAIN": "PlainLoginModule", "SCRAM-SHA-256": "ScramLoginModule", "SCRAM-SHA-512": "ScramLoginModule"}


def properties_of_login_file(java_options: str, properties: Mapping[str, str], read_file: Callable[[str], str]) -> dict[str, str]:
    """listener.name.NAME.MECHANISM.sasl.jaas.config of each SASL listener for which `properties` do not set it.

    `java_options`: the value of KAFKA_OPTS. The file is read only if it is needed. Raises ConfigurationError.
    """
    named = _OPTION.search(java_options)
    if named is None:
        return {}
    wanted = {
        f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": (listener, mechanism)
        for listener in _sasl_listeners(properties)
        for mechanism in _mechanisms(properties, listener)
    }
    wanted = {name: what for name, what in wanted.items() if name not in properties}
    if not wanted:
        return {}
    path = named[1] or named[2]
    try:
        sections = login_sections(read_file(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError([f"KAFKA_OPTS: cannot read the login file {path}: {reason}"]) from None
    except ValueError as error:
        raise ConfigurationError([f"KAFKA_OPTS: the login file {path}: {error}"]) from None
    found = {}
    for name, (listener, mechanism) in wanted.items():
        modules = sections.get(f"{listener}.{_SECTION}", sections.get(_SECTION, []))
        for module in modules:
            if module.split(" ", 1)[0].rpartition(".")[2] == MODULES[mechanism]:
                found[name] = module
                break
    return found


def login_sections(text: str) -> dict[str, list[str]]:
    """Login modules by section, in the syntax of sasl.jaas.config. Raises ValueError, which never contains text of the file."""
    sections: dict[str, list[str]] = {}
    words: list[str] = []
    section: str | None = None
    for token in _tokens(text):
        if token == "{":
            if section is not None or len(words) != 1:
                raise ValueError("a section must be written NAME { ... };")
            section, words = words[0], []
            sections[section] = []
        elif token == "}":
            if section is None or words:
                raise ValueError("each login module must end with a semicolon, each section with };")
            section = None
        elif token != ";":
            words.append(token)
        elif words:
            if section is None:
                raise ValueError("a login module must be in a section, as in KafkaServer { ... };")
            sections[section].append(f"{' '.join(words)};")
            words = []
    if section is not None or words:
        raise ValueError("the last section does not end with };")
    return sections


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError("a quotation mark is not closed")
        position = match.end()
        if match[1]:
            tokens.append(match[1])
    return tokens


def _sasl_listeners(properties: Mapping[str, str]) -> list[str]:
    """The names of the listeners that use SASL, in lower case."""
    protocols = [entry.strip().rpartition(":") for entry in properties.get("listener.security.protocol.map", "").split(",")]
    protocols += [(name, "", name) for name in (entry.strip().partition("://")[0] for entry in properties.get("listeners", "").split(","))]
    return list(dict.fromkeys(name.strip().lower() for name, _, protocol in protocols if protocol.strip().upper().startswith("SASL_")))


def _mechanisms(properties: Mapping[str, str], listener: str) -> list[str]:
    enabled = properties.get(f"listener.name.{listener}.sasl.enabled.mechanisms", properties.get("sasl.enabled.mechanisms", ""))
    own = [properties.get(f"sasl.mechanism.{role}.protocol", "") for role in ("inter.broker", "controller")]
    named = [name.strip().upper() for name in [*enabled.split(","), *own]]
    return [name for name in dict.fromkeys(named) if name in MODULES]
