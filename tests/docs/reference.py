"""Makes the pages of docs/ that are made from the code and from docs/compatibility.toml: `python tests/docs/reference.py`."""

from __future__ import annotations

import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from api_reference import api_page
from cells import row

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

#: What the commands are for; every command is in one group.
GROUPS: dict[str, list[str]] = {
    "Run": ["start", "storage", "cluster", "demo"],
    "Inspect": ["health", "doctor", "top", "metadata-quorum", "log-dirs", "features", "broker-api-versions", "dump-log"],
    "Records": ["produce", "consume", "console-producer", "console-consumer", "console-share-consumer", "get-offsets", "delete-records"],
    "Topics, groups, configurations": [
        "topics", "configs", "consumer-groups", "groups", "transactions", "leader-election", "reassign-partitions", "acls",
        "client-metrics", "delegation-tokens", "share-groups", "streams-groups",
    ],
    "Prove, load, measure": [
        "audit", "load", "verify-files", "verifiable-producer", "verifiable-consumer", "verifiable-share-consumer",
        "producer-perf-test", "consumer-perf-test", "share-consumer-perf-test", "bench", "sim",
    ],
    "Shell": ["completion", "install-shims"],
}  # fmt: skip

COMMAND_LINE = """# Command line

`minikafka COMMAND --help` lists every option. Commands that Apache Kafka also has keep its flags and output; their names lack `kafka-` and
`.sh`. `minikafka install-shims DIR` writes scripts with Kafka's names, such as `kafka-topics.sh`. All commands work with Apache Kafka's
brokers, too.

"""

CONVENTIONS = """## Common to all commands

| | |
|---|---|
| cluster | `-b HOST:PORT`, else `MINIKAFKA_BOOTSTRAP`, else `KAFKA_BOOTSTRAP_SERVERS`, else `localhost:9092` |
| output format | `-o table`, `wide`, `json`, `jsonl`, `yaml`; results go to standard output, everything else to standard error |
| color | only on a terminal, and not with `NO_COLOR` |
| completion | commands, options, and the cluster's topics and groups; `minikafka completion --help` explains how to set it up |
| errors | one line that says what failed, why, and what to do; `--traceback` shows the Python traceback |

EXIT STATUSES
KAFKA FLAGS
## Break a cluster that `cluster up` started

| command | does |
|---|---|
| `minikafka cluster kill 2` | kills broker 2; `stop 2` stops it cleanly, `start 2` starts it, `start --wipe 2` wipes its disk first |
| `minikafka cluster pause 2` | sends SIGSTOP: the broker hangs with its connections open; `resume 2` wakes it |
| `minikafka cluster cut 1` | cuts the links between broker 1 and the other brokers, but not those to clients; `heal` restores them |
| `minikafka cluster status` | shows leaders and epochs, in-sync sets, and each replica's own state |
| `minikafka cluster up --security SASL_SSL` | starts a cluster with TLS, SASL or both on every listener (also `SSL`, `MTLS`, ...), and \
prints which files clients need |

[How replication works](replication.md) uses these commands.
"""


KAFKA_FLAGS = """\
minikafka understands every flag that Apache Kafka 4.4's tools print for `--help`, including `--bootstrap-controller` and the older names
`--consumer.config`, `--producer.config` and `--admin.config`. A test checks the whole list. The following flags and tools have no effect,
or minikafka does not offer them:"""


PYTHON = """\
CI runs Python 3.11 on x86-64. With other versions, we installed the wheel into empty environments. In each we ran three brokers, killed and
restarted one, ran both kinds of audit, and ran the demo:

| Python | machine | tests of wire, storage, core and client |
|---|---|---|
| 3.12.1, 3.13.0, 3.14.10 | Linux x86-64 | 4,444 pass; two need mypy, which was not installed |
| 3.11.2 | Linux ARM64 (Debian 12), under QEMU | not completed |

For musl, we used the root file system of Alpine 3.23.6 (musl 1.2.5), with a CPython 3.11.2 and an `lz4` that we compiled against musl.
With the wheels for musl and `packaging/alpine.txt`, three brokers survived a kill, their audit passed, and so did the demo. We have not
used Alpine's own Python packages. With musl 1.2.3, as in Alpine 3.17, the wheels of numpy 2.4.6, cramjam 2.14.0 and cryptography 50.0.2
crash Python: they hold libraries with relocations of type `DT_RELR`, which musl reads from 1.2.4 on. We have not used ARM hardware."""


