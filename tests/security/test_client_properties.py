"""Names of client properties: Kafka's, librdkafka's, refused and unknown ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from minikafka.cli.main import cli
from minikafka.client.cluster import client_security
from minikafka.client.errors import ClientError
from minikafka.security.client_properties import EFFECTIVE, READ, REFUSED, RENAMED, WITHOUT_EFFECT, client_properties
from minikafka.security.errors import SecurityError

NOBODY = "localhost:1"


def said(*arguments: str, input: str = "x\n") -> tuple[int, str]:
    result = CliRunner().invoke(cli, list(arguments), input=input)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ssl.ca.locatoin", "ssl.ca.location"),
        ("security.protocl", "security.protocol"),
        ("sasl.mechanim", "sasl.mechanism"),
        ("sasl.user", "sasl.username"),
    ],
)
def test_a_misspelt_name_is_reported_with_a_suggestion(name: str, meant: str) -> None:
    for command in (("produce", "t"), ("consume", "t"), ("topics", "--list"), ("top",)):
        status, output = said(*command, "-b", NOBODY, "-X", f"{name}=x")
        assert status == 2 and f"{name} is not a connection property" in output and f"did you mean {meant}?" in output, output
    with pytest.raises(ClientError, match="did you mean"):
        client_security({name: "x"})


def test_a_misspelt_name_in_a_file_is_reported_and_foreign_properties_are_ignored(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.properties", tmp_path / "bad.properties"
    good.write_text("acks=all\nlinger.ms=5\nbootstrap.servers=a:1\nssl.protocol=TLSv1.3\nsasl.login.class=x\nssl.client.auth=none\n")
    bad.write_text("acks=all\nssl.truststore.locaton=/x\n")
    status, output = said("topics", "--list", "-b", NOBODY, "--command-config", str(good))
    assert status == 3, output
    status, output = said("topics", "--list", "-b", NOBODY, "--command-config", str(bad))
    assert status == 2 and "did you mean ssl.truststore.location?" in output, output


def test_on_the_command_line_only_what_has_an_effect_is_taken() -> None:
    for name, why in (("acks", "has no effect on `consume`"), ("ssl.protocol", "has no effect here"), *REFUSED.items()):
        status, output = said("consume", "t", "-b", NOBODY, "-X", f"{name}=x")
        assert status == 2 and why in " ".join(output.split()), output


def test_names_of_librdkafka_stand_for_those_of_kafka(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("the key")
    (tmp_path / "certificate.pem").write_text("the certificate")
    found = client_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "PLAIN",
            "ssl.ca.location": "/ca.pem",
            "ssl.key.location": str(tmp_path / "key.pem"),
            "ssl.certificate.location": str(tmp_path / "certificate.pem"),
            "ssl.endpoint.identification.algorithm": "none",
        },
        only_connection=True,
    )
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "ssl.truststore.location": "/ca.pem",
        "ssl.keystore.key": "the key",
        "ssl.keystore.certificate.chain": "the certificate",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert client_properties(found, only_connection=True) == found, "what was understood once is understood again"
    with pytest.raises(SecurityError, match=r"ssl\.key\.location=/nowhere: No such file"):
        client_properties({"ssl.key.location": "/nowhere"})
    with pytest.raises(SecurityError, match="set the same property"):
        client_properties({"sasl.mechanism": "PLAIN", "sasl.mechanisms": "PLAIN"})


def test_every_name_has_one_meaning() -> None:
    assert not EFFECTIVE & WITHOUT_EFFECT and not (set(RENAMED) | set(READ)) & (EFFECTIVE | WITHOUT_EFFECT | set(REFUSED))
    assert {*RENAMED.values(), *READ.values()} <= EFFECTIVE
