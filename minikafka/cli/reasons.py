"""Errors of this machine in words for people."""

from __future__ import annotations


def reason(error: BaseException) -> str:
    """What went wrong: of an OSError the system's words and the file, without the number; of an error without words its kind."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