KAFKA_SUITE = """\
# Apache Kafka's own tests

Apache Kafka 4.3.0 publishes its test classes. `python tests/kafka_suite/run.py --keep` runs them unchanged on minikafka processes, and
keeps the newest result of each test in `tests/kafka_suite/results.tsv`. This page is generated from that file and from `reasons.toml`. It
leaves out variants with combined nodes, except for the classes of `tools.consumer.group`, which have no others.

| column | counts tests that |
|---|---|
| internals | access objects inside a broker, and so say nothing about minikafka |
| fails as 4.4 does | expect the behavior of 4.3, and also fail on Apache Kafka 4.4.0, whose APIs minikafka serves |
| not offered | test a feature that minikafka does not have |
THERE_TOO| fails | fail for another reason |

BASELINE"""
THERE_TOO = "| fails there too | fail on Apache Kafka's own brokers, too |\n"
BASELINE = """\
The column *pass on Apache Kafka* shows the result of the same tests on Kafka's own brokers (`--kind inprocess --keep`, `baseline.tsv`),
where we have run them."""
NO_BASELINE = "We have not run them on Apache Kafka's own brokers for comparison (`--kind inprocess --keep` does)."
KAFKA_SUITE_IN_SHORT = """\
[Apache Kafka's own tests](kafka-tests.md) run unchanged on minikafka processes: CLASSES classes with TESTS tests. PASS pass. INTERNALS
access objects inside a broker, and so say nothing about minikafka. SAME fail in the same way on Apache Kafka 4.4.0, because they expect
the behavior of 4.3. ABSENT test features that minikafka does not have: Kerberos, two-phase commit and tiered storage. Tests
that fail on Apache Kafka's own brokers, too: TOO. Tests that fail for other reasons, which the page lists: FAIL."""


TOOLS = """\
We tried these programs by hand in November 2026, with three brokers that had data, groups, transactions, ACLs and quotas. No test of the
project repeats this."""
SUITES = """\
We ran the test suites of these clients by hand in November 2026, unchanged."""


DIFFERENCES = """\
`tests/differential` sends the same generated requests, valid and invalid, to Apache Kafka 4.4 and to minikafka, and compares the responses
field by field. These differences remain. An empty cell stands for any value."""
FILES = """\
`tests/differential/test_directories.py` gives the same work to minikafka and to Apache Kafka 4.4 with the feature levels of 4.3. Then it
stops both and compares all files. It compares clients' topics byte for byte, also indexes, snapshots and checkpoints, and the records of
coordinators and of the metadata log without ids and times. These differences remain."""


def _differences() -> list[str]:
    """tests/differential/differences.toml."""
    found = tomllib.loads((ROOT / "tests" / "differential" / "differences.toml").read_text())
    lines = ["## Responses that differ from Apache Kafka's", "", *DIFFERENCES.splitlines(), ""]
    lines += ["| API | field | Kafka | minikafka | difference |", "|---|---|---|---|---|"]
    for one in sorted(found["difference"], key=lambda one: (one["api"], one.get("path", ""), str(one.get("kafka", "")))):
        path = f"`{one['path']}`" if "path" in one else ""
        lines.append(row(one["api"], path, one.get("kafka", ""), one.get("ours", ""), one["why"]))
    lines += ["", "## Files that differ from Apache Kafka's", "", *FILES.splitlines(), "", "| file | difference |", "|---|---|"]
    return [*lines, *(row(f"`{one['path']}`", one["why"]) for one in found["file"]), ""]


