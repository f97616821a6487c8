"""What can go wrong with a cluster of the test kit."""

from __future__ import annotations


class ClusterError(Exception):
    """A node did not do what was asked of it; the message says which and shows the end of its log."""
