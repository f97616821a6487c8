"""Text for files and terminals, and metrics in Prometheus text format for node_exporter's textfile collector."""

from __future__ import annotations

import os
from collections.abc import Mapping

Labels = tuple[tuple[str, str], ...]
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def exposition(prefix: str, families: list[tuple[str, str, Mapping[Labels, float]]]) -> str:
    """The text of gauges, each given as (name without prefix, help, {labels: value})."""
    lines = []
    for name, meaning, samples in families:
        lines += [f"# HELP {prefix}_{name} {meaning}", f"# TYPE {prefix}_{name} gauge"]
        for labels, value in samples.items():
            said = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels)
            lines.append(f"{prefix}_{name}{'{' + said + '}' if said else ''} {value}")
    return "\n".join(lines) + "\n"


def printable(text: str, kept: str = "") -> str:
    """The text with escapes in place of what cannot be shown: names of files may hold any bytes. Of those that are no UTF-8, Python makes
    surrogates, which no file takes; control characters command terminals, and XML has none. `kept`: left as they are."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in kept else one.encode("unicode_escape").decode() for one in text)


def write_text(path: str, text: str) -> None:
    """Replace a file atomically. Raises OSError."""
    text = printable(text, kept="\n\t")
    temporary = path + ".tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)
