"""What to say on Windows: brokers need the system calls of Unix, clients do not."""

from __future__ import annotations

import sys

ADVICE = (
    "Brokers of minikafka do not run on Windows itself. Run them in WSL (`wsl --install`, then the same commands in its terminal), where"
    " programs on Windows reach them at localhost, or in a container (`docker build -t minikafka .`)."
)


def is_the_reason(error: ImportError) -> bool:
    """Whether an import failed because Windows lacks the module, and not because a package is missing."""
    return sys.platform == "win32" and error.name in {"fcntl", "grp", "pwd", "resource", "termios", "uvloop"}
