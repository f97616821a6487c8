"""The error that wrong security properties raise."""

from __future__ import annotations


class SecurityError(ValueError):
    """A property, a file or a combination of them is unusable; the text says which, why and what to do."""
