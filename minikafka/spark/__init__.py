"""Data work that outgrows one machine: the consistency audit of Kafka-format logs and the bulk load. See README.md."""
