"""The log cleaner's host: what it leaves alone."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

from minikafka.broker.partitions.cleaner import LogCleaner


class SomeLog:
    def __init__(self) -> None:
        self.config = SimpleNamespace(is_compacted=True)
        self.failure = None


def test_a_log_that_cannot_be_compacted_does_not_keep_others_from_it() -> None:
    """Objects that come later get the number of one that is gone: the log of a new topic was never compacted."""
    directory: Any = SimpleNamespace(is_offline=False, logs={("gone", 0): SomeLog()})
    settings: Any = SimpleNamespace(watch=lambda callback: None)
    cleaner = LogCleaner(settings, SimpleNamespace(), [directory], lambda *_: None)  # type: ignore[arg-type]
    cleaner._uncleanable.add(directory.logs["gone", 0])
    assert cleaner.uncleanable(directory) and not list(cleaner._compacted())
    del directory.logs["gone", 0]
    gc.collect()
    assert not cleaner._uncleanable, "a number may be given again, so the mark goes with its log"
    directory.logs["new", 0] = SomeLog()
    assert not cleaner.uncleanable(directory) and len(list(cleaner._compacted())) == 1
