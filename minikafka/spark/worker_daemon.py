"""Spark's Python daemon on this machine, with what the tasks of an audit need imported before it forks the workers.

Spark's own daemon leaves that to each worker, and gives them PySpark as a ZIP file, which each of them compiles: 0.4 s of CPU time a core.
Nothing that is imported here starts a thread, which a fork would lose.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path


def without_archives(paths: list[str]) -> list[str]:
    """These paths without the archives inside an installed PySpark that can be imported from its directory."""
    archives = {path for path in paths if (home := _home_of(path)) is not None and str(home.parent) in paths}
    return [path for path in paths if path not in archives]


def _home_of(path: str) -> Path | None:
    """The package directory of the PySpark that has this archive in `python/lib`."""
    archive = Path(path)
    is_archive = archive.suffix == ".zip" and archive.parent.parts[-2:] == ("python", "lib") and len(archive.parents) > 2
    home = archive.parents[2] if is_archive else None
    return home if home is not None and home.name == "pyspark" and (home / "__init__.py").exists() else None


def main() -> None:
    """Import, and run Spark's daemon."""
    sys.path[:] = without_archives(sys.path)
    import pyspark.worker  # noqa: F401
    from pyspark.daemon import manager

    import minikafka.spark.judging  # noqa: F401

    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
