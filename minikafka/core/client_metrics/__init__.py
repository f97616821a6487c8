"""Metrics that clients push (KIP-714): subscriptions, the clients that push, and their samples."""
