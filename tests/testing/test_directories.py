"""Where the data of a cluster cannot be, which the start says in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minikafka.testing import EmbeddedCluster
from minikafka.testing.directories import check_directory
from minikafka.testing.errors import ClusterError, WrongConfiguration
from minikafka.testing.layout import ClusterLayout


def test_a_comma_would_be_two_directories(tmp_path: Path) -> None:
    with (
        pytest.raises(WrongConfiguration, match=r"has a comma, which separates directories in log\.dirs"),
        EmbeddedCluster(1, directory=tmp_path / "a,b"),
    ):
        pass
    assert not list(tmp_path.iterdir())
    with pytest.raises(WrongConfiguration, match="set TMPDIR"):
        check_directory(tmp_path / "a,b", is_temporary=True)


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(WrongConfiguration, match=r"bad\\xff is not valid UTF-8"):
        check_directory(Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff")), is_temporary=False)


def test_a_link_to_nothing_and_files_in_the_place_of_directories(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nothing")
    with pytest.raises(WrongConfiguration, match=r"link is a symbolic link to .*nothing, which does not exist"):
        check_directory(link, is_temporary=False)
    link.unlink()
    link.symlink_to(link)
    with pytest.raises(WrongConfiguration, match="symbolic link"):
        check_directory(link, is_temporary=False)
    (tmp_path / "c/broker-1").mkdir(parents=True)
    (tmp_path / "c/broker-1/data").touch()
    with pytest.raises(WrongConfiguration, match="broker-1/data is not a directory"):
        check_directory(tmp_path / "c", is_temporary=False)


def test_a_broker_whose_log_cannot_be_written_says_so(tmp_path: Path) -> None:
    """The node's process ended without a word, and others were waited for."""
    (tmp_path / "broker-1/broker.log").mkdir(parents=True)
    with pytest.raises(ClusterError, match=r"broker 1 cannot start: its log .*broker.log cannot be written: Is a directory"):
        EmbeddedCluster(1, mode="process", directory=tmp_path).start()


def test_a_backslash_in_server_properties(tmp_path: Path) -> None:
    layout = ClusterLayout(tmp_path / "a\\b", 1, 1, {}, {})
    layout.format(layout.nodes[1])
    layout.release()
    text = (tmp_path / "a\\b/broker-1/server.properties").read_text()
    assert f"log.dirs={tmp_path}/a\\\\b/broker-1/data\n" in text
