"""What can be wrong with security properties."""

from __future__ import annotations


class SecurityError(ValueError):
    """A property, a file or a combination of them cannot be used; the text says which, why and what to do."""
