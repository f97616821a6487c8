"""Whether the data of a cluster can be in a directory, before anything is written there."""

from __future__ import annotations

import os
from pathlib import Path

from minikafka.testing.errors import WrongConfiguration

ELSEWHERE = "Choose another directory"


def check_directory(directory: Path, *, is_temporary: bool) -> None:
    """Raises WrongConfiguration, which says what is wrong with the directory, and OSError if the system refuses to tell."""
    shown = os.fsencode(directory).decode(errors="backslashreplace")
    advice = f"{ELSEWHERE}: set TMPDIR" if is_temporary else ELSEWHERE
    if "," in str(directory.absolute()):
        raise WrongConfiguration(f"the path {shown} has a comma, which separates directories in log.dirs. {advice}")
    try:
        str(directory.absolute()).encode()
    except UnicodeEncodeError:
        raise WrongConfiguration(f"the path {shown} is not valid UTF-8, and server.properties is. {advice}") from None
    if directory.is_symlink() and not directory.exists():
        raise WrongConfiguration(
            f"{shown} is a symbolic link to {os.readlink(directory)}, which does not exist. Create it, or remove the link"
        )
    for path in (directory, *directory.glob("broker-*"), *directory.glob("broker-*/data")):
        if path.exists() and not path.is_dir():
            raise WrongConfiguration(f"{path} is not a directory. {advice}")
