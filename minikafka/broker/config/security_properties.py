"""The broker properties of Apache Kafka 4.4 about TLS, SASL and ACLs that have an effect here. Those of SECURITY may be set for one listener:
listener.name.NAME.PROPERTY."""

from __future__ import annotations

from minikafka.broker.config.properties import Property


def _p(name: str, kind: str, default: str | None, doc: str, **options: object) -> Property:
    return Property(name, kind, default, doc, **options)  # type: ignore[arg-type]


#: The authorizer that there is: Kafka's own, by its name.
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

#: Who may do what; for all listeners alike.
AUTHORIZATION = [
    _p("allow.everyone.if.no.acl.found", "boolean", "false", "Whether everybody may do everything with a resource that has no ACL; only with an authorizer."),
    _p("authorizer.class.name", "string", "", "The authorizer; empty = none, everything is allowed. org.apache.kafka.metadata.authorizer.StandardAuthorizer is built in and uses the ACLs in the cluster's metadata."),
    _p("super.users", "string", "", "Principals who may do everything, separated by semicolons (User:admin;User:CN=broker); nodes of the cluster belong here. Only with an authorizer."),
]

SECURITY = [
    _p("connection.failed.authentication.delay.ms", "int", "100", "How long the answer to a failed authentication is held back; then the connection ends.", low=0),
    _p("connections.max.reauth.ms", "long", "0", "How long a SASL authentication is valid before the client must authenticate again; 0 = forever."),
    _p("sasl.enabled.mechanisms", "list", "GSSAPI", "SASL mechanisms that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512. A SASL listener must name some.", dynamic=True),
    _p("sasl.jaas.config", "password", None, "Login context in JAAS syntax. For brokers it is read as listener.name.NAME.MECHANISM.sasl.jaas.config only, as in Kafka.", dynamic=True),
    _p("sasl.mechanism.controller.protocol", "string", "GSSAPI", "SASL mechanism towards controllers, when their listener speaks SASL."),
    _p("sasl.mechanism.inter.broker.protocol", "string", "GSSAPI", "SASL mechanism among brokers, when their listener speaks SASL.", dynamic=True),
    _p("sasl.server.max.receive.size", "int", "524288", "Bytes of a message while a connection is being authenticated."),
    _p("ssl.client.auth", "string", "none", "Whether clients must, may or need not show a certificate; for SASL_SSL as listener.name.NAME.ssl.client.auth only.", choices=("required", "requested", "none"), dynamic=True),
    _p("ssl.enabled.protocols", "list", "TLSv1.2,TLSv1.3", "TLS versions that may be used: the lowest and the highest named, and what lies between.", dynamic=True),
    _p("ssl.endpoint.identification.algorithm", "string", "https", "How a host's name is checked against its certificate; empty = not.", dynamic=True),
    _p("ssl.key.password", "password", None, "Password of the private key.", dynamic=True),
    _p("ssl.keystore.certificate.chain", "password", None, "Certificates of this broker, as PEM.", dynamic=True),
    _p("ssl.keystore.key", "password", None, "Private key of this broker, as PEM.", dynamic=True),
    _p("ssl.keystore.location", "string", None, "File with this broker's key and certificates: PEM or PKCS12.", dynamic=True),
    _p("ssl.keystore.password", "password", None, "Password of that file.", dynamic=True),
    _p("ssl.keystore.type", "string", "JKS", "Format of that file: PEM, PKCS12 or JKS. The content of the file decides.", dynamic=True),
    _p("ssl.principal.mapping.rules", "string", "DEFAULT", "Rules that turn a certificate's distinguished name into a short name."),
    _p("ssl.truststore.certificates", "password", None, "Certificates that are trusted, as PEM.", dynamic=True),
    _p("ssl.truststore.location", "string", None, "File with the certificates that are trusted: PEM or PKCS12.", dynamic=True),
    _p("ssl.truststore.password", "password", None, "Password of that file.", dynamic=True),
    _p("ssl.truststore.type", "string", "JKS", "Format of that file: PEM, PKCS12 or JKS. The content of the file decides.", dynamic=True),
]
