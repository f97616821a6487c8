"""Makes docs/api.md from the docstrings of what users import."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from typing import Any

from cells import prose, row

MODULES = ("minikafka", "minikafka.client", "minikafka.testing", "minikafka.spark")
HEAD = """# Python API

This page lists the names that `minikafka`, `minikafka.client`, `minikafka.testing` and `minikafka.spark` export. These names are stable;
everything else may change without notice. The page is generated from docstrings. Below the heading of a class is its constructor, unless
you get its objects only from other functions.
"""
#: What the page writes for types that have a name of their own in the code only.
SPELLED = {
    "Engine": "LocalEngine | SparkEngine", "Header": "tuple[str, bytes | None]", "Progress": "Callable", "SomeCluster": "EmbeddedCluster | "
    "ExternalCluster", "Mode": "Literal['thread', 'process']", "TopicPartition": "tuple[str, int]",
}  # fmt: skip
#: Types of this package's own, besides what users pass.
NOT_PASSED = (" | ClientSecurity",)
#: Parameters that the tests of this package need.
OWN_PARAMETERS = {"network", "random_bytes"}
#: Classes that users get and do not make.
RETURNED = {
    "AuditResult", "BrokerHandle", "BrokerInfo", "ClusterDescription", "ConfigEntry", "ConsumedRecord", "ErrorCode", "Fault", "FilesReport",
    "GroupDescription", "ListedOffset", "LoadReport", "MemberDescription", "PartitionDescription", "PartitionState", "RecordMetadata",
    "TopicDescription",
}  # fmt: skip
#: Public members that only this package uses, or Spark.
OWN_MEMBERS = {
    "AuditResult": {"findings", "partitions", "plan"},
    "BrokerHandle": {"ask", "raise_if_dead"},
    "EmbeddedCluster": {"await_start", "layout"},
    "LocalEngine": {"gather", "map", "open"},
    "MinikafkaDataSource": {"name", "reader", "schema", "streamReader", "streamWriter", "writer"},
    "Security": {"connect", "login"},
    "SparkEngine": {"gather", "map", "open"},
}


def api_page() -> str:
    """docs/api.md."""
    lines = [HEAD]
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        shown = {value for name in module.__all__ if inspect.isclass(value := getattr(module, name))}
        lines += [f"## {module_name}", "", _text(module), ""]
        for name in module.__all__:
            lines += _entry(name, getattr(module, name), shown)
    return "\n".join(lines).rstrip() + "\n"


def _entry(name: str, value: Any, shown: set[type]) -> list[str]:
    if inspect.isclass(value):
        return _class(name, value, shown)
    if inspect.isroutine(value):
        return [f"### {name}", "", f"`{_signature(name, value)}`", "", _text(value), ""]
    return [f"### `{name}`", "", "The version, as text." if name == "__version__" else f"`{value!r}`", ""]


def _class(name: str, value: type, shown: set[type]) -> list[str]:
    lines = [f"### {name}", ""] if name in RETURNED else [f"### {name}", "", f"`{_signature(name, value)}`", ""]
    lines += [_text(value), ""]
    how = _text(vars(value).get("__init__")) if name not in RETURNED else ""
    lines += [how, ""] if how and value.__init__ is not object.__init__ else []
    base = next((base for base in value.__mro__[1:] if base in shown and not issubclass(value, BaseException)), None)
    inherited = _members(base) if base is not None else set()
    if base is not None:
        lines += [f"It has everything that [{base.__name__}](#{base.__name__.lower()}) has, and:", ""]
    own = OWN_MEMBERS.get(name, set())
    fields = _fields(value) if name in RETURNED else []
    rows = [row(f"`{field}: {annotation}`", "") for field, annotation in fields if field not in own]
    for member in sorted(_members(value) - inherited - own):
        found = inspect.getattr_static(value, member)
        target = found.fget if isinstance(found, property) else getattr(value, member)
        call = member if isinstance(found, property) else _signature(member, target, is_method=not isinstance(found, staticmethod))
        rows.append(row(f"`{call}`", " ".join(_text(target).split())))
    if rows:
        lines += ["| member | |", "|---|---|", *rows, ""]
    return lines


def _fields(value: Any) -> list[tuple[str, str]]:
    """Fields of a dataclass or a named tuple, with their types."""
    found = {one.name: one.type for one in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else {}
    found = found or {name: value.__annotations__[name] for name in getattr(value, "_fields", ())}
    return [(name, _type(annotation)) for name, annotation in found.items()]


def _members(value: type) -> set[str]:
    """Public methods and properties that have a docstring of ours."""
    if issubclass(value, BaseException):
        return set()
    own = [base for base in value.__mro__ if base.__module__.startswith("minikafka")]
    fields = {name for name, _ in _fields(value)}
    inherited = {name: found for base in own for name, found in vars(base).items() if not name.startswith("_") and name not in fields}
    kinds = (property, staticmethod, classmethod)
    return {name for name, found in inherited.items() if inspect.isroutine(found) or isinstance(found, kinds)}


def _signature(name: str, value: Any, *, is_method: bool = False) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name not in OWN_PARAMETERS]
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
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)
    for own in NOT_PASSED:
        text = text.replace(own, "")
    return re.sub(r"\b\w+\b", lambda found: SPELLED.get(found[0], found[0]), text)


def _text(value: Any) -> str:
    return prose(inspect.cleandoc(getattr(value, "__doc__", None) or "").strip())
