"""The completion scripts in the shells that are here: each loads its script and is asked what it would offer."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.testing import EmbeddedCluster

#: Loads the script as the documentation says, and prints what is offered for each line of $LINES, and ---.
ASK = {
    "bash": """
eval "$(minikafka completion bash)"
complete -p minikafka >/dev/null || exit 9
while IFS= read -r line; do
  COMPREPLY=(); COMP_WORDS=($line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _minikafka_completion minikafka
  printf '%s\\n' "${COMPREPLY[@]}" ---
done <<< "$LINES_TO_ASK"
""",
    "zsh": """
autoload -Uz compinit && compinit -D -u
eval "$(minikafka completion zsh)"
[[ $_comps[minikafka] == _minikafka_completion ]] || exit 9
_describe() { print -rl -- ${${(P)3}%%:*} }
compadd() { print -rl -- ${(P)@[-1]} }
for line in "${(@f)LINES_TO_ASK}"; do
  words=(${(z)line}); CURRENT=$#words
  _minikafka_completion
  print -- ---
done
""",
    "fish": """
minikafka completion fish | source
for line in (string split \\n -- "$LINES_TO_ASK")
  complete --do-complete "$line" | cut -f1
  echo ---
end
complete --do-complete "minikafka acl" | grep -q "Add, remove and list ACLs."
""",
}
WITHOUT_START_FILES = {"bash": ["bash", "--norc", "--noprofile"], "zsh": ["zsh", "-f"], "fish": ["fish", "--no-config"]}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, topics=["orders", "order-lines", "other"]) as found:
        yield found


@pytest.mark.parametrize("shell", ASK)
def test_a_shell_completes_commands_options_and_names_of_the_cluster(shell: str, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = tmp_path / "minikafka"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m minikafka "$@"\n')
    program.chmod(0o755)

    lines = ["minikafka to", "minikafka topics --to", "minikafka consume ord"]
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}", "LINES_TO_ASK": "\n".join(lines),
                   "MINIKAFKA_BOOTSTRAP": cluster.bootstrap_servers}  # fmt: skip
    command = [*WITHOUT_START_FILES[shell], "-c", ASK[shell]]
    topics: set[str] = set()
    # On a starved machine the cluster may not answer within the second that completion waits: press the key again, as a person would.
    while not topics:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        commands, options, topics, _ = (set(found.split()) for found in done.stdout.split("---\n"))
    assert commands == {"top", "topics"}
    assert "--topic" in options and all(option.startswith("--to") for option in options)
    assert topics == {"orders", "order-lines"}
