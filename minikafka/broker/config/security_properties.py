"""Apache Kafka 4.4's broker properties for TLS, SASL and ACLs that have an effect here.

Those in SECURITY can be set for one listener: listener.name.NAME.PROPERTY.
"""

from __future__ import annotations

from minikafka.broker.config.properties import Property


def _p(name: str, kind: str, default: str | None, doc: str, **options: object) -> Property:
    return Property(name, kind, default, doc, **options)  # type: ignore[arg-type]


#: The only supported authorizer, by the name of Kafka's class.
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

#: Properties of the authorizer, which are the same for all listeners.
AUTHORIZATION = [
    _p("allow.everyone.if.no.acl.found", "boolean", "false", "Whether a resource without ACLs is open to everyone. Only with an authorizer."),
    _p("authorizer.class.name", "string", "", "The authorizer; empty = none, everything is allowed. The only other value is org.apache.kafka.metadata.authorizer.StandardAuthorizer, for which minikafka has its own implementation. It uses the ACLs in the cluster's metadata."),
    _p("super.users", "string", "", "Principals that may do everything, separated by semicolons (User:admin;User:CN=broker). Include the nodes of the cluster. Only with an authorizer."),
]

#: Properties of delegation tokens, the same on every node.
DELEGATION_TOKENS = [
    _p("delegation.token.expiry.check.interval.ms", "long", "3600000", "How often expired delegation tokens are removed.", low=1),
    _p("delegation.token.expiry.time.ms", "long", "86400000", "Lifetime of a delegation token that is not renewed.", low=1),
    _p("delegation.token.max.lifetime.ms", "long", "604800000", "Maximum lifetime of a delegation token, renewals included.", low=1),
    _p("delegation.token.secret.key", "password", None, "Secret that signs delegation tokens, the same on all brokers and controllers; without it there are none."),
]

SECURITY = [
    _p("connection.failed.authentication.delay.ms", "int", "100", "How long the response to a failed authentication is delayed. Then the connection is closed.", low=0),
    _p("connections.max.reauth.ms", "long", "0", "Lifetime of a SASL authentication, after which the client must authenticate again; 0 = unlimited."),
    _p("sasl.enabled.mechanisms", "list", "GSSAPI", "SASL mechanisms for clients: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512. A SASL listener needs at least one.", dynamic=True),
    _p("sasl.jaas.config", "password", None, "Login context in JAAS syntax. As in Kafka, a broker only reads listener.name.NAME.MECHANISM.sasl.jaas.config.", dynamic=True),
    _p("sasl.mechanism.controller.protocol", "string", "GSSAPI", "SASL mechanism for connections to controllers, if their listener uses SASL."),
    _p("sasl.mechanism.inter.broker.protocol", "string", "GSSAPI", "SASL mechanism for connections between brokers, if their listener uses SASL.", dynamic=True),
    _p("sasl.server.max.receive.size", "int", "524288", "Maximum size of a message during authentication, in bytes."),
    _p("ssl.client.auth", "string", "none", "Whether a client certificate is required, requested or not requested. For SASL_SSL only listener.name.NAME.ssl.client.auth counts.", choices=("required", "requested", "none"), dynamic=True),
    _p("ssl.enabled.protocols", "list", "TLSv1.2,TLSv1.3", "Enabled TLS versions: all from the lowest to the highest listed version.", dynamic=True),
    _p("ssl.endpoint.identification.algorithm", "string", "https", "How a server's host name is checked against its certificate; empty = not at all.", dynamic=True),
    _p("ssl.key.password", "password", None, "Password of the private key.", dynamic=True),
    _p("ssl.keystore.certificate.chain", "password", None, "Certificates of this broker, as PEM.", dynamic=True),
    _p("ssl.keystore.key", "password", None, "Private key of this broker, as PEM.", dynamic=True),
    _p("ssl.keystore.location", "string", None, "File with this broker's key and certificates: PEM or PKCS12.", dynamic=True),
    _p("ssl.keystore.password", "password", None, "Password of that file.", dynamic=True),
    _p("ssl.keystore.type", "string", "JKS", "Format of that file: PEM, PKCS12 or JKS. The content of the file decides.", dynamic=True),
    _p("ssl.principal.mapping.rules", "string", "DEFAULT", "Rules that map a certificate's distinguished name to a short name."),
    _p("ssl.truststore.certificates", "password", None, "Certificates that are trusted, as PEM.", dynamic=True),
    _p("ssl.truststore.location", "string", None, "File with the certificates that are trusted: PEM or PKCS12.", dynamic=True),
    _p("ssl.truststore.password", "password", None, "Password of that file.", dynamic=True),
    _p("ssl.truststore.type", "string", "JKS", "Format of that file: PEM, PKCS12 or JKS. The content of the file decides.", dynamic=True),
]
