"""Writes metrics in Prometheus text format for node_exporter's textfile collector. Files are replaced atomically."""

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


def write_text(path: str, text: str) -> None:
    """Replace a file atomically. Raises OSError."""
    temporary = path + ".tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)
