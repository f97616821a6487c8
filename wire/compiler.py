"""Straight-line codecs: Python source generated from a message version's layout when that version is first used.

Neighbouring fields of constant size become one `struct.Struct`; lengths are checked against the bytes that are left before anything is
allocated; one-byte varints take a short path. `wire/README.md` lists what the codecs accept and refuse.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from minikafka.wire.declaration import UNSET, Field, Struct, VersionedStruct
from minikafka.wire.errors import NotEncodable, WireError
from minikafka.wire.layout import ArrayNode, FixedLeaf, Node, NullableNode, StructNode, TaggedNode, UuidLeaf, VariableLeaf, layout
from minikafka.wire.types import STRING_BYTES_MAX, TAGGED_FIELDS_MAX, Variable
from minikafka.wire.varint import append_unsigned_varint, read_unsigned_varint, unsigned_varint

#: Arrays of up to this many numbers are read and written with a precompiled `struct`.
ARRAY_TABLE_MAX = 16
#: Elements that a codec handles in one step; NUMBERS_AN_ELEMENT plain numbers count as one element.
STEP_ELEMENTS = 512
NUMBERS_AT_ONCE = 4096
NUMBERS_AN_ELEMENT = 8
#: A longer text may exceed STRING_BYTES_MAX once its invalid UTF-8 is replaced: one byte becomes three.
_DOUBTFUL_BYTES = STRING_BYTES_MAX // 3
_LENGTHS = {2: struct.Struct(">h"), 4: struct.Struct(">i")}

_VARINTS = [unsigned_varint(value) for value in range(1024)]


_READERS: dict[str, list[Callable[..., tuple[Any, ...]]]] = {}
_WRITERS: dict[tuple[str, str, str], list[Callable[..., bytes]]] = {}


def _readers(code: str) -> list[Callable[..., tuple[Any, ...]]]:
    """By count: functions that read that many numbers from a buffer at a position."""
    table = _READERS.get(code)
    if table is None:
        table = _READERS[code] = [struct.Struct(f">{count}{code}").unpack_from for count in range(ARRAY_TABLE_MAX + 1)]
    return table


def _writers(prefix: str, code: str, suffix: str) -> list[Callable[..., bytes]]:
    """By count: functions that pack that many numbers between a prefix and a suffix."""
    table = _WRITERS.get((prefix, code, suffix))
    if table is None:
        table = [struct.Struct(f">{prefix}{count}{code}{suffix}").pack for count in range(ARRAY_TABLE_MAX + 1)]
        _WRITERS[prefix, code, suffix] = table
    return table


class _Source:
    """The lines of a generated function, and the names it refers to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {
            "WireError": WireError,
            "NotEncodable": NotEncodable,
            "StructError": struct.error,
            "read_varint": read_unsigned_varint,
            "put_varint": append_unsigned_varint,
            "long_varint": unsigned_varint,
            "varint_bytes": _VARINTS,
        }
        self._names = 0

    def add(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def bind(self, prefix: str, value: Any) -> str:
        for name, existing in self.scope.items():
            if existing is value and name.startswith(prefix):
                return name
        name = self.name(prefix)
        self.scope[name] = value
        return name

    def compile(self, function: str, label: str) -> Callable[..., Any]:
        exec(compile("\n".join(self.lines), f"<wire {label}>", "exec"), self.scope)
        compiled: Callable[..., Any] = self.scope[function]
        return compiled


def _count(source: _Source, depth: int, amount: str = "1") -> None:
    """Count elements, and yield after every STEP_ELEMENTS of them."""
    source.add(depth, f"k += {amount}")
    source.add(depth, "if k >= due:")
    source.add(depth + 1, f"due = k + {STEP_ELEMENTS}")
    source.add(depth + 1, "yield k")


Leaf = FixedLeaf | UuidLeaf
Named = tuple[Field, Node]


def _runs(fields: list[Named]) -> list[list[Named]]:
    """The fields in order; neighbours of constant size form one group."""
    runs: list[list[Named]] = []
    for entry in fields:
        if isinstance(entry[1], (FixedLeaf, UuidLeaf)) and runs and isinstance(runs[-1][0][1], (FixedLeaf, UuidLeaf)):
            runs[-1].append(entry)
        else:
            runs.append([entry])
    return runs


class _Decoder:
    """Generates the decoder of one message version."""

    def __init__(self, label: str, *, in_steps: bool = False) -> None:
        """`in_steps` gives a generator that yields the number of elements read so far and returns what the plain decoder returns. It takes
        a list to which it adds every list that it makes."""
        self.source = _Source()
        self.label = label
        self.in_steps = in_steps

    def build(self, tree: StructNode) -> Callable[..., Any]:
        source = self.source
        source.add(0, "def decode(b, p, made):" if self.in_steps else "def decode(b, p):")
        if self.in_steps:
            source.add(1, f"k, due = 0, {STEP_ELEMENTS}")
            source.add(1, "yield 0")
        source.add(1, "limit = len(b)")
        source.add(1, "try:")
        target = self.struct(tree, 2)
        source.add(1, "except (StructError, IndexError) as error:")
        source.add(2, f"raise WireError('{self.label}: ends in the middle of a field') from error")
        source.add(1, "if p > limit:")
        source.add(2, f"raise WireError('{self.label}: ends in the middle of a field')")
        source.add(1, f"return {target}, p")
        return source.compile("decode", f"decode {self.label}")

    def struct(self, node: StructNode, depth: int) -> str:
        source = self.source
        target = source.name("o")
        new = source.bind("new", object.__new__)
        cls = source.bind("cls", node.owner)
        source.add(depth, f"{target} = {new}({cls})")
        runs = _runs(node.fields)
        length: str | None = None
        for number, run in enumerate(runs):
            following = runs[number + 1][0][1] if number + 1 < len(runs) else node.tagged
            length = self.run(run, target, depth, length, following)
        tagged = node.tagged.fields if node.tagged is not None else []
        for declared in [*node.absent, *(declared for declared, _ in tagged)]:
            source.add(depth, f"{target}.{declared.name} = {self.default(declared)}")
        if node.tagged is not None:
            self.tags(node.tagged, target, depth, length)
        return target

    def default(self, declared: Field) -> str:
        value = declared.default_value()
        if isinstance(value, list):
            return "[]"
        if isinstance(value, Struct):
            return self.source.bind("shared", value)
        return repr(value)

    def run(
        self, run: list[Named], target: str, depth: int, length: str | None = None, following: Node | TaggedNode | None = None
    ) -> str | None:
        """Unpack neighbouring constant-size fields at once, or decode one field of another kind.

        The unpacking may include the length of the field that follows (its first byte if it is a varint); the name of that variable is
        returned, and the next call takes it as `length`.
        """
        declared, node = run[0]
        if not isinstance(node, (FixedLeaf, UuidLeaf)):
            self.value(node, f"{target}.{declared.name}", depth, declared.name, length)
            return None
        leaves = [leaf for _, leaf in run if isinstance(leaf, (FixedLeaf, UuidLeaf))]
        codes, size = "".join(leaf.code for leaf in leaves), sum(leaf.size for leaf in leaves)
        names = [f"{target}.{f.name}" for f, _ in run]
        ready: str | None = None
        if isinstance(following, (VariableLeaf, ArrayNode, TaggedNode)):
            compact = isinstance(following, TaggedNode) or following.length.flexible
            width = 1 if isinstance(following, TaggedNode) or compact else following.length.size
            codes, size, ready = codes + {1: "B", 2: "h", 4: "i"}[width], size + width, self.source.name("n")
            names.append(ready)
        unpack = self.source.name("unpack")
        self.source.scope[unpack] = struct.Struct(">" + codes).unpack_from
        self.source.add(depth, f"{', '.join(names)}{',' if len(names) == 1 else ''} = {unpack}(b, p)")
        self.source.add(depth, f"p += {size}")
        return ready

    def tags(self, node: TaggedNode, target: str, depth: int, length: str | None = None) -> None:
        source = self.source
        count = length or source.name("n")
        if length is None:
            source.add(depth, f"{count} = b[p]")
            source.add(depth, "p += 1")
        source.add(depth, f"if {count}:")
        depth += 1
        source.add(depth, f"if {count} > 127:")
        source.add(depth + 1, f"{count}, p = read_varint(b, p - 1)")
        source.add(depth, f"if {count} > {TAGGED_FIELDS_MAX} or {count} * 2 > limit - p:")
        source.add(depth + 1, f"raise WireError('{self.label}: more tagged fields than bytes')")
        tag, size, end = source.name("t"), source.name("z"), source.name("e")
        source.add(depth, f"for _ in range({count}):")
        depth += 1
        source.add(depth, f"{tag}, p = read_varint(b, p)")
        source.add(depth, f"{size}, p = read_varint(b, p)")
        source.add(depth, f"{end} = p + {size}")
        source.add(depth, f"if {end} > limit:")
        source.add(depth + 1, f"raise WireError('{self.label}: a tagged field is longer than the message')")
        for number, (declared, inner) in enumerate(node.fields):
            source.add(depth, f"{'if' if number == 0 else 'elif'} {tag} == {declared.tag}:")
            self.run([(declared, inner)], target, depth + 1)
            source.add(depth + 1, f"if p > {end}:")
            source.add(depth + 2, f"raise WireError('{self.label}: {declared.name} is longer than its tagged field')")
        source.add(depth, f"p = {end}")
        if self.in_steps:
            _count(source, depth)

    def value(self, node: Node, target: str, depth: int, name: str, length: str | None = None) -> None:
        if isinstance(node, VariableLeaf):
            self.variable(node, target, depth, name, length)
        elif isinstance(node, ArrayNode):
            self.array(node, target, depth, name, length)
        elif isinstance(node, NullableNode):
            presence = self.source.name("n")
            self.source.add(depth, f"{presence} = b[p]")
            self.source.add(depth, "p += 1")
            self.source.add(depth, f"if {presence} == 0:" if node.is_tagged else f"if {presence} > 127:")
            self.source.add(depth + 1, f"{target} = None")
            self.source.add(depth, "else:")
            value = self.struct(node.struct, depth + 1)
            self.source.add(depth + 1, f"{target} = {value}")
        else:
            assert isinstance(node, StructNode)
            value = self.struct(node, depth)
            self.source.add(depth, f"{target} = {value}")

    def length(self, node: VariableLeaf | ArrayNode, depth: int, ready: str | None) -> str:
        """The name of the variable that holds the length. `ready` names the variable if its first byte (or all of it) was already read."""
        source = self.source
        count = ready or source.name("n")
        if node.length.flexible:
            if ready is None:
                source.add(depth, f"{count} = b[p]")
                source.add(depth, "p += 1")
            source.add(depth, f"if {count} > 127:")
            source.add(depth + 1, f"{count}, p = read_varint(b, p - 1)")
            source.add(depth, f"{count} -= 1")
        elif ready is None:
            unpack = source.bind("length", _LENGTHS[node.length.size].unpack_from)
            source.add(depth, f"{count}, = {unpack}(b, p)")
            source.add(depth, f"p += {node.length.size}")
        return count

    def null(self, node: VariableLeaf | ArrayNode, count: str, target: str, depth: int, name: str) -> None:
        self.source.add(depth, f"if {count} < 0:")
        if node.nullable:
            self.source.add(depth + 1, f"{target} = None")
        else:
            self.source.add(depth + 1, f"raise WireError('{self.label}: {name} must not be null')")

    def variable(self, node: VariableLeaf, target: str, depth: int, name: str, length: str | None = None) -> None:
        source = self.source
        count = self.length(node, depth, length)
        self.null(node, count, target, depth, name)
        source.add(depth, "else:")
        end = source.name("e")
        source.add(depth + 1, f"{end} = p + {count}")
        source.add(depth + 1, f"if {end} > limit:")
        source.add(depth + 2, f"raise WireError('{self.label}: {name} is longer than the message')")
        values = {"string": "str(b[p:{}], 'utf-8', 'replace')", "bytes": "bytes(b[p:{}])", "records": "b[p:{}]"}
        source.add(depth + 1, f"{target} = {values[node.kind].format(end)}")
        if node.kind == "string":
            text = source.name("v")
            source.add(depth + 1, f"if {count} > {_DOUBTFUL_BYTES}:")
            source.add(depth + 2, f"{text} = {target}")
            source.add(depth + 2, f"if {count} > {STRING_BYTES_MAX} or len({text}.encode('utf-8', 'surrogatepass')) > {STRING_BYTES_MAX}:")
            source.add(depth + 3, f"raise WireError('{self.label}: {name} has more than {STRING_BYTES_MAX} bytes')")
        source.add(depth + 1, f"p = {end}")

    def array(self, node: ArrayNode, target: str, depth: int, name: str, length: str | None = None) -> None:
        source = self.source
        count = self.length(node, depth, length)
        self.null(node, count, target, depth, name)
        source.add(depth, f"elif {count} * {node.least} > limit - p:")
        source.add(depth + 1, f"raise WireError('{self.label}: {name} has more elements than bytes')")
        source.add(depth, "else:")
        depth += 1
        element = node.element
        if self.in_steps and isinstance(element, FixedLeaf | UuidLeaf):
            self.numbers_in_steps(element, target, count, depth)
            return
        if isinstance(element, UuidLeaf):
            source.add(depth, f"{target} = [bytes(b[i:i + 16]) for i in range(p, p + 16 * {count}, 16)]")
            source.add(depth, f"p += 16 * {count}")
            return
        if isinstance(element, FixedLeaf):
            table = source.bind("numbers", _readers(element.code))
            many = source.bind("unpack_many", struct.unpack_from)
            source.add(depth, f"if {count} <= {ARRAY_TABLE_MAX}:")
            source.add(depth + 1, f"{target} = list({table}[{count}](b, p))")
            source.add(depth, "else:")
            source.add(depth + 1, f"{target} = list({many}(f'>{{{count}}}{element.code}', b, p))")
            source.add(depth, f"p += {element.size} * {count}")
            return
        items, loop, value = source.name("a"), source.name("i"), source.name("v")
        source.add(depth, f"{target} = {items} = []")
        if self.in_steps:
            source.add(depth, f"made.append({items})")
        source.add(depth, f"for {loop} in range({count}):")
        self.value(element, value, depth + 1, name)
        source.add(depth + 1, f"{items}.append({value})")
        if self.in_steps:
            _count(source, depth + 1)

    def numbers_in_steps(self, element: FixedLeaf | UuidLeaf, target: str, count: str, depth: int) -> None:
        """Numbers or uuids, NUMBERS_AT_ONCE at a time."""
        source = self.source
        many = source.bind("unpack_many", struct.unpack_from)
        items, some = source.name("a"), source.name("c")
        code = f"'16s' * {some}" if isinstance(element, UuidLeaf) else f"f'{{{some}}}{element.code}'"
        source.add(depth, f"{target} = {items} = []")
        source.add(depth, f"made.append({items})")
        source.add(depth, f"while {count}:")
        source.add(depth + 1, f"{some} = {count} if {count} < {NUMBERS_AT_ONCE} else {NUMBERS_AT_ONCE}")
        source.add(depth + 1, f"{items} += {many}('>' + {code}, b, p)")
        source.add(depth + 1, f"p += {element.size} * {some}")
        source.add(depth + 1, f"{count} -= {some}")
        _count(source, depth + 1, f"{some} // {NUMBERS_AN_ELEMENT}")


class _Encoder:
    """Generates the encoder of one message version."""

    def __init__(self, label: str, *, in_steps: bool = False) -> None:
        """`in_steps` gives a generator that yields the number of elements written so far."""
        self.source = _Source()
        self.label = label
        self.out = "w"
        self.in_steps = in_steps

    def build(self, tree: StructNode) -> Callable[..., Any]:
        source = self.source
        source.add(0, "def encode(o, pieces):")
        if self.in_steps:
            source.add(1, f"k, due = 0, {STEP_ELEMENTS}")
            source.add(1, "yield 0")
        source.add(1, "w = pieces.append")
        source.add(1, "try:")
        self.struct(tree, "o", 2)
        source.add(2, "pass")
        source.add(1, "except (StructError, AttributeError, TypeError) as error:")
        source.add(2, f"raise NotEncodable(f'{self.label}: {{error}}') from error")
        return source.compile("encode", f"encode {self.label}")

    def struct(self, node: StructNode, target: str, depth: int) -> None:
        source = self.source
        for declared in node.absent:
            if not declared.ignorable:
                source.add(depth, f"if {self.differs(declared, f'{target}.{declared.name}')}:")
                source.add(depth + 1, f"raise NotEncodable('{self.label} has no field {declared.name}')")
        runs = _runs(node.fields)
        tags_in_last = node.tagged is not None and not node.tagged.fields and bool(runs) and _takes_empty_tags(runs[-1][0][1])
        for number, run in enumerate(runs):
            self.run(run, target, depth, with_empty_tags=tags_in_last and number == len(runs) - 1)
        if node.tagged is not None and not tags_in_last:
            self.tags(node.tagged, target, depth)

    def differs(self, declared: Field, target: str, *, is_tagged: bool = False) -> str:
        value = declared.omitted_value() if is_tagged else declared.default_value()
        if isinstance(value, list):
            return target
        if value is None:
            return f"{target} is not None"
        if isinstance(value, Struct):
            shared = self.source.bind("shared", value)
            return f"{target} is not {shared} and {target} != {shared}"
        if isinstance(declared.type, Variable) and declared.default is UNSET:
            return target
        return f"{target} != {value!r}"

    def run(self, run: list[Named], target: str, depth: int, *, with_empty_tags: bool = False) -> None:
        """Pack neighbouring constant-size fields at once, or encode one field of another kind. `with_empty_tags`: append the zero of an
        empty section of tagged fields (see `_takes_empty_tags`)."""
        declared, node = run[0]
        if isinstance(node, ArrayNode) and with_empty_tags:
            self.array(node, f"{target}.{declared.name}", depth, declared.name, with_empty_tags=True)
            return
        if not isinstance(node, (FixedLeaf, UuidLeaf)):
            self.value(node, f"{target}.{declared.name}", depth, declared.name)
            return
        codes = "".join(leaf.code for _, leaf in run if isinstance(leaf, (FixedLeaf, UuidLeaf)))
        pack = self.source.name("pack")
        self.source.scope[pack] = struct.Struct(">" + codes + ("B" if with_empty_tags else "")).pack
        names = ", ".join(f"{target}.{f.name}" for f, _ in run)
        self.source.add(depth, f"{self.out}({pack}({names}{', 0' if with_empty_tags else ''}))")

    def tags(self, node: TaggedNode, target: str, depth: int) -> None:
        source = self.source
        if not node.fields:
            source.add(depth, f"{self.out}(b'\\0')")
            return
        conditions = [self.differs(declared, f"{target}.{declared.name}", is_tagged=True) for declared, _ in node.fields]
        section, count = source.name("s"), source.name("n")
        source.add(depth, f"if {' or '.join(conditions)}:")
        source.add(depth + 1, f"{section} = bytearray()")
        source.add(depth + 1, f"{count} = 0")
        for condition, (declared, inner) in zip(conditions, node.fields, strict=True):
            source.add(depth + 1, f"if {condition}:")
            body, outer = source.name("y"), self.out
            source.add(depth + 2, f"{count} += 1")
            source.add(depth + 2, f"{body} = []")
            self.out = f"{body}.append"
            self.run([(declared, inner)], target, depth + 2)
            self.out = outer
            source.add(depth + 2, f"{body} = b''.join({body})")
            source.add(depth + 2, f"put_varint({section}, {declared.tag})")
            source.add(depth + 2, f"put_varint({section}, len({body}))")
            source.add(depth + 2, f"{section} += {body}")
        source.add(depth + 1, f"{self.out}(varint_bytes[{count}])")
        source.add(depth + 1, f"{self.out}(bytes({section}))")
        source.add(depth, "else:")
        source.add(depth + 1, f"{self.out}(b'\\0')")

    def value(self, node: Node, target: str, depth: int, name: str) -> None:
        source = self.source
        if isinstance(node, VariableLeaf):
            self.variable(node, target, depth, name)
        elif isinstance(node, ArrayNode):
            self.array(node, target, depth, name)
        else:
            local = target
            if not target.isidentifier():
                local = source.name("x")
                source.add(depth, f"{local} = {target}")
            if isinstance(node, NullableNode):
                source.add(depth, f"if {local} is None:")
                source.add(depth + 1, f"{self.out}({node.null!r})")
                source.add(depth, "else:")
                source.add(depth + 1, f"{self.out}(b'\\x01')")
                self.struct(node.struct, local, depth + 1)
            else:
                assert isinstance(node, StructNode)
                self.struct(node, local, depth)

    def null(self, node: VariableLeaf | ArrayNode, target: str, depth: int) -> int:
        """Write the branch for a null value; returns the depth at which the code for other values continues. A null that is not allowed
        raises a TypeError at its first use, which becomes a NotEncodable."""
        if not node.nullable:
            return depth
        empty = b"\0" if node.length.flexible else b"\xff" * node.length.size
        self.source.add(depth, f"if {target} is None:")
        self.source.add(depth + 1, f"{self.out}({empty!r})")
        self.source.add(depth, "else:")
        return depth + 1

    def length(self, node: VariableLeaf | ArrayNode, size: str, depth: int) -> None:
        source = self.source
        if node.length.flexible:
            count = source.name("n")
            source.add(depth, f"{count} = {size} + 1")
            source.add(depth, f"{self.out}(varint_bytes[{count}] if {count} < 1024 else long_varint({count}))")
        else:
            pack = source.bind("put_length", _LENGTHS[node.length.size].pack)
            source.add(depth, f"{self.out}({pack}({size}))")

    def variable(self, node: VariableLeaf, target: str, depth: int, name: str) -> None:
        source = self.source
        local = source.name("v")
        source.add(depth, f"{local} = {target}")
        depth = self.null(node, local, depth)
        if node.kind == "string":
            source.add(depth, f"{local} = {local}.encode('utf-8', 'surrogatepass')")
            source.add(depth, f"if len({local}) > {STRING_BYTES_MAX}:")
            if name == "error_message":
                source.add(depth + 1, f"{local} = {local}[:{STRING_BYTES_MAX - 3}].decode('utf-8', 'ignore').encode('utf-8')")
            else:
                source.add(depth + 1, f"raise NotEncodable('{self.label}: {name} has more than {STRING_BYTES_MAX} bytes')")
        size = f"len({local})"
        if node.kind == "records":
            size = f"(len({local}) if type({local}) is bytes or isinstance({local}, (memoryview, bytearray)) else {local}.size)"
        self.length(node, size, depth)
        source.add(depth, f"{self.out}({local})")

    def array(self, node: ArrayNode, target: str, depth: int, name: str, *, with_empty_tags: bool = False) -> None:
        source = self.source
        local = source.name("v")
        source.add(depth, f"{local} = {target}")
        depth = self.null(node, local, depth)
        element = node.element
        if isinstance(element, FixedLeaf):
            self.numbers(node, element, local, depth, with_empty_tags=with_empty_tags)
            return
        self.length(node, f"len({local})", depth)
        if isinstance(element, UuidLeaf):
            source.add(depth, f"{self.out}(b''.join({local}))")
            return
        item = source.name("x")
        source.add(depth, f"for {item} in {local}:")
        self.value(element, item, depth + 1, name)
        source.add(depth + 1, "pass")
        if self.in_steps:
            _count(source, depth + 1)

    def numbers(self, node: ArrayNode, element: FixedLeaf, local: str, depth: int, *, with_empty_tags: bool) -> None:
        """Encode the count and the numbers, in one packing if there are few."""
        source = self.source
        count = source.name("n")
        prefix, plus = ("B", 1) if node.length.flexible else ("i", 0)
        table = source.bind("counted", _writers(prefix, element.code, "B" if with_empty_tags else ""))
        source.add(depth, f"{count} = len({local})")
        source.add(depth, f"if {count} <= {ARRAY_TABLE_MAX}:")
        source.add(depth + 1, f"{self.out}({table}[{count}]({count} + {plus}, *{local}{', 0' if with_empty_tags else ''}))")
        source.add(depth, "else:")
        self.length(node, count, depth + 1)
        pack = source.bind("pack_many", struct.pack)
        if self.in_steps:
            start, some = source.name("i"), source.name("c")
            source.add(depth + 1, f"for {start} in range(0, {count}, {NUMBERS_AT_ONCE}):")
            source.add(depth + 2, f"{some} = {local}[{start}:{start} + {NUMBERS_AT_ONCE}]")
            source.add(depth + 2, f"{self.out}({pack}(f'>{{len({some})}}{element.code}', *{some}))")
            _count(source, depth + 2, f"len({some}) // {NUMBERS_AN_ELEMENT}")
        else:
            source.add(depth + 1, f"{self.out}({pack}(f'>{{{count}}}{element.code}', *{local}))")
        if with_empty_tags:
            source.add(depth + 1, f"{self.out}(b'\\0')")


def _takes_empty_tags(node: Node) -> bool:
    """Whether the packing of a struct's last field can end with the zero of an empty section of tagged fields."""
    if isinstance(node, ArrayNode):
        return isinstance(node.element, FixedLeaf) and not node.nullable
    return isinstance(node, (FixedLeaf, UuidLeaf))


def _check_version(message: type[VersionedStruct], version: int) -> None:
    if not message.MIN_VERSION <= version <= message.MAX_VERSION:
        raise WireError(_no_such(message, version))


def _no_such(message: type[VersionedStruct], version: int) -> str:
    return f"{message.__name__} has versions {message.MIN_VERSION}-{message.MAX_VERSION}, not {version}"


def decoder_for(message: type[VersionedStruct], version: int, *, in_steps: bool = False) -> Callable[..., Any]:
    """Compile and remember the decoder of one version. Raises WireError for a version that does not exist."""
    _check_version(message, version)
    decoder = _Decoder(f"{message.__name__} v{version}", in_steps=in_steps).build(layout(message, version))
    (message._step_decoders if in_steps else message._decoders)[version] = decoder
    return decoder


def encoder_for(message: type[VersionedStruct], version: int, *, in_steps: bool = False) -> Callable[..., Any]:
    """Compile and remember the encoder of one version. Raises NotEncodable for a version that does not exist."""
    if not message.MIN_VERSION <= version <= message.MAX_VERSION:
        raise NotEncodable(_no_such(message, version))
    encoder = _Encoder(f"{message.__name__} v{version}", in_steps=in_steps).build(layout(message, version))
    (message._step_encoders if in_steps else message._encoders)[version] = encoder
    return encoder
