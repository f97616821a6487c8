"""`minikafka delegation-tokens` beside the words of kafka-delegation-tokens.sh."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from helpers.acl_node import USERS, login_of

from minikafka.cli.main import cli
from minikafka.testing import EmbeddedCluster
from minikafka.testing.security import Security


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    security = Security("SASL_PLAINTEXT", users={name: name for name in USERS}, acls=True)
    with EmbeddedCluster(1, config={"delegation.token.secret.key": "hush"}, security=security) as running:
        yield running


def tool(cluster: EmbeddedCluster, directory: Path, user: str, *words: str) -> Result:
    file = directory / f"{user}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in login_of(user).items()))
    return CliRunner().invoke(cli, ["delegation-tokens", "-b", cluster.bootstrap_servers, "--command-config", str(file), *words])


def test_a_token_is_created_shown_renewed_and_ended(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    made = tool(cluster, tmp_path, "alice", "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    assert made.exit_code == 0, made.output
    assert made.stdout.startswith("Calling create token operation with renewers :[User:bob] , max-life-time-period :-1\n")
    [shown] = json.loads(tool(cluster, tmp_path, "alice", "--describe", "-o", "json").stdout)
    assert (shown["owner"], shown["requester"], shown["renewers"]) == ("User:alice", "User:alice", ["User:bob"])
    assert shown["token_id"] in made.stdout and shown["hmac"] in made.stdout
    renewed = tool(cluster, tmp_path, "bob", "--renew", "--renew-time-period", "1000", "--hmac", shown["hmac"])
    assert "Completed renew operation. New expiry date : " in renewed.stdout
    ended = tool(cluster, tmp_path, "alice", "--expire", "--expiry-time-period", "-1", "--hmac", shown["hmac"])
    assert "Completed expire operation. New expiry date : " in ended.stdout
    nothing = tool(cluster, tmp_path, "alice", "--describe", "--owner-principal", "User:alice").stdout
    assert nothing.startswith("Calling describe token operation for owners: [User:alice]\nTotal number of tokens : 0\nTOKENID")


def test_an_owner_may_be_named_by_who_is_allowed_to(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    words = ("--create", "--max-life-time-period", "60000", "--owner-principal", "User:bob")
    refused = tool(cluster, tmp_path, "alice", *words)
    assert refused.exit_code == 1 and "DELEGATION_TOKEN_AUTHORIZATION_FAILED" in refused.stderr
    [made] = json.loads(tool(cluster, tmp_path, "admin", *words, "-o", "json").stdout)
    assert (made["owner"], made["requester"], made["max_ms"] - made["issued_ms"]) == ("User:bob", "User:admin", 60_000)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--create", "--describe"), "exactly one action"),
        (("--create",), "Missing required argument \"[max-life-time-period]\""),
        (("--renew", "--hmac", "aa=="), "Missing required argument \"[renew-time-period]\""),
        (("--describe", "--hmac", "aa=="), "can't be used with option \"[hmac]\""),
        (("--describe", "--owner-principal", "alice"), "TYPE:NAME"),
        (("--expire", "--expiry-time-period", "1", "--hmac", "?"), "base64"),
    ],
)  # fmt: skip
def test_wrong_usage_is_explained(words: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(cli, ["delegation-tokens", "-b", "127.0.0.1:1", *words])
    assert result.exit_code == 2 and said in result.stderr
