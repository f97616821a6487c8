"""Straight-line codecs: Python source generated from a declaration, once for each message version that is used.

Neighbouring fields of constant size become one `struct.Struct`; lengths are checked against the bytes that are left before anything is
allocated; one-byte varints take a short path. See `wire/README.md` for what it must and must not accept.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from wire.errors import WireError
from wire.message import UNSET, Field, Message, Struct
from wire.types import Array, Fixed, Variable
from wire.varint import append_unsigned_varint, read_unsigned_varint

_LENGTHS = {"h": struct.Struct(">h"), "i": struct.Struct(">i")}


def _unsigned_varint(value: int) -> bytes:
    out = bytearray()
    append_unsigned_varint(out, value)
    return bytes(out)


_VARINTS = [_unsigned_varint(value) for value in range(1024)]


class _Source:
    """Lines of a function being written, and the names it refers to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {
            "WireError": WireError,
            "StructError": struct.error,
            "read_varint": read_unsigned_varint,
            "put_varint": append_unsigned_varint,
            "long_varint": _unsigned_varint,
            "varint_bytes": _VARINTS,
        }
        self._names = 0

    def add(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def bind(self, prefix: str, value: Any) -> str:
        for known, existing in self.scope.items():
            if existing is value and known.startswith(prefix):
                return known
        name = self.name(prefix)
        self.scope[name] = value
        return name

    def compile(self, function: str, label: str) -> Callable[..., Any]:
        exec(compile("\n".join(self.lines), f"<wire {label}>", "exec"), self.scope)  # noqa: S102 - text of our own making
        compiled: Callable[..., Any] = self.scope[function]
        return compiled


def is_null_allowed(declared: Field, version: int) -> bool:
    """Whether the field may be null in this version."""
    return version in declared.nullable


def fields_of(owner: type[Struct], version: int) -> list[Field]:
    """The fields that the version has outside its tagged section, in order."""
    return [f for f in owner.FIELDS if version in f.versions and not (f.tag is not None and version in f.tagged)]


def tagged_fields_of(owner: type[Struct], version: int) -> list[Field]:
    """The fields of the version's tagged section, by tag."""
    tagged = [f for f in owner.FIELDS if f.tag is not None and version in f.tagged]
    return sorted(tagged, key=lambda f: f.tag or 0)


def minimum_size(kind: Any, version: int, flexible: bool, nullable: bool = False) -> int:
    """The least number of bytes that a value of this type takes; used to bound array counts."""
    if isinstance(kind, Fixed):
        return kind.size
    if isinstance(kind, Variable):
        return 1 if flexible else (2 if kind.name == "string" else 4)
    if isinstance(kind, Array):
        return 1 if flexible else 4
    if nullable:
        return 1
    total = 1 if flexible else 0
    for declared in fields_of(kind, version):
        inner = declared.type if declared.type is not None else declared.struct
        total += minimum_size(inner, version, flexible, is_null_allowed(declared, version))
    return total


class _Decoder:
    """Writes the decoder of one message version."""

    def __init__(self, message: type[Message], version: int) -> None:
        self.version = version
        self.flexible = message.is_flexible(version)
        self.source = _Source()
        self.label = f"{message.__name__} v{version}"

    def build(self, message: type[Message]) -> Callable[..., Any]:
        source = self.source
        source.add(0, "def decode(b, p):")
        source.add(1, "limit = len(b)")
        source.add(1, "try:")
        target = self.struct(message, 2)
        source.add(1, "except (StructError, IndexError) as error:")
        source.add(2, f"raise WireError('{self.label}: ends in the middle of a field') from error")
        source.add(1, "if p > limit:")
        source.add(2, f"raise WireError('{self.label}: ends in the middle of a field')")
        source.add(1, f"return {target}, p")
        return source.compile("decode", f"decode {self.label}")

    def struct(self, owner: type[Struct], depth: int) -> str:
        source = self.source
        target = source.name("o")
        new = source.bind("new", object.__new__)
        cls = source.bind("cls", owner)
        source.add(depth, f"{target} = {new}({cls})")
        pending: list[Field] = []
        plain = fields_of(owner, self.version)
        for declared in plain:
            if isinstance(declared.type, Fixed):
                pending.append(declared)
                continue
            self.run(pending, target, depth)
            pending = []
            self.value(declared, f"{target}.{declared.name}", depth)
        self.run(pending, target, depth)
        tagged = tagged_fields_of(owner, self.version) if self.flexible else []
        for declared in owner.FIELDS:
            if declared not in plain:
                source.add(depth, f"{target}.{declared.name} = {self.default(declared)}")
        if self.flexible:
            self.tags(tagged, target, depth)
        return target

    def default(self, declared: Field) -> str:
        value = declared.default_value()
        if isinstance(value, list):
            return "[]"
        if isinstance(value, Struct):
            return f"{self.source.bind('cls', declared.struct)}()"
        return repr(value)

    def run(self, pending: list[Field], target: str, depth: int) -> None:
        if not pending:
            return
        kinds = [f.type for f in pending if isinstance(f.type, Fixed)]
        unpack = self.source.name("unpack")
        self.source.scope[unpack] = struct.Struct(">" + "".join(k.code for k in kinds)).unpack_from
        names = ", ".join(f"{target}.{f.name}" for f in pending)
        self.source.add(depth, f"{names}{',' if len(pending) == 1 else ''} = {unpack}(b, p)")
        self.source.add(depth, f"p += {sum(k.size for k in kinds)}")

    def tags(self, tagged: list[Field], target: str, depth: int) -> None:
        source = self.source
        count = source.name("n")
        source.add(depth, f"{count} = b[p]")
        source.add(depth, "p += 1")
        source.add(depth, f"if {count}:")
        depth += 1
        source.add(depth, f"if {count} > 127:")
        source.add(depth + 1, f"{count}, p = read_varint(b, p - 1)")
        source.add(depth, f"if {count} * 2 > limit - p:")
        source.add(depth + 1, f"raise WireError('{self.label}: more tagged fields than bytes')")
        tag, size, end = source.name("t"), source.name("z"), source.name("e")
        source.add(depth, f"for _ in range({count}):")
        depth += 1
        source.add(depth, f"{tag}, p = read_varint(b, p)")
        source.add(depth, f"{size}, p = read_varint(b, p)")
        source.add(depth, f"{end} = p + {size}")
        source.add(depth, f"if {end} > limit:")
        source.add(depth + 1, f"raise WireError('{self.label}: a tagged field is longer than the message')")
        for number, declared in enumerate(tagged):
            source.add(depth, f"{'if' if number == 0 else 'elif'} {tag} == {declared.tag}:")
            if isinstance(declared.type, Fixed):
                self.run([declared], target, depth + 1)
            else:
                self.value(declared, f"{target}.{declared.name}", depth + 1)
            source.add(depth + 1, f"if p > {end}:")
            source.add(depth + 2, f"raise WireError('{self.label}: {declared.name} is longer than its tagged field')")
        source.add(depth, f"p = {end}")

    def value(self, declared: Field, target: str, depth: int) -> None:
        nullable = is_null_allowed(declared, self.version)
        kind = declared.type
        if kind is None:
            assert declared.struct is not None
            self.single(declared.struct, target, nullable, self.version in declared.tagged, depth)
        elif isinstance(kind, Variable):
            self.variable(kind, target, nullable, depth, declared.name)
        elif isinstance(kind, Array):
            self.array(kind, target, nullable, depth, declared.name)

    def single(self, owner: type[Struct], target: str, nullable: bool, tagged: bool, depth: int) -> None:
        """A nullable struct begins with a byte: -1 null, 1 present; in a tagged field with a varint: 0 null, 1 present."""
        source = self.source
        if not nullable:
            value = self.struct(owner, depth)
            source.add(depth, f"{target} = {value}")
            return
        mark = source.name("n")
        source.add(depth, f"{mark} = b[p]")
        source.add(depth, "p += 1")
        source.add(depth, f"if {mark} == 0:" if tagged else f"if {mark} > 127:")
        source.add(depth + 1, f"{target} = None")
        source.add(depth, "else:")
        value = self.struct(owner, depth + 1)
        source.add(depth + 1, f"{target} = {value}")

    def length(self, code: str, size: int, depth: int) -> str:
        source = self.source
        count = source.name("n")
        if self.flexible:
            source.add(depth, f"{count} = b[p]")
            source.add(depth, "p += 1")
            source.add(depth, f"if {count} > 127:")
            source.add(depth + 1, f"{count}, p = read_varint(b, p - 1)")
            source.add(depth, f"{count} -= 1")
        else:
            unpack = source.bind(f"len{code}", _LENGTHS[code].unpack_from)
            source.add(depth, f"{count}, = {unpack}(b, p)")
            source.add(depth, f"p += {size}")
        return count

    def null(self, count: str, target: str, nullable: bool, depth: int, name: str) -> None:
        self.source.add(depth, f"if {count} < 0:")
        if nullable:
            self.source.add(depth + 1, f"{target} = None")
        else:
            self.source.add(depth + 1, f"raise WireError('{self.label}: {name} must not be null')")

    def variable(self, kind: Variable, target: str, nullable: bool, depth: int, name: str) -> None:
        source = self.source
        code, size = ("h", 2) if kind.name == "string" else ("i", 4)
        count = self.length(code, size, depth)
        self.null(count, target, nullable or kind.name == "records", depth, name)
        source.add(depth, "else:")
        end = source.name("e")
        source.add(depth + 1, f"{end} = p + {count}")
        source.add(depth + 1, f"if {end} > limit:")
        source.add(depth + 2, f"raise WireError('{self.label}: {name} is longer than the message')")
        values = {"string": "str(b[p:{}], 'utf-8', 'replace')", "bytes": "bytes(b[p:{}])", "records": "b[p:{}]"}
        source.add(depth + 1, f"{target} = {values[kind.name].format(end)}")
        source.add(depth + 1, f"p = {end}")

    def array(self, kind: Array, target: str, nullable: bool, depth: int, name: str) -> None:
        source = self.source
        count = self.length("i", 4, depth)
        element = kind.element
        self.null(count, target, nullable, depth, name)
        least = max(minimum_size(element, self.version, self.flexible), 1)
        source.add(depth, f"elif {count} * {least} > limit - p:")
        source.add(depth + 1, f"raise WireError('{self.label}: {name} has more elements than bytes')")
        source.add(depth, "else:")
        depth += 1
        if isinstance(element, Fixed):
            if element.code == "16s":
                source.add(depth, f"{target} = [bytes(b[i:i + 16]) for i in range(p, p + 16 * {count}, 16)]")
            else:
                many = source.bind("unpack_many", struct.unpack_from)
                source.add(depth, f"{target} = list({many}(f'>{{{count}}}{element.code}', b, p)) if {count} else []")
            source.add(depth, f"p += {element.size} * {count}")
            return
        items, loop = source.name("a"), source.name("i")
        source.add(depth, f"{target} = {items} = []")
        source.add(depth, f"for {loop} in range({count}):")
        if isinstance(element, Variable):
            value = source.name("v")
            self.variable(element, value, False, depth + 1, name)
        else:
            assert isinstance(element, type)
            value = self.struct(element, depth + 1)
        source.add(depth + 1, f"{items}.append({value})")


class _Encoder:
    """Writes the encoder of one message version."""

    def __init__(self, message: type[Message], version: int) -> None:
        self.version = version
        self.flexible = message.is_flexible(version)
        self.source = _Source()
        self.label = f"{message.__name__} v{version}"
        self.out = "w"

    def build(self, message: type[Message]) -> Callable[..., Any]:
        source = self.source
        source.add(0, "def encode(o, pieces):")
        source.add(1, "w = pieces.append")
        source.add(1, "try:")
        self.struct(message, "o", 2)
        source.add(2, "pass")
        source.add(1, "except (StructError, AttributeError, TypeError) as error:")
        source.add(2, f"raise WireError(f'{self.label}: {{error}} in {{o!r}}') from error")
        return source.compile("encode", f"encode {self.label}")

    def struct(self, owner: type[Struct], target: str, depth: int) -> None:
        source = self.source
        fields = fields_of(owner, self.version)
        tagged = tagged_fields_of(owner, self.version) if self.flexible else []
        for declared in owner.FIELDS:
            if declared not in fields and declared not in tagged and not declared.ignorable:
                condition = self.differs(declared, f"{target}.{declared.name}")
                source.add(depth, f"if {condition}:")
                source.add(depth + 1, f"raise WireError('{self.label} has no field {declared.name}')")
        pending: list[Field] = []
        for declared in fields:
            if isinstance(declared.type, Fixed):
                pending.append(declared)
                continue
            self.run(pending, target, depth)
            pending = []
            self.value(declared, f"{target}.{declared.name}", depth)
        self.run(pending, target, depth)
        if self.flexible:
            self.tags(tagged, target, depth)

    def differs(self, declared: Field, target: str) -> str:
        value = declared.default_value()
        if isinstance(value, list):
            return target
        if value is None and declared.struct is not None and self.version in declared.tagged:
            # Kafka's generated code compares with an empty struct whatever the default, so null is written.
            return f"{target} != {self.source.bind('fresh', declared.struct)}()"
        if value is None:
            return f"{target} is not None"
        if isinstance(value, Struct):
            return f"{target} != {self.source.bind('fresh', declared.struct)}()"
        if isinstance(declared.type, Variable) and declared.default is UNSET:
            return target
        return f"{target} != {value!r}"

    def run(self, pending: list[Field], target: str, depth: int) -> None:
        if not pending:
            return
        codes = "".join(f.type.code for f in pending if isinstance(f.type, Fixed))
        pack = self.source.name("pack")
        self.source.scope[pack] = struct.Struct(">" + codes).pack
        names = ", ".join(f"{target}.{f.name}" for f in pending)
        self.source.add(depth, f"{self.out}({pack}({names}))")

    def tags(self, tagged: list[Field], target: str, depth: int) -> None:
        source = self.source
        if not tagged:
            source.add(depth, f"{self.out}(b'\\0')")
            return
        section, count = source.name("s"), source.name("n")
        source.add(depth, f"{section} = None")
        source.add(depth, f"{count} = 0")
        for declared in tagged:
            value = f"{target}.{declared.name}"
            source.add(depth, f"if {self.differs(declared, value)}:")
            body, outer = source.name("y"), self.out
            source.add(depth + 1, f"if {section} is None: {section} = bytearray()")
            source.add(depth + 1, f"{count} += 1")
            source.add(depth + 1, f"{body} = []")
            self.out = f"{body}.append"
            if isinstance(declared.type, Fixed):
                self.run([declared], target, depth + 1)
            else:
                self.value(declared, value, depth + 1)
            self.out = outer
            source.add(depth + 1, f"{body} = b''.join({body})")
            source.add(depth + 1, f"put_varint({section}, {declared.tag})")
            source.add(depth + 1, f"put_varint({section}, len({body}))")
            source.add(depth + 1, f"{section} += {body}")
        source.add(depth, f"{self.out}(varint_bytes[{count}])")
        source.add(depth, f"if {count}:")
        source.add(depth + 1, f"{self.out}(bytes({section}))")

    def value(self, declared: Field, target: str, depth: int) -> None:
        nullable = is_null_allowed(declared, self.version)
        kind = declared.type
        source = self.source
        if kind is None:
            assert declared.struct is not None
            local = source.name("x")
            source.add(depth, f"{local} = {target}")
            if nullable:
                source.add(depth, f"if {local} is None:")
                null = b"\0" if self.version in declared.tagged else b"\xff"
                source.add(depth + 1, f"{self.out}({null!r})")
                source.add(depth, "else:")
                source.add(depth + 1, f"{self.out}(b'\\x01')")
                depth += 1
            self.struct(declared.struct, local, depth)
        elif isinstance(kind, Variable):
            self.variable(kind, target, nullable, depth, declared.name)
        elif isinstance(kind, Array):
            self.array(kind, target, nullable, depth, declared.name)

    def null(self, code: str, target: str, nullable: bool, depth: int, name: str) -> None:
        source = self.source
        source.add(depth, f"if {target} is None:")
        if nullable:
            empty = b"\0" if self.flexible else (b"\xff\xff" if code == "h" else b"\xff\xff\xff\xff")
            source.add(depth + 1, f"{self.out}({empty!r})")
        else:
            source.add(depth + 1, f"raise WireError('{self.label}: {name} must not be null')")

    def length(self, code: str, size: str, depth: int) -> None:
        source = self.source
        if self.flexible:
            count = source.name("n")
            source.add(depth, f"{count} = {size} + 1")
            source.add(depth, f"{self.out}(varint_bytes[{count}] if {count} < 1024 else long_varint({count}))")
        else:
            pack = source.bind(f"plen{code}", _LENGTHS[code].pack)
            source.add(depth, f"{self.out}({pack}({size}))")

    def variable(self, kind: Variable, target: str, nullable: bool, depth: int, name: str) -> None:
        source = self.source
        code = "h" if kind.name == "string" else "i"
        local = source.name("v")
        source.add(depth, f"{local} = {target}")
        self.null(code, local, nullable or kind.name == "records", depth, name)
        source.add(depth, "else:")
        if kind.name == "string":
            source.add(depth + 1, f"{local} = {local}.encode('utf-8', 'surrogatepass')")
        size = f"len({local})"
        if kind.name == "records":
            size = f"(len({local}) if isinstance({local}, (bytes, memoryview, bytearray)) else {local}.size)"
        self.length(code, size, depth + 1)
        source.add(depth + 1, f"{self.out}({local})")

    def array(self, kind: Array, target: str, nullable: bool, depth: int, name: str) -> None:
        source = self.source
        local = source.name("v")
        source.add(depth, f"{local} = {target}")
        self.null("i", local, nullable, depth, name)
        source.add(depth, "else:")
        depth += 1
        self.length("i", f"len({local})", depth)
        element = kind.element
        if isinstance(element, Fixed):
            if element.code == "16s":
                source.add(depth, f"{self.out}(b''.join({local}))")
            else:
                pack = source.bind("pack_many", struct.pack)
                source.add(depth, f"{self.out}({pack}(f'>{{len({local})}}{element.code}', *{local}))")
            return
        item = source.name("x")
        source.add(depth, f"for {item} in {local}:")
        if isinstance(element, Variable):
            self.variable(element, item, False, depth + 1, name)
        else:
            assert isinstance(element, type)
            before = len(source.lines)
            self.struct(element, item, depth + 1)
            if len(source.lines) == before:
                source.add(depth + 1, "pass")


def _check_version(message: type[Message], version: int) -> None:
    if not message.MIN_VERSION <= version <= message.MAX_VERSION:
        raise WireError(f"{message.__name__} has versions {message.MIN_VERSION}-{message.MAX_VERSION}, not {version}")


def decoder_for(message: type[Message], version: int) -> Callable[..., Any]:
    """Compile and remember the decoder of one version. Raises WireError for a version that does not exist."""
    _check_version(message, version)
    decoder = _Decoder(message, version).build(message)
    message._decoders[version] = decoder
    return decoder


def encoder_for(message: type[Message], version: int) -> Callable[..., Any]:
    """Compile and remember the encoder of one version. Raises WireError for a version that does not exist."""
    _check_version(message, version)
    encoder = _Encoder(message, version).build(message)
    message._encoders[version] = encoder
    return encoder
