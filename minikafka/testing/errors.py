"""What can go wrong with a cluster of the test kit."""

from __future__ import annotations


class ClusterError(Exception):
    """A node did not do what was asked of it; the message says which and shows the end of its log."""


class WrongConfiguration(ClusterError):
    """The properties of a node are not ones that a broker starts with; the message has a line for each that is wrong."""
