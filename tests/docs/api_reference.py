"""Makes docs/api.md from the docstrings of what users import."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from typing import Any

MODULES = ("minikafka", "minikafka.client", "minikafka.testing", "minikafka.spark")
HEAD = """# Python API

What `minikafka.client`, `minikafka.testing` and `minikafka.spark` export. These names stay; everything else may change without notice.
This page is made from the docstrings.
"""


def api_page() -> str:
    """docs/api.md."""
    lines = [HEAD]
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        lines += [f"## {module_name}", "", _text(module), ""]
        for name in module.__all__:
            lines += _entry(name, getattr(module, name))
    return "\n".join(lines).rstrip() + "\n"


def _entry(name: str, value: Any) -> list[str]:
    if inspect.isclass(value):
        return _class(name, value)
    if inspect.isroutine(value):
        return [f"### {name}", "", f"`{_signature(name, value)}`", "", _text(value), ""]
    return [f"### `{name}`", "", "The version, as text." if name == "__version__" else f"`{value!r}`", ""]


def _class(name: str, value: type) -> list[str]:
    lines = [f"### {name}", "", f"`{_signature(name, value)}`", "", _text(value), ""]
    rows = []
    for member in sorted(_members(value)):
        found = inspect.getattr_static(value, member)
        target = found.fget if isinstance(found, property) else getattr(value, member)
        shown = member if isinstance(found, property) else _signature(member, target, is_method=not isinstance(found, staticmethod))
        rows.append(f"| `{shown.replace('|', chr(92) + '|')}` | {_text(target).replace(chr(10), ' ').replace('|', chr(92) + '|')} |")
    if rows:
        lines += ["| member | |", "|---|---|", *rows, ""]
    return lines


def _members(value: type) -> set[str]:
    """Public methods and properties that have a docstring of ours."""
    if issubclass(value, BaseException):
        return set()
    own = [base for base in value.__mro__ if base.__module__.startswith("minikafka")]
    fields = {one.name for one in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    inherited = {name: found for base in own for name, found in vars(base).items() if not name.startswith("_") and name not in fields}
    kinds = (property, staticmethod, classmethod)
    return {name for name, found in inherited.items() if inspect.isroutine(found) or isinstance(found, kinds)}


def _signature(name: str, value: Any, *, is_method: bool = False) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    parameters = list(signature.parameters.values())
    if is_method and parameters and parameters[0].name == "self":
        parameters = parameters[1:]
    plain = [_plain(parameter) for parameter in parameters]
    text = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    returned = signature.return_annotation
    shown = "" if inspect.isclass(value) or returned in (inspect.Signature.empty, "None", None) else f" -> {_type(returned)}"
    return f"{'await ' if inspect.iscoroutinefunction(value) else ''}{name}{text}{shown}"


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    annotation = parameter.annotation
    default = parameter.default
    if default is not inspect.Parameter.empty and not isinstance(default, (str, int, float, bool, tuple, type(None))):
        default = _Shown("...")
    shown = annotation if annotation is inspect.Parameter.empty else _Shown(_type(annotation))
    return parameter.replace(annotation=shown, default=default)


class _Shown:
    """Stands in a signature as this text, without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _type(annotation: Any) -> str:
    annotation = getattr(annotation, "__forward_arg__", annotation)
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)


def _text(value: Any) -> str:
    return inspect.cleandoc(getattr(value, "__doc__", None) or "").strip()
