"""The base classes of messages, with encoding and decoding. `wire.declaration` describes how messages are declared."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, ClassVar, Protocol, Self

from minikafka.wire.declaration import Struct, VersionedStruct, field

__all__ = ["Struct", "field"]


class FileRegion(Protocol):
    """`size` bytes that are sent straight from a file."""

    @property
    def size(self) -> int: ...
    def failed(self, error: OSError) -> None:
        """Called when the sender could not read the file."""


#: What a records field holds: received bytes, built bytes, or a region of a file.
RecordsValue = bytes | bytearray | memoryview | FileRegion
Piece = RecordsValue


def received(records: RecordsValue) -> bytes | bytearray | memoryview:
    """The records of a decoded message, which are always in memory, never a region of a file."""
    assert isinstance(records, (bytes, bytearray, memoryview))
    return records


class Message(VersionedStruct):
    """A struct that can be encoded and decoded. The codecs of a version are compiled on first use (`wire.compiler`)."""

    @classmethod
    def decode(cls, version: int, buffer: bytes | bytearray | memoryview, position: int = 0) -> Self:
        """The message at `position`; bytes after it are ignored. Raises WireError for what the schema forbids."""
        return cls.decode_from(version, buffer, position)[0]

    @classmethod
    def decode_from(cls, version: int, buffer: bytes | bytearray | memoryview, position: int = 0) -> tuple[Self, int]:
        """The message at `position` and the position after it. Raises WireError."""
        decoder = cls._decoders.get(version)
        if decoder is None:
            from minikafka.wire.compiler import decoder_for

            decoder = decoder_for(cls, version)
        decoded: tuple[Self, int] = decoder(buffer, position)
        return decoded

    @classmethod
    def decode_in_steps(
        cls, version: int, buffer: bytes | bytearray | memoryview, position: int = 0, made: list[list[Any]] | None = None
    ) -> Generator[int, None, Self]:
        """As `decode`, in bounded steps: yields the number of elements read so far after each. Raises WireError.

        Adds every list of the message to `made`, at any depth. The caller can then free the message in steps, too (`emptied`), also one
        that was not decoded to its end."""
        decoder = cls._step_decoders.get(version)
        if decoder is None:
            from minikafka.wire.compiler import decoder_for

            decoder = decoder_for(cls, version, in_steps=True)
        decoded: tuple[Self, int] = yield from decoder(buffer, position, [] if made is None else made)
        return decoded[0]

    @classmethod
    def decode_few(cls, version: int, buffer: bytes | bytearray | memoryview, position: int, elements_max: int) -> Self | None:
        """As `decode`, but gives up with None once there are more than about `elements_max` elements (accurate to a few hundred)."""
        steps = cls.decode_in_steps(version, buffer, position)
        while True:
            try:
                if next(steps) > elements_max:
                    return None
            except StopIteration as over:
                decoded: Self = over.value
                return decoded

    def encode_in_steps(self, version: int, pieces: list[Any]) -> Generator[int, None, None]:
        """As `encode_into`, in bounded steps: yields after each. The caller may remove finished pieces between two steps."""
        encoder = self._step_encoders.get(version)
        if encoder is None:
            from minikafka.wire.compiler import encoder_for

            encoder = encoder_for(type(self), version, in_steps=True)
        yield from encoder(self, pieces)

    def encode_into(self, version: int, pieces: list[Any]) -> None:
        """Append the message's bytes to `pieces`; file regions stay as they are. Raises NotEncodable."""
        encoder = self._encoders.get(version)
        if encoder is None:
            from minikafka.wire.compiler import encoder_for

            encoder = encoder_for(type(self), version)
        encoder(self, pieces)

    def encode(self, version: int) -> bytes:
        """The message's bytes; a message that holds file regions cannot be encoded whole."""
        pieces: list[Any] = []
        self.encode_into(version, pieces)
        return b"".join(pieces)

    def encode_pieces(self, version: int) -> list[Piece]:
        """The message's bytes, with large records and file regions as separate pieces."""
        pieces: list[Any] = []
        self.encode_into(version, pieces)
        return join_pieces(pieces)


LARGE_PIECE_BYTES = 4096
#: Elements that `emptied` frees in a step, more or less.
FREED_AT_ONCE = 512


def emptied(made: list[list[Any]]) -> Iterator[None]:
    """Empty lists in steps, the last ones first: yields after each. Freeing very many objects at once takes long."""
    freed = 0
    while made:
        items = made[-1]
        freed += 1 + min(len(items), FREED_AT_ONCE)
        del items[-FREED_AT_ONCE:]
        if not items:
            made.pop()
        if freed >= FREED_AT_ONCE:
            freed = 0
            yield


def join_pieces(pieces: list[Any]) -> list[Piece]:
    """Join neighbouring small byte strings."""
    joined: list[Piece] = []
    run: list[Any] = []
    for piece in pieces:
        kind = type(piece)
        if kind is bytes or (kind in (memoryview, bytearray) and len(piece) < LARGE_PIECE_BYTES):
            run.append(piece)
            continue
        if run:
            joined.append(b"".join(run))
            run = []
        joined.append(piece)
    if run:
        joined.append(b"".join(run))
    return joined


class _ApiMessage(Message):
    API_KEY: ClassVar[int] = -1

    def __init_subclass__(cls, *, api_key: int | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if api_key is not None:
            cls.API_KEY = api_key


class Request(_ApiMessage):
    """A request; `LISTENERS` names the kinds of listener that serve it."""

    LISTENERS: ClassVar[tuple[str, ...]] = ()
    LATEST_UNSTABLE: ClassVar[bool] = False

    def __init_subclass__(cls, *, listeners: tuple[str, ...] = (), latest_unstable: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.LISTENERS = listeners
        cls.LATEST_UNSTABLE = latest_unstable


class Response(_ApiMessage):
    """A response."""


class Data(Message):
    """A message without an API key: headers, and data stored in records."""


class Record(Message):
    """A message stored in a record; `RECORD_TYPE` is the type of metadata records and coordinator keys."""

    RECORD_TYPE: ClassVar[int] = -1

    def __init_subclass__(cls, *, record_type: int | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if record_type is not None:
            cls.RECORD_TYPE = record_type
