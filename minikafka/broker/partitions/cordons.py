"""Log directories that get no new replicas (KIP-1066). What is in them stays in service."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikafka.broker.config.dynamic import Settings
    from minikafka.storage.log_dir import LogDirectory

logger = logging.getLogger("minikafka.config")
ALL = "*"


class Cordons:
    """`directory in cordons`: as cordoned.log.dirs says now."""

    def __init__(self, settings: Settings, directories: list[LogDirectory]) -> None:
        self._settings = settings
        self._directories = directories
        settings.watch(self._check)

    def __contains__(self, directory: object) -> bool:
        names = self._settings.cordoned_log_dirs
        return bool(names) and (ALL in names or getattr(directory, "path", None) in [name.rstrip("/") for name in names])

    def ids(self) -> list[bytes]:
        """Ids of the cordoned directories that work."""
        return [directory.directory_id for directory in self._directories if directory in self and not directory.is_offline]

    def _check(self) -> None:
        paths = {directory.path for directory in self._directories}
        for name in self._settings.cordoned_log_dirs:
            if name != ALL and name.rstrip("/") not in paths:
                logger.warning("cordoned.log.dirs names %s, which is not a log directory of this broker", name)
