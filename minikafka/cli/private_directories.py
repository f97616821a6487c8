"""Log directories that existed before the node: their modes are the operator's, who is told when others can read them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

#: To read a directory's files, whose names are known, takes only the right to enter it.
ENTERED_BY_OTHERS = stat.S_IXOTH


def warnings(directories: Iterable[str]) -> Iterator[str]:
    """One line for each directory that every user of the machine may enter. The node creates its own for its user alone."""
    if os.name == "nt":  # its modes say nothing of other users
        return
    for path in dict.fromkeys(map(os.path.abspath, directories)):
        try:
            mode = stat.S_IMODE(os.stat(path).st_mode)
        except OSError:
            continue  # the node's start says why
        if mode & ENTERED_BY_OTHERS:
            yield (
                f"every user of this machine can read the log directory {path} (mode {mode:04o}): its records, and in a metadata log the"
                f" verifiers of passwords and the delegation tokens; `chmod o-rwx {path}` ends that"
            )
