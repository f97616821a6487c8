"""Authorization: ACLs, filters over them, and decisions (Apache Kafka's StandardAuthorizer)."""
