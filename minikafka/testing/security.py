"""TLS and SASL of embedded clusters: generated certificates, users, and the clients' settings."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minikafka.testing.errors import ClusterError

#: The user as which brokers, controllers and the test's admin client log in.
ADMIN = "admin"
USERS: Mapping[str, str] = {ADMIN: "admin"}
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class Security:
    """The security of all of a cluster's listeners, including the controllers'.

    `protocol` is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. `mutual`: clients need certificates too. `users`: name -> password; they must
    include `admin`, as which the brokers themselves log in. `acls` enables an authorizer: `admin` (with mutual TLS the brokers'
    certificate) may do everything, other users what ACLs allow.
    """

    protocol: str = "SASL_SSL"
    mechanism: str = "PLAIN"
    mutual: bool = False
    users: Mapping[str, str] = field(default_factory=lambda: dict(USERS))
    acls: bool = False

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"protocol={self.protocol}: must be one of {', '.join(PROTOCOLS)}")
        if self.mechanism not in MECHANISMS:
            raise ValueError(f"mechanism={self.mechanism}: must be one of {', '.join(MECHANISMS)}")
        if self.has_sasl and ADMIN not in self.users:
            raise ValueError(f"users: there must be one called {ADMIN}, because the brokers log in as that user")
        if self.acls and not (self.has_sasl or self.mutual):
            raise ValueError(f"acls: clients cannot be identified with {self.protocol}; use SASL or mutual TLS")

    @classmethod
    def of(cls, given: Security | str | None) -> Security | None:
        """The Security for "ssl", "mtls", "sasl_plaintext", "sasl_ssl" or a Security; None for plain text."""
        if given is None or isinstance(given, Security):
            return None if given is None or given.protocol == "PLAINTEXT" else given
        name = given.upper()
        if name in ("MTLS", "SSL"):
            return cls("SSL", mutual=name == "MTLS")
        return cls.of(cls(name))

    @property
    def super_user(self) -> str:
        """The principal's name with which brokers connect."""
        return ADMIN if self.has_sasl else "broker"

    @property
    def has_tls(self) -> bool:
        """Whether the listeners use TLS."""
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether the listeners use SASL."""
        return self.protocol.startswith("SASL")


class SecuredCluster:
    """The files and properties of one cluster with `security`. The certificates are in `security` under the cluster's directory."""

    def __init__(self, security: Security, directory: Path) -> None:
        """Creates the certificates unless they exist. Raises ClusterError."""
        self.security = security
        self.directory = directory / "security"
        #: Clients need `ca`, and for mutual TLS `client_certificate` and `client_key`; `broker_key` has the brokers' key and certificate.
        self.ca = self.directory / "ca.pem"
        self.broker_key = self.directory / "broker.pem"
        self.client_certificate = self.directory / "client.pem"
        self.client_key = self.directory / "client.key"
        if security.has_tls and not self.ca.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            self._make_certificates()

    def _make_certificates(self) -> None:
        try:
            import trustme
        except ImportError as error:
            raise ClusterError("TLS needs trustme, which makes the certificates: pip install trustme") from error
        authority = trustme.CA(organization_name="minikafka tests")
        broker = authority.issue_cert("127.0.0.1", "localhost", "::1", common_name="broker", organization_name="minikafka tests")
        client = authority.issue_cert("client@localhost", common_name="client", organization_name="minikafka tests")
        authority.cert_pem.write_to_path(str(self.ca))
        chain = b"".join(part.bytes() for part in broker.cert_chain_pems)
        self.broker_key.write_bytes(_pkcs8(broker.private_key_pem.bytes()) + chain)
        self.client_certificate.write_bytes(b"".join(part.bytes() for part in client.cert_chain_pems))
        self.client_key.write_bytes(_pkcs8(client.private_key_pem.bytes()))

    # -- brokers ---------------------------------------------------------------------------------------------------

    def broker_properties(self, listener: str, controller_listener: str) -> dict[str, str]:
        """The security properties of every node."""
        security = self.security
        properties = {
            "listener.security.protocol.map": f"{listener}:{security.protocol},{controller_listener}:{security.protocol}",
            "inter.broker.listener.name": listener,
        }
        if security.has_tls:
            properties |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.broker_key),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.ca),
            }
        for name in (listener, controller_listener):
            prefix = f"listener.name.{name.lower()}"
            if security.mutual:
                properties[f"{prefix}.ssl.client.auth"] = "required"
            if security.has_sasl:
                mechanism = security.mechanism
                properties[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = self._broker_login()
        if security.has_sasl:
            properties |= {
                "sasl.enabled.mechanisms": security.mechanism,
                "sasl.mechanism.inter.broker.protocol": security.mechanism,
                "sasl.mechanism.controller.protocol": security.mechanism,
            }
        if security.acls:
            properties |= {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": f"User:{security.super_user}",
                "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
            }
        return properties

    def scram_users(self) -> list[str]:
        """Users whose credentials the metadata log starts with, in the format of `storage format --add-scram`."""
        security = self.security
        if not security.has_sasl or security.mechanism == "PLAIN":
            return []
        return [f'{security.mechanism}=[name={name},password="{password}"]' for name, password in security.users.items()]

    def _broker_login(self) -> str:
        security = self.security
        users = {}
        if security.mechanism == "PLAIN":
            users = {f"user_{name}": password for name, password in security.users.items()}
        return jaas_config(security.mechanism, {"username": ADMIN, "password": security.users[ADMIN], **users})

    # -- clients ---------------------------------------------------------------------------------------------------

    def client_properties(self, user: str = ADMIN, password: str | None = None) -> dict[str, str]:
        """Kafka's client properties, for the Java and minikafka clients."""
        security = self.security
        properties = {"security.protocol": security.protocol}
        if security.has_tls:
            properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if security.mutual:
            chain, key = self.client_certificate.read_text(), self.client_key.read_text()
            properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
        if security.has_sasl:
            login = {"username": user, "password": self._password(user, password)}
            properties |= {"sasl.mechanism": security.mechanism, "sasl.jaas.config": jaas_config(security.mechanism, login)}
        return properties

    def client_config(self, client: str, user: str = ADMIN, password: str | None = None) -> dict[str, Any]:
        """The security settings of a client, under that client's names."""
        security = self.security
        if client in ("java", "minikafka"):
            return dict(self.client_properties(user, password))
        if client == "spark":
            return {f"kafka.{name}": value for name, value in self.client_properties(user, password).items()}
        if client == "confluent":
            config: dict[str, Any] = {"security.protocol": security.protocol}
            if security.has_tls:
                config["ssl.ca.location"] = str(self.ca)
            if security.mutual:
                config |= {"ssl.certificate.location": str(self.client_certificate), "ssl.key.location": str(self.client_key)}
            if security.has_sasl:
                config |= {"sasl.mechanism": security.mechanism, "sasl.username": user, "sasl.password": self._password(user, password)}
            return config
        config = {"security_protocol": security.protocol}
        if security.has_tls and client == "aiokafka":
            config["ssl_context"] = self.ssl_context()
        elif security.has_tls:
            config["ssl_cafile"] = str(self.ca)
            if security.mutual:
                config |= {"ssl_certfile": str(self.client_certificate), "ssl_keyfile": str(self.client_key)}
        if security.has_sasl:
            config |= {
                "sasl_mechanism": security.mechanism,
                "sasl_plain_username": user,
                "sasl_plain_password": self._password(user, password),
            }
        return config

    def ssl_context(self) -> ssl.SSLContext:
        """An SSL context, for clients that take one."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if self.security.mutual:
            context.load_cert_chain(str(self.client_certificate), str(self.client_key))
        return context

    def _password(self, user: str, password: str | None) -> str:
        return self.security.users.get(user, "") if password is None else password


def _pkcs8(key: bytes) -> bytes:
    """A private key (PEM) in PKCS #8, the only format that Java reads."""
    from cryptography.hazmat.primitives import serialization

    loaded = serialization.load_pem_private_key(key, None)
    return loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def jaas_config(mechanism: str, options: Mapping[str, str]) -> str:
    """A JAAS configuration: Apache Kafka's login module of the mechanism, with options."""
    kind = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    texts = (f'{name}="{value}"' for name, value in options.items() if '"' not in value)
    return f"org.apache.kafka.common.security.{kind} required {' '.join(texts)};"
