"""A package or a library that the machine lacks is one line that names it, in place of a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

from minikafka.cli.reasons import why_not_imported

#: A small image has no library of C++, which numpy needs.
LACKING = """
import sys

class Lacking:
    def find_spec(self, name, *_):
        if name == "numpy":
            try:
                raise {error}
            except ImportError as error:
                raise ImportError("Please read the documentation about import errors.") from error

sys.meta_path.insert(0, Lacking())
from minikafka.cli.main import main
main(["audit", "/tmp"])
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            'ImportError("libstdc++.so.6: cannot open shared object file: No such file or directory", name="numpy._core._umath")',
            "error: numpy cannot be loaded, because the system has no libstdc++.so.6. Debian and Ubuntu: apt install libstdc++6.",
        ),
        (
            'ImportError("Error loading shared library libgomp.so.1: No such file or directory (needed by x)", name="numpy")',
            "error: numpy cannot be loaded, because the system has no libgomp.so.1",
        ),
        ("ModuleNotFoundError(\"No module named 'numpy'\", name='numpy')", "error: the Python package numpy is not installed."),
    ],
)
def test_what_is_missing_is_named(error: str, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", LACKING.format(error=error)], capture_output=True, text=True, check=False)
    assert done.stderr.startswith(said) and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.returncode == 2


def test_a_python_that_was_built_without_one_of_its_own_modules() -> None:
    """As without OpenSSL's headers. It said that pip brings the Python package _ssl."""
    said = why_not_imported(ModuleNotFoundError("No module named '_ssl'", name="_ssl"))
    assert said == f"{sys.executable} was built without ssl, which belongs to Python itself: use another build of Python"


def test_our_own_mistakes_are_not_hidden() -> None:
    assert why_not_imported(ImportError("cannot import name 'x' from 'minikafka.net'", name="minikafka.net")) is None
    assert why_not_imported(ModuleNotFoundError("No module named 'minikafka.nett'", name="minikafka.nett")) is None
