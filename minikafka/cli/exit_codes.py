"""Exit statuses of all commands, as docs/command-line.md shows them. `tests/cli/test_exit_codes.py` checks them."""

from __future__ import annotations

import click

#: Common to all commands.
COMMON: dict[int, str] = {
    0: "done",
    1: "the cluster rejected the request, or the data is not as expected",
    2: "wrong usage or configuration",
    3: "the cluster cannot be reached or does not answer in time",
    130: "interrupted (Ctrl-C)",
}
#: command -> status -> its meaning there, if it says more than the common one.
STATUSES: dict[str, dict[int, str]] = {
    "audit": {
        0: "every replica that was compared agrees, and something was compared",
        1: "divergence, corruption, or an acknowledged record that is missing",
        3: "something could not be compared, or nothing was",
    },
    "cluster": {
        0: "done; `up`: it ran, and Ctrl-C stopped it",
        1: "`up`: the cluster could not start",
        3: "`kill` and similar commands: no `cluster up` is running there",
        130: "`up`: Ctrl-C before the cluster was up",
    },
    "consumer-groups": {1: "rejected, or a requested group does not exist"},
    "demo": {0: "PASS", 1: "a step failed, and the output names it"},
    "doctor": {
        0: "every advertised listener answers, and no check fails",
        1: "something is wrong: a listener does not answer, or a check fails",
        3: "nothing answers at that address",
    },
    "dump-log": {1: "a file is damaged, or an index is wrong", 2: "a file cannot be read"},
    "health": {0: "healthy", 1: "not healthy, or with `-e` not within `--timeout`"},
    "install-shims": {1: "a file of that name already exists"},
    "load": {0: "every row is in the topic exactly once", 1: "rejected, or rows are missing"},
    "share-groups": {1: "rejected, or a requested group does not exist"},
    "streams-groups": {1: "rejected, or a requested group does not exist"},
    "sim": {1: "an invariant was violated, and the output names the seed"},
    "start": {0: "stopped cleanly", 1: "the node could not start or continue"},
    "storage": {1: "`format`: rejected; `info`: something is wrong"},
    "verifiable-producer": {1: "a record was not acknowledged"},
    "verify-files": {0: "the files are intact", 1: "they are not"},
}


def reaches_a_cluster(name: str) -> bool:
    """Whether a command, or one in it, takes the address of a cluster."""
    from minikafka.cli.main import cli

    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return any("--bootstrap-server" in parameter.opts for one in (command, *inner) for parameter in one.params)
