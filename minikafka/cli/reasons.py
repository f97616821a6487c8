"""Readable messages for errors of the operating system."""

from __future__ import annotations

import re
import sys

#: What glibc and musl say of a library that a compiled module needs.
_NO_LIBRARY = re.compile(r"(?:Error loading shared library )?([\w.+-]+\.so[\w.]*): (?:cannot open shared object file|No such file)")


def why_not_imported(error: ImportError) -> str | None:
    """What this machine lacks; None if the import failed for another reason."""
    from minikafka import windows

    if windows.is_the_reason(error):
        return windows.ADVICE
    first: BaseException = error
    while first.__cause__ is not None or first.__context__ is not None:
        first = first.__cause__ or first.__context__ or first
    package = (getattr(first, "name", None) or "").partition(".")[0]
    missing = _NO_LIBRARY.search(str(first))
    if missing is not None:
        return f"{package or 'a package'} cannot be loaded, because the system has no {missing[1]}{_where_from(missing[1])}"
    if isinstance(first, ModuleNotFoundError) and package in sys.stdlib_module_names:
        return f"{sys.executable} was built without {package.lstrip('_')}, which belongs to Python itself: use another build of Python"
    if isinstance(first, ModuleNotFoundError) and package != "minikafka":
        return f"the Python package {package} is not installed. `pip install` of minikafka brings it"
    return None


def _where_from(library: str) -> str:
    name = library.partition(".so")[0]
    return f". Debian and Ubuntu: apt install {name}6. Alpine: apk add {name}. Fedora: dnf install {name}" if name == "libstdc++" else ""


def is_interruption(error: BaseException) -> bool:
    """Whether an error was raised because of Ctrl-C: py4j makes errors of its own of it."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, KeyboardInterrupt):
        seen = seen.__cause__ or seen.__context__
    return seen is not None


def reason(error: BaseException) -> str:
    """A readable message: an OSError's text and file without its number, or the class name of an error without a message."""
    if isinstance(error, ImportError):
        why = why_not_imported(error)
        if why is not None:
            return why
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
