"""Ctrl-C ends every command with 130, whatever a library makes of it."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from minikafka.cli import cluster_control, cluster_up, demo_chapters
from minikafka.cli.main import cli
from minikafka.cli.reasons import is_interruption
from minikafka.spark.engine_spark import _is_no_interruption


class LibraryError(Exception):
    """As py4j's, when its process is interrupted."""


def interrupted(*_: Any, **__: Any) -> None:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        raise LibraryError("An error occurred while calling o31.setCallSite") from None


def test_an_error_that_ctrl_c_caused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LibraryError) as error:
        interrupted()
    assert is_interruption(error.value) and not is_interruption(ValueError())
    monkeypatch.setattr(demo_chapters.Demo, "run", interrupted)
    assert CliRunner().invoke(cli, ["demo"]).exit_code == 130


def test_an_interrupted_demo_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended with 1, as after a lost record."""

    def interrupt(self: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_chapters.Demo, "run", interrupt)
    done = CliRunner().invoke(cli, ["demo"])
    assert done.exit_code == 130 and "interrupted" in done.output


def test_another_error_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any) -> bool:
        raise LibraryError

    monkeypatch.setattr(demo_chapters.Demo, "run", fail)
    assert isinstance(CliRunner().invoke(cli, ["demo"]).exception, LibraryError)


def test_py4j_does_not_report_it() -> None:
    record = logging.makeLogRecord({"msg": "KeyboardInterrupt while sending command."})
    assert not _is_no_interruption(record)
    assert _is_no_interruption(logging.makeLogRecord({"msg": "Exception while sending command."}))


def test_an_interruption_in_a_destructor_is_not_lost() -> None:
    """`cluster up` went on for as long as it took to start."""
    program = """if True:
        import signal, sys, threading
        from minikafka.cli import main

        class Dropped:
            def __del__(self):
                signal.raise_signal(signal.SIGINT)

        def run(arguments):
            Dropped()
            print("goes on", flush=True)
            threading.Event().wait(60)

        main._run_and_write = run
        main.main([])
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "goes on\n", "")


def test_a_signal_while_the_control_socket_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket stayed."""
    seen = []

    class Control:
        ended = ()

        def __init__(self, _: Any) -> None:
            pass

        def __enter__(self) -> Control:
            signal.raise_signal(signal.SIGTERM)
            seen.append("made")
            return self

        def __exit__(self, *_: object) -> None:
            seen.append("removed")

    @contextlib.contextmanager
    def cluster(*_: Any, **__: Any) -> Iterator[None]:
        yield

    monkeypatch.setattr(cluster_up, "begin_imports", lambda: None)
    monkeypatch.setattr(cluster_up, "_made", cluster)
    monkeypatch.setattr(cluster_up, "_announce", lambda *_, **__: None)
    monkeypatch.setattr(cluster_control, "ControlServer", Control)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        done = CliRunner().invoke(cli, ["cluster", "up", "--port", "0", "--http-port", "0"])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (done.exit_code, seen) == (0, ["made", "removed"])