def kafka_tests_page() -> str:
    """docs/kafka-tests.md."""
    from kafka_suite import results

    baseline = results.read(results.BASELINE)
    head = KAFKA_SUITE.replace("BASELINE", BASELINE if baseline else NO_BASELINE).replace("THERE_TOO", THERE_TOO if baseline else "")
    return "\n".join([head, "", *results.table(list(results.read(results.KEPT).values()), results.reasons(), baseline)]) + "\n"


def _kafka_suite_in_short() -> list[str]:
    from kafka_suite import results

    kept = list(results.read(results.KEPT).values())
    counts = results.total(kept, results.reasons(), results.read(results.BASELINE))
    numbers = {"CLASSES": len({result.class_name for result in kept}), "TESTS": len(kept), "PASS": counts["pass"]}
    numbers["TOO"] = counts[results.THERE_TOO]
    numbers |= {"INTERNALS": counts["internals"], "SAME": counts["fails as 4.4 does"], "ABSENT": counts["not offered"]}
    text = KAFKA_SUITE_IN_SHORT
    for word, number in (numbers | {"FAIL": counts["fails"]}).items():
        text = text.replace(word, f"{number:,}")
    return textwrap.wrap(" ".join(text.split()), 140, break_long_words=False, break_on_hyphens=False)


def command_line_page() -> str:
    """docs/command-line.md."""
    from minikafka.cli.main import COMMANDS

    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(COMMANDS), set(grouped) ^ set(COMMANDS)
    parts = [COMMAND_LINE]
    for title, names in GROUPS.items():
        rows = "".join(row(f"`minikafka {name}`", COMMANDS[name][2]) + "\n" for name in names)
        parts.append(f"## {title}\n\n| command | does |\n|---|---|\n{rows}\n")
    return "".join(parts) + CONVENTIONS.replace("EXIT STATUSES\n", _exit_statuses()).replace("KAFKA FLAGS\n", _kafka_flags())


def _exit_statuses() -> str:
    from minikafka.cli.exit_codes import COMMON, STATUSES

    lines = ["## Exit status", "", "| command | " + " | ".join(map(str, COMMON)) + " |", "|---|" + "---|" * len(COMMON)]
    lines += ["| all | " + " | ".join(COMMON.values()) + " |"]
    lines += [f"| `{name}` | " + " | ".join(own.get(code, "") for code in COMMON) + " |" for name, own in sorted(STATUSES.items())]
    lines += ["", "An empty cell means the same as in the first row."]
    lines += ["If no broker answers, a command gives up after 3 seconds; `health -e` waits.", ""]
    return "\n".join(lines) + "\n"


def _kafka_flags() -> str:
    from minikafka.cli.kafka_flags import NOT_OFFERED, TOOLS_NOT_OFFERED, WITHOUT_EFFECT

    lines = ["## Flags of Kafka's tools", "", KAFKA_FLAGS, "", "| flag | here |", "|---|---|"]
    for said, tools in (("accepted, no effect", WITHOUT_EFFECT), ("not supported", NOT_OFFERED)):
        lines += [row(f"`{name} {flag}`", f"{said}: {why}") for name, flags in tools.items() for flag, why in flags.items()]
    lines += [row(f"`kafka-{name}.sh`", f"not offered: {why}") for name, why in TOOLS_NOT_OFFERED.items()]
    return "\n".join(lines) + "\n\n"


def data() -> dict[str, list[dict[str, Any]]]:
    """docs/compatibility.toml."""
    return tomllib.loads((DOCS / "compatibility.toml").read_text())


def _rested_on(tests: list[str]) -> str:
    return ", ".join(f"`{test.removeprefix('tests/')}`" for test in tests)


def served() -> dict[int, tuple[int, int]]:
    """API key -> lowest and highest version, as a running broker says."""
    from minikafka.client.maintenance import Maintenance
    from minikafka.testing import EmbeddedBroker

    async def ask(admin: Maintenance) -> Any:
        await admin.cluster.refresh([])
        return await admin.api_versions(1)

    import asyncio

    async def go(address: str) -> Any:
        async with Maintenance(address) as admin:
            return await ask(admin)

    with EmbeddedBroker() as broker:
        answer = asyncio.run(go(broker.bootstrap_servers))
    return {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}


