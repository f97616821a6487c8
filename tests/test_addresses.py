"""Addresses are read and named in one place, with IPv6 addresses in brackets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minikafka.addresses import host_port, split_addresses, split_host_port
from minikafka.broker.config.broker_config import BrokerConfig, ConfigurationError
from minikafka.broker.quorum.format import FormatError, parse_initial_controllers

SOURCES = Path(__file__).parents[1] / "minikafka"
#: An f-string that puts a host and a port together itself.
_JOINED = re.compile(r"\{[^{}]*\bhost(\(\))?\}:\{|\{[^{}]*\bhost or '[^']*'\}:\{")
#: Code that takes brackets from a host, or the port from an address.
_TAKEN_APART = re.compile(r"""strip\("\[\]"\)|host, _, port = |port = .*rsplit\(":", """)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:9092", "localhost", 9092),
        ("10.0.0.1:1", "10.0.0.1", 1),
        ("[::1]:9092", "::1", 9092),
        ("[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
        ("2001:db8::1:9092", "2001:db8::1", 9092),
    ],
)
def test_a_host_and_a_port_are_told_apart(text: str, host: str, port: int) -> None:
    assert split_host_port(text) == (host, port)
    assert split_host_port(host_port(host, port)) == (host, port)


@pytest.mark.parametrize(
    "text", ["", "localhost", ":9092", "localhost:", "a:b", "a:65536", "[::1]", "::1", "[::1:9092", "[a]b:1", "a b:1", "[a:b]:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        split_host_port(text)


@pytest.mark.parametrize("text", ["a:1;b:2", "a:1 b:2", "a;b"])
def test_addresses_are_separated_by_commas(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port: separate addresses with commas"):
        split_addresses(text)


def test_an_address_of_a_bootstrap_list_may_lack_its_port() -> None:
    assert split_addresses("[::1], SSL://[::1]:1,a") == [("::1", 9092), ("::1", 1), ("a", 9092)]
    with pytest.raises(ValueError, match=re.escape("in brackets, as in [::1]:9092")):
        split_addresses("::1")


def test_properties_hold_ipv6_addresses() -> None:
    properties = {
        "process.roles": "broker,controller", "node.id": "1", "controller.listener.names": "CONTROLLER", "log.dirs": "/d",
        "controller.quorum.voters": "1@[::1]:9093", "listeners": "PLAINTEXT://[::1]:9092,CONTROLLER://[::1]:9093",
        "advertised.listeners": "PLAINTEXT://[::2]:9092",
    }  # fmt: skip
    config = BrokerConfig.from_properties(properties)
    assert config.voters == {1: ("::1", 9093)}
    assert [str(one) for one in config.broker_listeners] == ["PLAINTEXT://[::1]:9092"]
    assert str(config.advertised["PLAINTEXT"]) == "PLAINTEXT://[::2]:9092"
    with pytest.raises(ConfigurationError, match=re.escape("controller.quorum.voters=1@::1: must be id@host:port")):
        BrokerConfig.from_properties({**properties, "controller.quorum.voters": "1@::1"})
    names = ("node.id", "controller.listener.names", "log.dirs", "controller.quorum.voters")
    controller = BrokerConfig.from_properties({"process.roles": "controller", **{name: properties[name] for name in names}})
    assert [str(one) for one in controller.controller_listeners] == ["CONTROLLER://[::]:9093"], "it follows from the voters' addresses"
    directory = "AAAAAAAAAAAAAAAAAAAAAw"
    (voter,) = parse_initial_controllers(f"1@[::1]:9093:{directory}", "CONTROLLER").voters()
    assert (voter.endpoints[0].host, voter.endpoints[0].port) == ("::1", 9093)
    with pytest.raises(FormatError):
        parse_initial_controllers(f"1@::1:{directory}", "CONTROLLER")


def test_nobody_else_puts_addresses_together_or_takes_them_apart() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{number}: {line.strip()}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path.name != "addresses.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _JOINED.search(line) or _TAKEN_APART.search(line)
    ]
    assert found == []
