"""The working directory of a load to files: hidden, next to its target, and published by one rename."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator

from minikafka.spark.cluster_runs import JOB_FILE
from minikafka.spark.cluster_segments import FilesFailed, sync_file_system


def check_target(directory: str) -> None:
    """Raise FilesFailed unless `directory` does not exist or is empty."""
    if os.path.lexists(directory) and not os.path.isdir(directory):
        raise FilesFailed(f"{directory} is a file; give a directory that does not exist yet")
    if os.path.isdir(directory) and os.listdir(directory):
        raise FilesFailed(f"{directory} is not empty; give another directory, or remove it first")


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class Staging:
    """A hidden directory next to the target, on the same file system, with `runs`, `segments`, and at last `cluster`, the future target.

    Its owner holds a lock. If a driver is killed, the next driver for the same target removes its directory.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.job = secrets.token_hex(8)
        self._parent, name = os.path.split(target)
        self._prefix = f".{name}.load-"
        self.path = f"{self._parent}/{self._prefix}{self.job}"
        self._lock = -1

    def __enter__(self) -> Staging:
        try:
            os.makedirs(self._parent, exist_ok=True)
            self._remove_abandoned()
            os.mkdir(self.path)
            self._lock = os.open(f"{self.path}/{JOB_FILE}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            with contextlib.suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            os.write(self._lock, self.job.encode())
            for name in ("runs", "segments"):
                os.mkdir(f"{self.path}/{name}")
        except OSError as error:
            raise FilesFailed(f"cannot write beside {self.target}: {error.strerror} ({error.filename})") from error
        return self

    def publish(self, root: str) -> None:
        """Sync `root` and rename it to the target, atomically. Raises FilesFailed if the target exists by now."""
        check_target(self.target)
        with _opened(root) as descriptor:
            sync_file_system(descriptor)
        try:
            os.rename(root, self.target)
        except OSError as error:
            raise FilesFailed(f"cannot publish {self.target}: {error.strerror}") from error
        with _opened(self._parent) as descriptor:
            os.fsync(descriptor)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
        if isinstance(error, OSError):
            raise FilesFailed(f"cannot write {error.filename or self.target}: {error.strerror}") from error

    def _remove_abandoned(self) -> None:
        for name in os.listdir(self._parent):
            if name.startswith(self._prefix) and len(name) == len(self._prefix) + 16:
                path = f"{self._parent}/{name}"
                with contextlib.suppress(OSError):
                    descriptor = os.open(f"{path}/{JOB_FILE}", os.O_RDONLY)
                    try:
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        shutil.rmtree(path, ignore_errors=True)
                    finally:
                        os.close(descriptor)
