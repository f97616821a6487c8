"""Who may do what: ACLs, filters over them, and the decision (Apache Kafka's StandardAuthorizer)."""
