"""Ctrl-C ends every command with 130, whatever a library makes of it."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from minikafka.cli import demo_chapters
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
