"""Who is at the other end: TLS contexts from Kafka's properties, principals, SASL mechanisms of both sides."""
