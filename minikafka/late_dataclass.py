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
_FIELDS, _LATE, _VALUES = "__dataclass_fields__", "__late_fields__", "__late_values__"

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
        if _LATE in base.__dict__:
            declared |= base.__dict__[_LATE].declared
    inherited = set(declared)
    declared |= {name: _Declared(cls.__annotations__[name], cls.__dict__.get(name, MISSING)) for name in own}
    late = _Late(declared, frozen)
    namespace = {name: value for name, value in cls.__dict__.items() if name not in own and name not in ("__dict__", "__weakref__")}
    namespace["__slots__"] = tuple(name for name in own if name not in inherited)
    namespace["__match_args__"] = tuple(name for name, field in declared.items() if field.is_argument)
    namespace[_LATE], namespace[_FIELDS] = late, _Fields(late)
    namespace.setdefault("__repr__", _repr)
    if eq:
        compared = [name for name, field in declared.items() if field.is_compared]
        namespace[_VALUES] = attrgetter(*compared) if compared else staticmethod(_nothing)
        namespace.setdefault("__eq__", _eq)
        if namespace.get("__hash__") is None:
            namespace["__hash__"] = _hash if frozen else None
    if frozen:
        namespace |= _FROZEN
    made = late.owner = type(cls)(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    if "__init__" not in namespace:
        made.__init__ = _late_init(late)  # type: ignore[misc]
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


class _Late:
    """What a class declares."""

    __slots__ = ("declared", "is_frozen", "owner")

    def __init__(self, declared: dict[str, _Declared], is_frozen: bool) -> None:
        self.declared = declared
        self.is_frozen = is_frozen
        self.owner: Any = object


class _Fields:
    """Stands for a class's `__dataclass_fields__` until somebody asks for them, as `replace` does."""

    __slots__ = ("_late",)

    def __init__(self, late: _Late) -> None:
        self._late = late

    def __get__(self, instance: object, owner: type) -> Any:
        cls, declared = self._late.owner, self._late.declared
        given = {name: field.written for name, field in declared.items() if field.written is not MISSING}
        annotations = {name: field.annotation for name, field in declared.items()}
        shadow: Any = type(cls.__name__, (), {**given, "__annotations__": annotations, "__doc__": cls.__doc__ or "Fields."})
        fields = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(shadow).__dataclass_fields__
        setattr(cls, _FIELDS, fields)
        return fields


# -- methods of all classes ----------------------------------------------------------------------------------------


@recursive_repr()
def _repr(self: Any) -> str:
    shown = [f"{name}={getattr(self, name)!r}" for name, field in self.__late_fields__.declared.items() if field.is_shown]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _eq(self: Any, other: Any) -> Any:
    return self.__late_values__(self) == self.__late_values__(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(self.__late_values__(self))


def _nothing(self: Any) -> tuple[()]:
    return ()


def _refuse_change(self: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__late_fields__.declared]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__late_fields__.declared, state, strict=True):
        object.__setattr__(self, name, value)


_FROZEN = {"__setattr__": _refuse_change, "__delattr__": _refuse_deletion, "__getstate__": _get_state, "__setstate__": _set_state}


def _late_init(late: _Late) -> Callable[..., None]:
    """An `__init__` that replaces itself by the real one on its first call."""

    def __init__(self: Any, *positional: Any, **named: Any) -> None:
        made = late.owner.__init__ = _make_init(late)
        made(self, *positional, **named)

    return __init__


def _make_init(late: _Late) -> Callable[..., None]:
    scope: dict[str, Any] = {"MADE": object()}
    arguments, lines = ["self"], []
    for name, field in late.declared.items():
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
        if late.is_frozen:
            # A frozen object refuses `self.name = value`.
            scope[f"set_{name}"] = getattr(late.owner, name).__set__
        lines.append(f"    set_{name}(self, {value})" if late.is_frozen else f"    self.{name} = {value}")
    if hasattr(late.owner, "__post_init__"):
        lines.append("    self.__post_init__()")
    exec(f"def __init__({', '.join(arguments)}):\n" + "\n".join(lines or ["    pass"]), scope)
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{late.owner.__qualname__}.__init__"
    return made
