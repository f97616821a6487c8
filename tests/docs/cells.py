"""Cells of Markdown tables that both the site and code forges show as they are meant."""

from __future__ import annotations

import html
import re


def row(*cells: object) -> str:
    """A line of a table. A bar would begin another cell, also in code; the site shows the backslash that forges want before it there."""
    return f"| {' | '.join(_cell(str(cell)) for cell in cells)} |"


def prose(text: str) -> str:
    """Running text whose stars are no emphasis."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("*", "\\*") for part in parts)


def _cell(text: str) -> str:
    if "|" not in text:
        return text
    return re.sub(r"`([^`]*\|[^`]*)`", lambda found: _code(found[1]), text).replace("|", "&#124;")


def _code(text: str) -> str:
    shown = html.escape(text, quote=False)
    for mark in "|*_":
        shown = shown.replace(mark, f"&#{ord(mark)};")
    return f"<code>{shown}</code>"
