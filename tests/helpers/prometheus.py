"""A real Prometheus over brokers of a test, with the configuration that docker/ ships.

The configuration's targets are names of containers; a small HTTP proxy leads each to its broker of the test.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from minikafka.testing.wait import LoadAdjustedDeadline

START_TIMEOUT_S = 30.0


def missing() -> str | None:
    """Why no Prometheus can run here; None if one can."""
    for program in ("prometheus", "promtool"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return None


@contextlib.contextmanager
def _proxy(ports: dict[str, int]) -> Iterator[int]:
    """Answers `GET http://name:port/path` from the port of that name on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urllib.parse.urlsplit(self.path)
            with urllib.request.urlopen(f"http://127.0.0.1:{ports[asked.netloc]}{asked.path}", timeout=10) as answer:
                body = answer.read()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers["Content-Type"])
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Prometheus:
    """A running one."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its HTTP interface."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query now: metric and value of each."""
        found = self.get("query", query=expression)
        if found["resultType"] == "scalar":
            return [{"metric": {}, "value": found["result"]}]
        result: list[dict[str, Any]] = found["result"]
        return result

    def labels(self, expression: str) -> list[dict[str, str]]:
        """The labels of a result's series."""
        return [one["metric"] for one in self.query(expression)]


@contextlib.contextmanager
def prometheus(directory: Path, configuration: Path, ports: dict[str, int], port: int) -> Iterator[Prometheus]:
    """Prometheus on a free `port`, with `configuration` but for the interval, every target of which is led to its port of `ports`."""
    config = yaml.safe_load(configuration.read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str((configuration.parent / name).resolve()) for name in config.get("rule_files", ())]
    with _proxy(ports) as proxy_port:
        for job in config["scrape_configs"]:
            job["proxy_url"] = f"http://127.0.0.1:{proxy_port}"
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        command = [
            "prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
            f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
        ]  # fmt: skip
        with (directory / "log.txt").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            deadline = LoadAdjustedDeadline(START_TIMEOUT_S)
            while True:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=2).close()
                    break
                except OSError as error:
                    if process.poll() is not None or deadline.is_over:
                        raise AssertionError((directory / "log.txt").read_text()) from error
                    time.sleep(0.1)
            yield Prometheus(port)
        finally:
            process.terminate()
            process.wait(20)
