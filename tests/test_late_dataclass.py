"""Dataclasses whose methods are made late behave like those of the standard library."""

from __future__ import annotations

import ast
import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from minikafka import late_dataclass

ROOT = Path(__file__).parent.parent
#: What a broker imports at its start.
ROOMS = ("minikafka/broker", "minikafka/core", "minikafka/net", "minikafka/security", "wire", "storage")
T = TypeVar("T")
Decorator = Callable[..., Any]
MAKERS = [dataclasses.dataclass, late_dataclass.dataclass]


def plain(make: Decorator) -> Any:
    @make(slots=True)
    class Plain:
        """A class."""

        KIND: ClassVar[str] = "kind"
        first: int
        second: str = "two"
        third: list[int] = field(default_factory=list)
        hidden: int = field(default=4, repr=False, compare=False)
        derived: int = field(init=False)
        counted: dict[str, int] = field(default_factory=dict, init=False)
        fixed: int = field(default=7, init=False)

        def __post_init__(self) -> None:
            self.derived = self.first + 1

    return Plain


def frozen(make: Decorator) -> Any:
    @make(frozen=True, slots=True)
    class Frozen:
        first: int
        second: tuple[int, ...] = ()

    return Frozen


@pytest.mark.parametrize("make", MAKERS)
def test_fields_defaults_and_factories(make: Decorator) -> None:
    cls = plain(make)
    one, other = cls(1), cls(1, third=[])
    assert (one.first, one.second, one.third, one.hidden, one.derived, one.counted, one.fixed) == (1, "two", [], 4, 2, {}, 7)
    assert one == other and one.third is not other.third and one != cls(2) and one != 1
    other.hidden = 5
    assert one == other
    assert repr(one).endswith("Plain(first=1, second='two', third=[], derived=2, counted={}, fixed=7)")
    assert not hasattr(one, "__dict__") and cls.KIND == "kind" and cls.__hash__ is None
    assert cls.__match_args__ == ("first", "second", "third", "hidden")
    for arguments in ((), (1, 2, 3, 4, 5)):
        with pytest.raises(TypeError, match=r"Plain\.__init__\(\)"):
            cls(*arguments)
    with pytest.raises(AttributeError):
        one.unknown = 1


@pytest.mark.parametrize("make", MAKERS)
def test_functions_of_the_standard_library(make: Decorator) -> None:
    cls = plain(make)
    assert [one.name for one in dataclasses.fields(cls)] == ["first", "second", "third", "hidden", "derived", "counted", "fixed"]
    assert dataclasses.is_dataclass(cls)
    one = dataclasses.replace(cls(1), first=5)
    assert dataclasses.asdict(one) == {
        "first": 5, "second": "two", "third": [], "hidden": 4, "derived": 6, "counted": {}, "fixed": 7,
    }  # fmt: skip


@pytest.mark.parametrize("make", MAKERS)
def test_frozen(make: Decorator, monkeypatch: pytest.MonkeyPatch) -> None:
    cls = frozen(make)
    one = cls(1, (2,))
    assert {one: 1}[cls(1, (2,))] == 1 and hash(one) != hash(cls(2))
    with pytest.raises(FrozenInstanceError):
        one.first = 2
    with pytest.raises(FrozenInstanceError):
        del one.first
    assert copy.copy(one) == one and dataclasses.replace(one, first=3) == cls(3, (2,))
    monkeypatch.setitem(globals(), "Frozen", cls)
    cls.__qualname__ = "Frozen"
    assert pickle.loads(pickle.dumps(one)) == one
    match one:
        case cls(first, second):
            assert (first, second) == (1, (2,))


@pytest.mark.parametrize("make", MAKERS)
def test_a_subclass_adds_fields(make: Decorator) -> None:
    @make(slots=True)
    class Base:
        first: int
        second: int = 2

    @make(slots=True)
    class Derived(Base):
        third: int = 3

    @make(slots=True)
    class Same(Base):
        pass

    dataclasses.fields(Base)

    @make(slots=True)
    class Later(Base):
        second: int = 5

    assert Derived(1) == Derived(1, 2, 3) and Derived(1) != Derived(1, third=4) and Derived.__slots__ == ("third",)
    assert Same(1) == Same(1, 2) and Same(1) != Base(1)
    assert Later(1).second == 5 and Later.__slots__ == () and Later.__match_args__ == ("first", "second")


@pytest.mark.parametrize("make", MAKERS)
def test_own_methods_stay(make: Decorator) -> None:
    @make(slots=True, eq=False)
    class ById:
        first: int

    @make(slots=True)
    class Own(Generic[T]):
        first: T

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 3

        def __repr__(self) -> str:
            return "own"

    @make(slots=True)
    class Empty:
        pass

    assert ById(1) != ById(1) and hash(ById(1)) is not None
    assert Own(1) == Own(2) and hash(Own(1)) == 3 and repr(Own[int](1)) == "own"
    assert Empty() == Empty() and Empty() != ById(1)


@pytest.mark.parametrize("make", MAKERS)
def test_an_object_that_holds_itself_has_a_representation(make: Decorator) -> None:
    one = plain(make)(1)
    one.third.append(one)
    assert "..." in repr(one)


def test_nothing_is_compiled_before_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    real = late_dataclass._make_init
    monkeypatch.setattr(late_dataclass, "_make_init", lambda *given: made.append(given) or real(*given))
    cls = plain(late_dataclass.dataclass)
    assert not made
    assert cls(1) == cls(1) and len(made) == 1


def test_classes_without_slots_are_refused() -> None:
    with pytest.raises(TypeError):
        late_dataclass.dataclass(slots=False)  # type: ignore[call-overload]


def test_all_that_a_broker_imports_uses_them() -> None:
    early = [
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses" and "dataclass" in {name.name for name in node.names}
    ]
    assert not early
