"""The bookkeeping of the suite, without Java."""

from __future__ import annotations

import textwrap
from collections import Counter
from pathlib import Path

from kafka_suite import harness, results
from kafka_suite.results import Result

LINES = """\
kafka.api.ATest.one#1\tpass\t1.5\t
kafka.api.ATest.one#2\tskip\t0.0\tcombined nodes are not selected
kafka.api.ATest.two\tfail\t2.0\tAssertionFailedError: expected 1
kafka.api.ATest.two\tinternals\t2.0\tBrokerServer.metrics
org.apache.kafka.tools.BTest.three#1\tfail\t0.1\tno
"""


def test_the_newest_line_of_a_test_counts_and_what_was_skipped_does_not(tmp_path: Path) -> None:
    (tmp_path / "new.tsv").write_text(LINES)
    found = results.read(tmp_path / "new.tsv")
    assert [result.state for result in found.values()] == ["pass", "skip", "internals", "fail"]
    kept = tmp_path / "kept.tsv"
    kept.write_text("kafka.api.ATest.one#1\tfail\t0\told\nkafka.api.ATest.zero\tpass\t0\n")
    results.merge(kept, found.values())
    assert {result.test: result.state for result in results.read(kept).values()} == {
        "kafka.api.ATest.one#1": "pass",
        "kafka.api.ATest.two": "internals",
        "kafka.api.ATest.zero": "pass",
        "org.apache.kafka.tools.BTest.three#1": "fail",
    }
    before = kept.read_text()
    results.merge(kept, [Result("kafka.api.ATest.one#1", "pass", 99.0, "slower")])
    assert kept.read_text() == before
    results.merge(kept, [Result("kafka.api.ATest.two", "fail", 1, "expected: </tmp/ks-1/some/trust.jks> in org/apache/X, not <null>")])
    assert "expected: <trust.jks> in org/apache/X, not <null>\n" in kept.read_text()
    other_numbers = [Result("kafka.api.ATest.one#2", "pass", 1, ""), Result("kafka.api.ATest.one#1", "skip", 0, results.COMBINED)]
    results.merge(kept, other_numbers)
    assert [name for name in results.read(kept) if "one" in name] == ["kafka.api.ATest.one#2"]


def test_the_table_counts_classes_and_gives_the_nearest_reason() -> None:
    reason_by_test = {"org.apache.kafka.tools.BTest": "the class", "org.apache.kafka.tools.BTest.three": "the method"}
    reason_by_test["kafka.api.ATest.five"] = "as Apache Kafka 4.4: one more"
    reason_by_test["kafka.api.ATest.six"] = "not offered: Kerberos"
    reason_by_test["kafka.api.ATest.seven"] = "inside a broker: its cache"
    found = [Result("kafka.api.ATest.one#1", "pass", 1, ""), Result("kafka.api.ATest.two", "internals", 1, "")]
    found += [Result(f"kafka.api.ATest.{name}", "fail", 1, "expected 1") for name in ("five", "six", "seven")]
    found += [Result("org.apache.kafka.tools.BTest.three#1", "fail", 1, "no"), Result("org.apache.kafka.tools.BTest.four", "skip", 0, "")]
    there = [
        Result("kafka.api.ATest.one#1", "pass", 1, ""),
        Result("kafka.api.ATest.five", "fail", 1, ""),
        Result("kafka.api.C.x", "pass", 1, ""),
        Result("org.apache.kafka.tools.BTest.three#1", "pass", 1, ""),
    ]
    found += [Result("kafka.api.DTest.eight", "pass", 1, ""), Result("kafka.api.DTest.nine", "fail", 1, "no")]
    there.append(Result("kafka.api.DTest.nine", "fail", 1, "no"))
    assert results.table(found, reason_by_test, {result.test: result for result in there}) == [
        "Of 3 tests that can run, 1 fail: 33.3%. Including tests of features that minikafka does not have, 2 of 4 fail: 50.0%.",
        "",
        *textwrap.wrap(
            "Apache Kafka 4.3.0's own brokers pass 2 of the 4 tests that also ran on them. 0 of these access objects inside a broker. "
            "minikafka passes 1 of the other 2. 0 fail in the same way on Apache Kafka 4.4.0, 0 test features that minikafka does not "
            "have, and 1 fail for other reasons: 50.0%.",
            140,
        ),
        "",
        "| class | tests | pass on Apache Kafka | pass | internals | fails as 4.4 does | not offered | fails there too | fails |",
        "|---|---|---|---|---|---|---|---|---|",
        "| `kafka.api.ATest` | 5 | 1 of 2 | 1 | 2 | 1 | 1 |  |  |",
        "| `kafka.api.DTest` | 2 | 0 of 1 | 1 |  |  |  | 1 |  |",
        "| `kafka.tools.BTest` | 1 | 1 of 1 | 0 |  |  |  |  | 1 |",
        "| 3 classes | 8 | 2 of 4 | 2 | 2 | 1 | 1 | 1 | 1 |",
        "",
        "| fails in | tests | methods | why |",
        "|---|---|---|---|",
        "| `kafka.api.ATest` | 1 | `five` | as Apache Kafka 4.4: one more |",
        "| `kafka.api.ATest` | 1 | `seven` | inside a broker: its cache |",
        "| `kafka.api.ATest` | 1 | `six` | not offered: Kerberos |",
        "| `kafka.api.DTest` | 1 | `nine` | not looked into |",
        "| `kafka.tools.BTest` | 1 | `three` | the method |",
    ]
    without = results.table(found, reason_by_test)
    assert not any(" on Apache Kafka" in line or "there too" in line for line in without), "nothing has run there"
    assert "| 1 classes that pass completely | 1 | 1 |  |  |  |  |" in results.table(found[-2:-1], {})
    many = [Result(f"kafka.api.ATest.{name}#{variant}", "fail", 1, "") for name in "abcd" for variant in (1, 2)]
    assert results.table(many, {"kafka.api.ATest": "Kerberos"})[-1] == "| `kafka.api.ATest` | 8 |  | Kerberos |"
    assert results.unexplained(found[:-1], reason_by_test) == []
    names = [result.test for result in results.unexplained(found, {})]
    failing = [*(f"kafka.api.ATest.{name}" for name in ("five", "six", "seven")), "org.apache.kafka.tools.BTest.three#1"]
    assert names == [*failing, "kafka.api.DTest.nine"]


def test_every_test_that_ran_on_apache_kafka_has_a_result_here() -> None:
    """A hundred tests of six classes had none, and nobody saw it: only classes were counted. The numbers of a method's variants vary
    from run to run, so they are only counted."""
    kept, there = (Counter(name.partition("#")[0] for name in results.read(path)) for path in (results.KEPT, results.BASELINE))
    assert sorted((there - kept).items()) == []


def test_kept_results_belong_to_listed_classes_and_every_reason_is_needed() -> None:
    kept, reason_by_test = results.read(results.KEPT), results.reasons()
    assert {result.class_name for result in kept.values()} <= set(harness.classes())
    assert results.unexplained(kept.values(), reason_by_test) == []
    failing = [result.test for result in kept.values() if result.state == "fail"]
    assert [name for name in reason_by_test if not any(test.startswith(name) for test in failing)] == []
