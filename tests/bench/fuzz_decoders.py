"""The decoders of tests/helpers/decoders.py, guided by coverage (Atheris, which the tests do not need: `pip install atheris`).

`PYTHONPATH=.:tests python -m bench.fuzz_decoders --seconds 60 [--only messages,batches] --corpus DIRECTORY`: each target in a process of
its own for so long; what raises stands in DIRECTORY/TARGET-crash-*, and belongs into the seeds of its target once it is mended.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from pathlib import Path


def fuzz(name: str, corpus: Path, seconds: int) -> None:
    import atheris

    with atheris.instrument_imports(include=["minikafka"], enable_loader_override=False):
        from helpers import decoders

        from minikafka.wire import compiler
    if name == "messages":
        # Generated code is not imported, so it is instrumented here.
        for kind, version in decoders._messages():
            kind._decoders[version] = atheris.instrument_func(compiler.decoder_for(kind, version))
    folder = corpus / name
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(decoders.SEEDS[name]):
        (folder / f"seed-{number}").write_bytes(seed)
    arguments = [f"-max_total_time={seconds}", f"-artifact_prefix={corpus}/{name}-", "-max_len=4096", "-timeout=20", "-rss_limit_mb=3000"]
    atheris.Setup([sys.argv[0], *arguments, str(folder)], lambda data: decoders.run(name, data))
    atheris.Fuzz()


def fuzz_all(names: list[str], corpus: Path, seconds: int) -> int:
    failed = 0
    for name in names:
        command = [sys.executable, "-m", "bench.fuzz_decoders", "--target", name, "--seconds", str(seconds), "--corpus", str(corpus)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = (ended.stdout + ended.stderr).splitlines()
        executed = next((line for line in reversed(lines) if "DONE" in line or "cov:" in line), "")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        outcome = "fine" if ended.returncode == 0 else "FAILED"
        print(f"{name}: {outcome} {executed}; CPU s of all so far {used.ru_utime + used.ru_stime:.0f}", flush=True)
        if ended.returncode:
            failed += 1
            start = next((at for at, line in enumerate(lines) if "Uncaught Python exception" in line), max(len(lines) - 25, 0))
            print("\n".join(lines[start : start + 40]), flush=True)
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--only", default="")
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--target")
    options = parser.parse_args()
    if options.target:
        fuzz(options.target, options.corpus, options.seconds)
    else:
        from helpers.decoders import TARGETS

        raise SystemExit(fuzz_all([name for name in TARGETS if name in (options.only or name).split(",")], options.corpus, options.seconds))
