"""Readable messages for errors of the operating system."""

from __future__ import annotations


def reason(error: BaseException) -> str:
    """A readable message: an OSError's text and file without its number, or the class name of an error without a message."""
    if isinstance(error, ImportError):
        from minikafka import windows

        if windows.is_the_reason(error):
            return windows.ADVICE
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
