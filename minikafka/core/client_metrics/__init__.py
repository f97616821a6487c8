"""Metrics that clients push (KIP-714): subscriptions, who is asked for what and when, and what has been told."""
