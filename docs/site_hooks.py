"""A hook of mkdocs: the site brings mermaid, which draws the diagrams, along, so that reading it asks no other server for scripts.

It comes from npm and is kept in the user's cache. Without npm the theme loads it from a CDN at view time, as it does by default.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

#: Later ones rename the heads of arrows, which then stay black with the dark palette of mkdocs-material 9.8.
VERSION = "11.6.0"
SCRIPT = "assets/mermaid.min.js"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minikafka-docs" / f"mermaid-{VERSION}.min.js"
log = logging.getLogger("mkdocs.hooks.mermaid")


def _script() -> Path | None:
    npm = shutil.which("npm")
    if CACHE.exists() or npm is None:
        return CACHE if CACHE.exists() else None
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run([npm, "pack", "--silent", f"mermaid@{VERSION}"], cwd=scratch, capture_output=True, text=True, check=False)
        if done.returncode:
            log.info("npm cannot fetch mermaid: %s", done.stderr.strip())
            return None
        with tarfile.open(Path(scratch) / done.stdout.split()[-1]) as package:
            member = package.extractfile("package/dist/mermaid.min.js")
            if member is None:
                return None
            CACHE.parent.mkdir(parents=True, exist_ok=True)
            whole = CACHE.with_suffix(f".{os.getpid()}")
            whole.write_bytes(member.read())
            whole.replace(CACHE)
    return CACHE


def on_files(files: Any, config: Any) -> Any:
    """Put the script among the site's files and before the theme's own."""
    script = _script()
    if script is None:
        log.info("diagrams are drawn with mermaid from a CDN: npm was not there to fetch it")
    else:
        files.append(File.generated(config, SCRIPT, abs_src_path=str(script)))
        config.extra_javascript.append(SCRIPT)
    return files
