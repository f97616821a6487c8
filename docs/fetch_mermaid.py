"""Puts mermaid, which draws the diagrams, beside the pages: `python docs/fetch_mermaid.py`, before a site is published.

So reading the site asks no other server for scripts. Without it the theme loads mermaid from a CDN at view time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "12"
SCRIPT = Path(__file__).parent / "assets" / "mermaid.min.js"


def main() -> None:
    """Fetch it with npm. Exits with a line when that does not work."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is not installed")
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run([npm, "pack", "--silent", f"mermaid@{VERSION}"], cwd=scratch, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"npm cannot fetch mermaid: {done.stderr.strip()}")
        with tarfile.open(Path(scratch) / done.stdout.split()[-1]) as package:
            member = package.extractfile("package/dist/mermaid.min.js")
            if member is None:
                sys.exit("this mermaid has no dist/mermaid.min.js")
            SCRIPT.parent.mkdir(exist_ok=True)
            SCRIPT.write_bytes(member.read())
    print(f"wrote {SCRIPT} ({SCRIPT.stat().st_size:,} bytes)")


if __name__ == "__main__":
    main()
