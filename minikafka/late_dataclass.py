"""Dataclasses with slots that cost little until they are used.

The standard library writes and compiles up to seven methods for each dataclass at once. A broker imports more than two hundred, and needs
few of those methods. Here only `__init__` is compiled, when the first object is made; the other methods need no code of their own.
`replace`, `fields` and `asdict` of the standard library work, and type checkers see its decorator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

MISSING: Any = dataclasses.MISSING
_FIELDS, _LATE = "__dataclass_fields__", "__late_fields__"

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, slots: bool, frozen: bool = False, eq: bool = True) -> Callable[[type], type]:
        """As the standard library's. Classes without slots are not supported."""
        if not slots:
            raise TypeError("only classes with slots")
        return lambda cls: _made(cls, frozen, eq)


def _made(cls: type, frozen: bool, eq: bool) -> type:
    """The class with slots that takes the place of `cls`."""
    own = [name for name, annotation in cls.__annotations__.items() if not str(annotation).startswith("ClassVar")]
    declared: dict[str, _Declared] = {}
    for base in reversed(cls.__mro__[1:-1]):
        if _FIELDS in base.__dict__:
            declared |= base.__dict__[_LATE].declared
    inherited = set(declared)
    declared |= {name: _Declared(cls.__annotations__[name], cls.__dict__.get(name, MISSING)) for name in own}
    late = _LateFields(declared)
    namespace = {name: value for name, value in cls.__dict__.items() if name not in own and name not in ("__dict__", "__weakref__")}
    namespace["__slots__"] = tuple(name for name in own if name not in inherited)
    namespace["__match_args__"] = tuple(name for name, field in declared.items() if field.is_argument)
    namespace[_FIELDS] = namespace[_LATE] = late
    namespace.setdefault("__repr__", _repr([name for name, field in declared.items() if field.is_shown]))
    if eq:
        _add_comparison(namespace, [name for name, field in declared.items() if field.is_compared], frozen)
    if frozen:
        _freeze(namespace, list(declared))
    made = late.owner = type(cls)(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    if "__init__" not in namespace:
        made.__init__ = _late_init(made, declared, frozen)  # type: ignore[misc]
    return made


class _Declared:
    """One field as its class declares it."""

    __slots__ = ("annotation", "default", "factory", "is_argument", "is_compared", "is_shown", "written")

    def __init__(self, annotation: Any, written: Any) -> None:
        self.annotation = annotation
        self.written = written
        self.default, self.factory = written, MISSING
        self.is_argument = self.is_compared = self.is_shown = True
        if isinstance(written, dataclasses.Field):
            self.default, self.factory = written.default, written.default_factory
            self.is_argument, self.is_compared, self.is_shown = written.init, written.compare, written.repr


class _LateFields:
    """What a class declares. Stands for its `__dataclass_fields__` until somebody asks for them, as `replace` does."""

    __slots__ = ("declared", "owner")

    def __init__(self, declared: dict[str, _Declared]) -> None:
        self.declared = declared
        self.owner: type = object

    def __get__(self, instance: object, owner: type) -> Any:
        given = {name: field.written for name, field in self.declared.items() if field.written is not MISSING}
        annotations = {name: field.annotation for name, field in self.declared.items()}
        shadow: Any = type(self.owner.__name__, (), {**given, "__annotations__": annotations, "__doc__": self.owner.__doc__ or "Fields."})
        fields = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(shadow).__dataclass_fields__
        setattr(self.owner, _FIELDS, fields)
        return fields


def _repr(names: list[str]) -> Any:
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return recursive_repr()(__repr__)


def _add_comparison(namespace: dict[str, Any], names: list[str], frozen: bool) -> None:
    values: Callable[[Any], Any] = attrgetter(*names) if names else lambda self: ()

    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    namespace.setdefault("__eq__", __eq__)
    if namespace.get("__hash__") is None:
        namespace["__hash__"] = __hash__ if frozen else None


def _freeze(namespace: dict[str, Any], names: list[str]) -> None:
    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    namespace.update(__getstate__=__getstate__, __setstate__=__setstate__, __setattr__=_refuse_change, __delattr__=_refuse_deletion)


def _refuse_change(self: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _late_init(owner: Any, declared: dict[str, _Declared], frozen: bool) -> Callable[..., None]:
    """An `__init__` that replaces itself by the real one on its first call."""

    def __init__(self: Any, *positional: Any, **named: Any) -> None:
        made = owner.__init__ = _make_init(owner, declared, frozen)
        made(self, *positional, **named)

    return __init__


def _make_init(owner: Any, declared: dict[str, _Declared], frozen: bool) -> Callable[..., None]:
    scope: dict[str, Any] = {"MADE": object()}
    arguments, lines = ["self"], []
    for name, field in declared.items():
        value, argument = name, name
        if field.factory is not MISSING:
            scope[f"make_{name}"] = field.factory
            argument = f"{name}=MADE"
            value = f"make_{name}() if {name} is MADE else {name}" if field.is_argument else f"make_{name}()"
        elif field.default is not MISSING:
            scope[f"default_{name}"] = field.default
            argument = f"{name}=default_{name}"
            value = name if field.is_argument else f"default_{name}"
        elif not field.is_argument:
            continue
        if field.is_argument:
            arguments.append(argument)
        if frozen:
            # A frozen object refuses `self.name = value`.
            scope[f"set_{name}"] = getattr(owner, name).__set__
        lines.append(f"    set_{name}(self, {value})" if frozen else f"    self.{name} = {value}")
    if hasattr(owner, "__post_init__"):
        lines.append("    self.__post_init__()")
    exec(f"def __init__({', '.join(arguments)}):\n" + "\n".join(lines or ["    pass"]), scope)
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{owner.__qualname__}.__init__"
    return made
