"""Look-ups that do not wait for the disk: what the system does not have in memory is read on another thread first.

A look-up changes nothing, so it can be made again. Within a `Look`, a read of bytes that are not in memory raises NotInMemory instead of
waiting, and so does the first opening of a file, whose inode may have to be read. `looking` makes the look-up again and again, and yields
in between what its caller has to read through elsewhere. Without a `Look`, for example on other threads, reads wait.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from contextvars import ContextVar
from functools import partial
from typing import TypeVar

from minikafka.storage.filesystem import File, FileSystem, read_all

S = TypeVar("S")
T = TypeVar("T")
_READ_THROUGH_BYTES = 1 << 20
#: Where a file is said to be missing from memory as a whole.
_INODE = -1


class NotInMemory(Exception):
    """A look-up would have to wait for the disk. Call `read_through` on another thread, and make the look-up again."""

    def __init__(self, path: str, position: int, read: Callable[[], object]) -> None:
        super().__init__(f"{path} is not in memory at {position}")
        #: What is missing: a path, and a position in the file.
        self.key = (path, position)
        self._read = read

    def read_through(self) -> None:
        """Read what is missing, so that the system has it in memory. Errors are for those who look again. May run on any thread."""
        with contextlib.suppress(OSError, ValueError):
            self._read()


class Look:
    """A context in which reads of this thread do not wait for the disk. What was read through before and is missing again (the system is
    short of memory) is waited for: so every look-up comes to an end."""

    __slots__ = ("_before", "_known")

    def __init__(self) -> None:
        self._known: set[tuple[str, int]] = set()
        self._before: Look | None = None

    def __enter__(self) -> None:
        self._before = _current.get()
        _current.set(self)

    def __exit__(self, *_: object) -> None:
        _current.set(self._before)

    def note(self, missing: NotInMemory) -> None:
        """This will have been read through when the context is entered again."""
        self._known.add(missing.key)

    def knows(self, path: str, position: int) -> bool:
        """Whether this was read through."""
        known = self._known
        return bool(known) and (path, position) in known


#: Of this thread: others have contexts of their own.
_current: ContextVar[Look | None] = ContextVar("look", default=None)


def looking(look: Callable[[], T]) -> Generator[NotInMemory, None, T]:
    """Make a look-up, which only reads. Yields what has to be read through before it is made again; its result."""

    def within(context: Look) -> T:
        with context:
            return look()

    return looking_within(within)


def looking_within(look: Callable[[Look], T]) -> Generator[NotInMemory, None, T]:
    """As `looking`, for what does more than read: it enters the context that it is given for its reads alone."""
    context = Look()
    while True:
        try:
            return look(context)
        except NotInMemory as error:
            # Its frames may hold slices, which keep files open.
            missing = error.with_traceback(None)
        context.note(missing)
        yield missing


def reading(steps: Generator[NotInMemory, None, T], read: Callable[[NotInMemory], S]) -> Generator[S, None, T]:
    """The steps of a look-up with `read(missing)` in place of what is missing: how its caller has it read through."""
    while True:
        try:
            missing = next(steps)
        except StopIteration as over:
            result: T = over.value
            return result
        yield read(missing)


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """A context in which reads wait for the disk: what a failed read leads to is not a part of the look-up."""
    before = _current.get()
    _current.set(None)
    try:
        yield
    finally:
        _current.set(before)


def before_opening(filesystem: FileSystem, path: str, position: int = 0, size: int = 0) -> None:
    """A file will be opened, perhaps to read some bytes. Raises NotInMemory within a look-up to which it is new."""
    look = _current.get()
    if look is not None and not look.knows(path, _INODE):
        raise NotInMemory(path, _INODE, partial(_through_path, filesystem, path, position, size))


def read(file: File, count: int, position: int, filesystem: FileSystem | None = None) -> bytes:
    """As `read_all`. Raises NotInMemory within a look-up. `filesystem`: given if the file is closed before it is read through."""
    return Source(file, filesystem).read(count, position)


class Source:
    """A file as a look-up reads it."""

    __slots__ = ("_file", "_filesystem")

    def __init__(self, file: File, filesystem: FileSystem | None = None) -> None:
        """See `read`."""
        self._file = file
        self._filesystem = filesystem

    def pread_into(self, buffer: memoryview, position: int, /) -> int:
        """As that of File. Raises NotInMemory within a look-up."""
        look, file = _current.get(), self._file
        if look is None or look.knows(file.path, position):
            return file.pread_into(buffer, position)
        count = file.pread_if_cached(buffer, position)
        if count is None:
            raise NotInMemory(file.path, position, self._reader(position, len(buffer)))
        return count

    def read(self, count: int, position: int) -> bytes:
        """As `read_all`."""
        if _current.get() is None:
            return read_all(self._file, count, position)
        data = bytearray(count)
        return bytes(data[: self.fill(memoryview(data), position)])

    def fill(self, buffer: memoryview, position: int) -> int:
        """Read until the buffer is full or the file ends; the number of bytes."""
        filled = 0
        while filled < len(buffer) and (count := self.pread_into(buffer[filled:], position + filled)):
            filled += count
        return filled

    def _reader(self, position: int, size: int) -> Callable[[], None]:
        if self._filesystem is None:
            # If the file is closed meanwhile, nothing, or something else, is read into a buffer that nobody looks at.
            return partial(through, self._file, position, size)
        return partial(_through_path, self._filesystem, self._file.path, position, size)


def through(file: File, position: int, size: int) -> None:
    """Read bytes that nobody looks at. Raises OSError."""
    window, end = memoryview(bytearray(min(size, _READ_THROUGH_BYTES))), position + size
    while position < end and (count := file.pread_into(window[: end - position], position)):
        position += count


def _through_path(filesystem: FileSystem, path: str, position: int, size: int) -> None:
    file = filesystem.open(path, read_only=True)
    try:
        through(file, position, size)
    finally:
        file.close()
