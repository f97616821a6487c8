"""Authentication: TLS contexts from Kafka's properties, principals, SASL mechanisms for servers and clients."""
