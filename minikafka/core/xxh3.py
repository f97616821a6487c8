"""XXH3, 64 bits, without a seed: the hash by which Apache Kafka detects changes of a group's topics.

Rules: the XXH3 specification (xxHash, doc/xxhash_spec.md).
"""

from __future__ import annotations

import struct

_MASK = (1 << 64) - 1
_PRIME32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_PRIME64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_PRIME_MX1, _PRIME_MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE_BYTES = 64
_STRIPES_PER_BLOCK = (len(_SECRET) - _STRIPE_BYTES) // 8
_LANES = struct.Struct("<8Q")
_ACCUMULATORS = (
    _PRIME32[2], _PRIME64[0], _PRIME64[1], _PRIME64[2], _PRIME64[3], _PRIME32[1], _PRIME64[4], _PRIME32[0],
)  # fmt: skip


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _avalanche(value: int) -> int:
    value = ((value ^ (value >> 37)) * _PRIME_MX1) & _MASK
    return value ^ (value >> 32)


def _avalanche64(value: int) -> int:
    value = ((value ^ (value >> 33)) * _PRIME64[1]) & _MASK
    value = ((value ^ (value >> 29)) * _PRIME64[2]) & _MASK
    return value ^ (value >> 32)


def _fold(left: int, right: int) -> int:
    product = left * right
    return (product & _MASK) ^ (product >> 64)


def _mix16(data: bytes, at: int, secret_at: int) -> int:
    return _fold(_u64(data, at) ^ _u64(_SECRET, secret_at), _u64(data, at + 8) ^ _u64(_SECRET, secret_at + 8))


def _up_to_16(data: bytes) -> int:
    size = len(data)
    if size == 0:
        return _avalanche64(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))
    if size < 4:
        combined = data[size - 1] | (size << 8) | (data[0] << 16) | (data[size >> 1] << 24)
        return _avalanche64(combined ^ _u32(_SECRET, 0) ^ _u32(_SECRET, 4))
    if size <= 8:
        combined = (_u32(data, 0) << 32) + _u32(data, size - 4)
        value = combined ^ _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
        value ^= ((value << 49 | value >> 15) ^ (value << 24 | value >> 40)) & _MASK
        value = (value * _PRIME_MX2) & _MASK
        value = ((value ^ ((value >> 35) + size)) * _PRIME_MX2) & _MASK
        return value ^ (value >> 28)
    low = (_u64(_SECRET, 24) ^ _u64(_SECRET, 32)) ^ _u64(data, 0)
    high = (_u64(_SECRET, 40) ^ _u64(_SECRET, 48)) ^ _u64(data, size - 8)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return _avalanche((size + swapped + high + _fold(low, high)) & _MASK)


def _up_to_128(data: bytes) -> int:
    size = len(data)
    value = size * _PRIME64[0]
    for step in range((size - 1) // 32, -1, -1):
        value += _mix16(data, 16 * step, 32 * step) + _mix16(data, size - 16 * (step + 1), 32 * step + 16)
    return _avalanche(value & _MASK)


def _up_to_240(data: bytes) -> int:
    size = len(data)
    value = size * _PRIME64[0]
    for step in range(8):
        value += _mix16(data, 16 * step, 16 * step)
    value = _avalanche(value & _MASK)
    for step in range(8, size // 16):
        value += _mix16(data, 16 * step, 16 * (step - 8) + 3)
    return _avalanche((value + _mix16(data, size - 16, 136 - 17)) & _MASK)


def _accumulate(lanes: list[int], stripe: tuple[int, ...], secret: tuple[int, ...]) -> None:
    for lane in range(8):
        value = stripe[lane]
        key = value ^ secret[lane]
        lanes[lane ^ 1] += value
        lanes[lane] += (key & 0xFFFFFFFF) * (key >> 32)


def _long(data: bytes) -> int:
    size = len(data)
    lanes = list(_ACCUMULATORS)
    last = _LANES.unpack_from(_SECRET, len(_SECRET) - _STRIPE_BYTES)
    secrets = [_LANES.unpack_from(_SECRET, 8 * stripe) for stripe in range(_STRIPES_PER_BLOCK)]
    for stripe in range((size - 1) // _STRIPE_BYTES):
        _accumulate(lanes, _LANES.unpack_from(data, stripe * _STRIPE_BYTES), secrets[stripe % _STRIPES_PER_BLOCK])
        if (stripe + 1) % _STRIPES_PER_BLOCK == 0:
            lanes = [((lane & _MASK) ^ ((lane & _MASK) >> 47) ^ key) * _PRIME32[0] & _MASK for lane, key in zip(lanes, last, strict=True)]
    _accumulate(lanes, _LANES.unpack_from(data, size - _STRIPE_BYTES), _LANES.unpack_from(_SECRET, len(_SECRET) - _STRIPE_BYTES - 7))
    lanes = [lane & _MASK for lane in lanes]
    value = size * _PRIME64[0]
    for pair in range(4):
        value += _fold(lanes[2 * pair] ^ _u64(_SECRET, 11 + 16 * pair), lanes[2 * pair + 1] ^ _u64(_SECRET, 19 + 16 * pair))
    return _avalanche(value & _MASK)


def xxh3_64(data: bytes) -> int:
    """The hash of `data` as a signed 64-bit integer."""
    size = len(data)
    digest = _up_to_16 if size <= 16 else _up_to_128 if size <= 128 else _up_to_240 if size <= 240 else _long
    value = digest(data)
    return value - (1 << 64) if value >> 63 else value
