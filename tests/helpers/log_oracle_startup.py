"""What a start of Apache Kafka makes of log directories, done to their files (LogLoader.load, LogManager.loadLogs); shares no code with the
audit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from helpers.log_oracle import Log, Role, by_survivors, parse, read_log


def start(directory: Path) -> None:
    """Every partition's leftovers are removed and its replacements installed."""
    for path in directory.iterdir():
        if path.is_dir() and not path.name.startswith("__cluster_metadata"):
            start_log(path)


def start_log(path: Path) -> None:
    """Only files whose names begin with an offset belong to segments; over others it does not start at all (by_names)."""
    files = [file for file in path.iterdir() if file.is_file() and (file.name.endswith(".deleted") or file.name[:20].isdigit())]
    cleaned = [file for file in files if file.name.endswith(".cleaned")]
    swaps = [file for file in files if file.name.endswith(".swap")]
    for file in files:
        if file.name.endswith(".deleted"):
            file.unlink()
    for file in [file for file in swaps if cleaned and _offset(file) >= min(map(_offset, cleaned))] + cleaned:
        file.unlink()
    swaps = [file for file in swaps if file.exists()]
    logs = [file for file in swaps if file.name.endswith(".log.swap")]
    low, high = min(map(_offset, logs), default=0), max(map(_end, logs), default=0)
    for file in [file for file in files if file.exists() and file not in swaps]:
        if file.name.partition(".")[0].isdigit() and low <= _offset(file) < high:
            file.unlink()
    for file in swaps:
        file.rename(file.with_name(file.name.removesuffix(".swap")))


def _offset(file: Path) -> int:
    return int(file.name.partition(".")[0])


def _end(file: Path) -> int:
    batches = parse(file.read_bytes())[0]
    return batches[-1].last + 1 if batches else _offset(file)


def futures(directories: dict[int, list[Path]], name: str, role: Role) -> Iterator[str]:
    """A future log that replaces a log keeps those of its leader epochs that the log also has. What cleaners removed from the log since,
    the copy may still have: a start's cleaner works before the copying goes on (ReplicaManager.maybeAddLogDirFetchers pauses it)."""
    for broker, paths in directories.items():
        try:
            own = next((log for path in paths if (log := read_log(path, broker, name)) is not None), None)
            copies = [read_log(path, broker, copy.name) for path in paths for copy in path.glob(f"{name}.*-future")]
        except (ValueError, IndexError, OSError):  # the broker does not start, as `visible` says
            continue
        for future in copies if own is not None else ():
            if own is not None and future is not None:
                yield from _differs(own, future, role.cleaned_to)


def _differs(own: Log, future: Log, cleaned_to: int) -> Iterator[str]:
    held = {batch.base: batch for batch in own.batches}
    if cleaned_to:
        yield from by_survivors(own, future, own.start, min(cleaned_to, own.end, future.end), cleaned_to, [])
    for batch in (one for one in future.batches if one.last >= own.start and one.base >= cleaned_to):
        same = held.get(batch.base)
        if same is None or not batch.is_sound:
            yield f"broker {own.broker}: its copy has a batch at {batch.base} that the log has not"
            return
        if same.raw != batch.raw and same.epoch == batch.epoch:
            yield f"broker {own.broker}: its copy differs at {batch.base}"
            return


def started(folder: Path, target: Path) -> Path:
    """A copy of the folder after its brokers have started; the folder itself where a start changes nothing."""
    if not any(name.endswith((".swap", ".cleaned", ".deleted")) for _, _, names in os.walk(folder, followlinks=True) for name in names):
        return folder
    shutil.copytree(folder, target, symlinks=True)
    for directory in target.iterdir():
        start(directory)
    return target