def compatibility_page() -> str:
    """docs/compatibility.md; starts a broker."""
    found = data()
    lines = [
        "# Compatibility",
        "",
        "This page lists what is tested with real brokers, and by which tests. `tests/docs/reference.py` generates it from",
        "`docs/compatibility.toml` and from a running broker's ApiVersions response.",
        "",
        "## Clients",
        "",
        *_clients(found["client"]),
        "",
        "## Python",
        "",
        *PYTHON.splitlines(),
        "",
        "## Apache Kafka",
        "",
        *_beside_kafka(found["kafka"]),
        "",
        "For details, see `tests/interop/README.md`.",
        "",
        *_held_to_kafka(),
        *_tried_by_hand(found),
        "## APIs",
        "",
        "These are the API versions that brokers serve to clients. An empty cell means that the API is not served.",
        "",
        *_apis(),
        "",
        "minikafka serves GetTelemetrySubscriptions and PushTelemetry while there is a subscription to client metrics"
        " ([operations](operations.md#metrics-of-clients)). Apache Kafka serves them only with a telemetry plug-in.",
        "Without `delegation.token.secret.key`, both answer that delegation tokens are disabled.",
    ]
    return "\n".join(lines) + "\n"


def _tried_by_hand(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    lines = ["## Tools and other programs", "", *TOOLS.splitlines(), "", "| program | version | what works |", "|---|---|---|"]
    lines += [*[row(one["name"], one["version"], one["what"]) for one in found["tool"]], "", *_notes(found["tool"])]
    lines += ["## Clients' own tests", "", *SUITES.splitlines(), ""]
    lines += ["| tests of | version | tests | passed | how |", "|---|---|---|---|---|"]
    lines += [row(one["name"], one["version"], one["tests"], one["passed"], one["what"]) for one in found["suite"]]
    return [*lines, "", *_notes(found["suite"])]


def _notes(rows: list[dict[str, Any]]) -> list[str]:
    """What there is to say of some rows, below their table."""
    lines = []
    for one in rows:
        if "notes" in one:
            lines += [f"{one['name']}:", "", *[f"- {note}" for note in one["notes"]], ""]
    return lines


def _held_to_kafka() -> list[str]:
    return ["## Apache Kafka's own tests", "", *_kafka_suite_in_short(), "", *_differences()]


def _clients(rows: Any) -> list[str]:
    """A table; a client's name and version stand in the first of its rows."""
    lines = ["| client | from version | what | tests |", "|---|---|---|---|"]
    seen = ""
    for one in rows:
        name = "" if one["name"] == seen else one["name"]
        seen = one["name"]
        lines.append(row(name, one.get("version", "") if name else "", one["what"], _rested_on(one["tests"])))
    return lines


def _beside_kafka(rows: Any) -> list[str]:
    return ["| what | tests |", "|---|---|", *[row(one["what"], _rested_on(one["tests"])) for one in rows]]


def _apis() -> list[str]:
    """A table of what Apache Kafka's brokers serve and of what a running broker says."""
    from minikafka.wire.registry import apis

    lines = ["| key | API | Kafka 4.4 | minikafka |", "|---|---|---|---|"]
    ours = served()
    for api in apis():
        if "broker" not in api.listeners:
            continue
        low, high = ours.get(api.key, (-1, -1))
        # Both name Produce 0, for older librdkafka, and refuse it.
        low = max(low, api.min_version)
        lines.append(row(api.key, api.name, _span(api.min_version, api.max_version), _span(low, high) if high >= 0 else ""))
    return lines


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


PAGES = {
    "api.md": api_page,
    "command-line.md": command_line_page,
    "compatibility.md": compatibility_page,
    "kafka-tests.md": kafka_tests_page,
}

if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    for page, make in PAGES.items():
        (DOCS / page).write_text(make())
        print(f"wrote docs/{page}")
