"""The errors that test clusters raise."""

from __future__ import annotations


class ClusterError(Exception):
    """A node or the cluster failed; the message says what, and shows the end of the logs where they help."""


class WrongConfiguration(ClusterError):
    """A node's properties are invalid; the message has one line for each wrong property."""
