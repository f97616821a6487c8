"""Declaring messages: one typed class body for all versions of a message.

    class HeartbeatRequest(Request, api_key=12, versions="0-4", flexible="4+"):
        group_id: str = field(string, "0+")
        group_instance_id: str | None = field(string, "3+", nullable="3+", default=None)

Handlers use the declared class itself: it has slots, keyword arguments with Kafka's defaults, equality and a repr. `wire.message` adds
encoding and decoding.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from minikafka.late_dataclass import dataclass
from minikafka.wire.types import Array, Fixed, Group, Type, Variable, Versions


class _Unset:
    """Stands for "no default given"; the default is then the zero value of the type."""


UNSET = _Unset()


@dataclass(frozen=True, slots=True)
class Field:
    """One declared field. `type` is None for a single nested struct, whose class is then `struct`."""

    name: str
    struct: type[Struct] | None
    type: Type | None
    versions: Versions
    nullable: Versions
    default: Any
    tag: int | None
    tagged: Versions
    ignorable: bool
    map_key: bool

    def omitted_value(self) -> Any:
        """The value for which a tagged field is left out. Kafka's generated code compares a struct with an empty one, so a null struct is
        written."""
        value = self.default_value()
        return self.struct() if value is None and self.struct is not None else value

    def default_value(self) -> Any:
        """A fresh default."""
        if self.default is UNSET:
            return zero_value(self)
        return self.default


@dataclass(frozen=True, slots=True)
class _Declared:
    type: Type | type[Struct]
    versions: str
    nullable: str | None
    default: Any
    tag: int | None
    tagged: str | None
    ignorable: bool
    map_key: bool


def field(
    kind: Any,
    versions: str,
    *,
    nullable: str | None = None,
    default: Any = UNSET,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    map_key: bool = False,
) -> Any:
    """Declare a field: its type, the versions that have it, where it may be null, its default, its tag (KIP-482)."""
    return _Declared(kind, versions, nullable, default, tag, tagged, ignorable, map_key)


def zero_value(declared: Field) -> Any:
    """The default of a field that declares none."""
    if isinstance(declared.type, Fixed):
        return declared.type.zero
    if isinstance(declared.type, Array):
        return []
    if isinstance(declared.type, Variable):
        return "" if declared.type.name == "string" else b""
    assert declared.struct is not None
    return shared_default(declared.struct)


def shared_default(struct: type[Struct]) -> Struct:
    """The one instance that every message uses for a nested struct with default values. It cannot be changed: to set a field, assign the
    message a struct of its own."""
    found = _SHARED_DEFAULTS.get(struct)
    if found is None:
        frozen: Any = StructMeta(f"Default{struct.__name__}", (struct,), {"__setattr__": _refuse_change, "STRUCT": struct})
        frozen.FIELDS = struct.FIELDS
        found = object.__new__(frozen)
        for declared in struct.FIELDS:
            object.__setattr__(found, declared.name, declared.default_value())
        _SHARED_DEFAULTS[struct] = found
    shared: Struct = found
    return shared


_SHARED_DEFAULTS: dict[type[Struct], Any] = {}


def _refuse_change(self: Struct, name: str, value: Any) -> None:
    raise AttributeError(f"{type(self).__name__} is shared by all messages: assign a {self.STRUCT.__name__} of your own")


class StructMeta(type):
    """Turns declared fields into slots and an `__init__`."""

    FIELDS: tuple[Field, ...]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> StructMeta:
        fields = []
        for key, value in list(namespace.items()):
            if isinstance(value, _Declared):
                fields.append(_field(key, value))
                del namespace[key]
        namespace["__slots__"] = tuple(declared.name for declared in fields)
        namespace["FIELDS"] = tuple(fields)
        if fields:
            namespace["_values"] = attrgetter(*namespace["__slots__"])
        made = super().__new__(mcs, name, bases, namespace, **options)
        if fields:
            type.__setattr__(made, "__init__", _late_init(made, fields))
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, namespace)
        cls.STRUCT = namespace.get("STRUCT", cls)


def _field(name: str, declared: _Declared) -> Field:
    kind = declared.type
    nested = isinstance(kind, type)
    return Field(
        name=name,
        type=None if nested else kind,  # type: ignore[arg-type]
        struct=kind if nested else None,  # type: ignore[arg-type]
        versions=Versions.parse(declared.versions),
        nullable=Versions.parse(declared.nullable),
        default=declared.default,
        tag=declared.tag,
        tagged=Versions.parse(declared.tagged if declared.tagged or declared.tag is None else declared.versions),
        ignorable=declared.ignorable,
        map_key=declared.map_key,
    )


def _late_init(owner: type, fields: list[Field]) -> Callable[..., None]:
    """An `__init__` that replaces itself by the real one on its first call: a process uses few of the 400 structs that it imports."""

    def init(self: Any, **values: Any) -> None:
        made = _make_init(fields)
        type.__setattr__(owner, "__init__", made)
        made(self, **values)

    return init


def _make_init(fields: list[Field]) -> Callable[..., None]:
    scope: dict[str, Any] = {"UNSET": UNSET}
    arguments, lines = [], []
    for declared in fields:
        default = declared.default_value()
        if isinstance(default, list):
            arguments.append(f"{declared.name}=UNSET")
            lines.append(f"    self.{declared.name} = [] if {declared.name} is UNSET else {declared.name}")
        else:
            scope[f"_default_{declared.name}"] = default
            arguments.append(f"{declared.name}=_default_{declared.name}")
            lines.append(f"    self.{declared.name} = {declared.name}")
    exec(f"def __init__(self, *, {', '.join(arguments)}):\n" + "\n".join(lines), scope)
    made: Callable[..., None] = scope["__init__"]
    return made


class Struct(Group, metaclass=StructMeta):
    """A declared group of fields inside a message."""

    FIELDS: ClassVar[tuple[Field, ...]]
    STRUCT: ClassVar[type]
    #: The values of all fields.
    _values: ClassVar[attrgetter[Any]] = attrgetter("FIELDS")

    if TYPE_CHECKING:
        # Every field has a default, which `dataclass_transform` cannot express.
        def __init__(self, **fields: Any) -> None: ...

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or other.STRUCT is not self.STRUCT:
            return NotImplemented
        values = self._values
        # Records compare by content, whether they are bytes, bytearray or memoryview.
        return bool(values(self) == values(other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in self.FIELDS if getattr(self, f.name) != f.default_value())
        return f"{type(self).__qualname__}({shown})"


class VersionedStruct(Struct):
    """A struct with versions of its own, and the compiled codecs of the versions in use."""

    NAME: ClassVar[str] = ""
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int | None] = None
    _decoders: ClassVar[dict[int, Callable[..., Any]]]
    _encoders: ClassVar[dict[int, Callable[..., Any]]]
    _step_decoders: ClassVar[dict[int, Callable[..., Any]]]
    _step_encoders: ClassVar[dict[int, Callable[..., Any]]]

    def __init_subclass__(cls, *, versions: str | None = None, flexible: str | None = None) -> None:
        super().__init_subclass__()
        if versions is None:
            return
        span = Versions.parse(versions)
        flexible_span = Versions.parse(flexible)
        cls.NAME = cls.__name__
        cls.MIN_VERSION, cls.MAX_VERSION = span.low, span.high
        cls.FLEXIBLE_FROM = flexible_span.low if flexible_span.low <= flexible_span.high else None
        cls._decoders, cls._encoders = {}, {}
        cls._step_decoders, cls._step_encoders = {}, {}

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Whether the version has compact lengths and tagged fields (KIP-482)."""
        return cls.FLEXIBLE_FROM is not None and version >= cls.FLEXIBLE_FROM
