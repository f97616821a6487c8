"""Metrics that clients push (KIP-714): the two APIs, and OTLP."""
