"""Grafana dashboards as files: their panels, their variables as Grafana fills them in, and the series that they ask for."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SELECTOR = re.compile(r"(?P<over>(?:rate|irate|delta|increase)\()?\s*\b(?P<name>[a-z]\w*_\w+)\b\s*(?:\{(?P<matchers>[^}]*)\})?(?![\w(])")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*(["\'])(.*?)\3')
#: What stands between parentheses after these is a list of labels.
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")


@dataclass(frozen=True)
class Ask:
    """One selector of a panel. `matchers` are (label, operator, value); a value None is what a variable of the dashboard stands for."""

    dashboard: str
    panel: str
    over: str
    name: str
    matchers: tuple[tuple[str, str, str | None], ...]

    def line(self) -> str:
        """A line of asked.tsv."""
        spelled = [label if value is None else f'{label}{operator}"{value}"' for label, operator, value in self.matchers]
        return "\t".join((self.dashboard, self.panel, self.over, self.name, " ".join(spelled)))

    @classmethod
    def of_line(cls, line: str) -> Ask:
        """The inverse."""
        dashboard, panel, over, name, spelled = line.rstrip("\n").split("\t")
        matchers: list[tuple[str, str, str | None]] = []
        for part in spelled.split():
            found = MATCHER.fullmatch(part)
            matchers.append((part, "=~", None) if found is None else (found[1], found[2], found[4]))
        return cls(dashboard, panel, over, name, tuple(matchers))

    def promql(self, values: dict[str, str]) -> str:
        """The query, with a regular expression for each label that a variable chooses; `values` has those that are not '.+'."""
        inside = ",".join(
            f'{label}=~"{values.get(label, ".+")}"' if value is None else f'{label}{operator}"{value}"'
            for label, operator, value in self.matchers
        )
        selector = f"{self.name}{{{inside}}}"
        if self.over in ("rate", "irate", "delta", "increase"):
            return f"{self.over}({selector}[5m])"
        return selector + self.over


def panels(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(title, expression) of each query of each panel."""
    for panel in dashboard.get("panels", []):
        yield from panels(panel)
        for target in panel.get("targets", []):
            if target.get("expr"):
                yield panel.get("title", ""), target["expr"]
    for row in dashboard.get("rows", []):
        yield from panels(row)


def asks(name: str, dashboard: dict[str, Any]) -> Iterator[Ask]:
    """The selectors of a dashboard's panels."""
    for title, expression in panels(dashboard):
        bare = GROUPING.sub("", expression)
        for found in SELECTOR.finditer(bare):
            matchers = tuple(
                (label, operator, None if "$" in value else value) for label, operator, _, value in MATCHER.findall(found["matchers"] or "")
            )
            over = (found["over"] or "").rstrip("(")
            if re.search(r">\s*0\s*$", bare):
                over = " > 0"
            yield Ask(name, " ".join(title.split()), over, found["name"], matchers)


Query = Callable[[str], list[dict[str, str]]]


def fill_in(dashboard: dict[str, Any], query: Query, *, choose_all: bool = True) -> dict[str, str]:
    """Variable -> what stands for it in expressions, as Grafana does it: each is asked for with the ones before it filled in; "All" is
    chosen where it may be (with `choose_all`), else the first value. `query` gives the labels of an instant query's result."""
    values: dict[str, str] = {}
    for variable in dashboard.get("templating", {}).get("list", []):
        if variable.get("type") != "query":
            continue
        text = variable["query"]
        text = substitute(text["query"] if isinstance(text, dict) else text, values)
        found = _values(text, variable.get("regex") or "", values, query)
        if choose_all and variable.get("includeAll"):
            # A backslash of the expression is two in PromQL's string.
            escaped = [re.escape(one).replace("\\", "\\\\") for one in found]
            values[variable["name"]] = variable.get("allValue") or ("(" + "|".join(escaped) + ")" if found else "")
        else:
            values[variable["name"]] = found[0] if found else ""
    return values


def _values(text: str, regex: str, values: dict[str, str], query: Query) -> list[str]:
    match = re.fullmatch(r"label_values\((?:(.*),\s*)?(\w+)\s*\)", text, re.S)
    if match is not None:
        selector = match[1] or f'{{{match[2]}!=""}}'
        return sorted({labels[match[2]] for labels in query(selector) if labels.get(match[2])})
    inner = re.fullmatch(r"query_result\((.*)\)", text, re.S)
    assert inner is not None, f"an unknown kind of variable: {text}"
    pattern = re.compile(substitute(regex.strip("/"), values))
    texts = [
        labels.get("__name__", "") + "{" + ",".join(f'{k}="{v}"' for k, v in sorted(labels.items()) if k != "__name__") + "} 1 1"
        for labels in query(inner[1])
    ]
    return sorted({found[1] for found in map(pattern.match, texts) if found})


def substitute(text: str, values: dict[str, str]) -> str:
    """Put values for variables, and the intervals that Grafana would choose."""
    for name, value in {"__rate_interval": "1m", "__interval": "15s", "__range": "5m", **values}.items():
        text = text.replace("${" + name + "}", value)
        text = re.sub(rf"\${name}\b", lambda _, value=value: value, text)
    return text


if __name__ == "__main__":
    for path in sys.argv[1:]:
        for asked in dict.fromkeys(asks(Path(path).stem, json.loads(Path(path).read_text()))):
            print(asked.line())
