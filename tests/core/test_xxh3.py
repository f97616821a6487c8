"""XXH3 beside the reference implementation's values."""

from __future__ import annotations

import pytest

from minikafka.core.xxh3 import xxh3_64

#: Of the first bytes of 0, 1, ... 255, 0, 1, ..., by xxHash 0.8.
REFERENCE = [
    (0, 3244421341483603138), (3, 6864218090047839419), (8, 4187271766389786872), (16, -8983023575487778597), (100, 22042537110060316),
    (200, -852719212082297085), (256, -7779787747613135503), (2304, 6270062947519883826),
]  # fmt: skip


@pytest.mark.parametrize(("size", "expected"), REFERENCE)
def test_a_hash_is_that_of_the_reference(size: int, expected: int) -> None:
    assert xxh3_64((bytes(range(256)) * 9)[:size]) == expected
