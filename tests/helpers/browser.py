"""Headless Chromium through chromedriver's own HTTP interface (W3C WebDriver)."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minikafka.testing.wait import LoadAdjustedDeadline

START_TIMEOUT_S = 20.0


def missing() -> str | None:
    """Why no browser can run here; None if one can."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return None


class Browser:
    """One window."""

    def __init__(self, driver: str, session: str) -> None:
        self._base = f"{driver}/session/{session}"

    def open(self, url: str) -> None:
        _post(f"{self._base}/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """What the JavaScript function body returns."""
        return _post(f"{self._base}/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, condition: str, timeout_s: float = 15.0) -> None:
        """Until the JavaScript expression is true."""
        deadline = LoadAdjustedDeadline(timeout_s)
        while not self.run(f"return Boolean({condition})"):
            assert not deadline.is_over, f"waited for {condition}\n{self.run('return document.body.innerText')}"
            time.sleep(0.05)

    def emulate(self, command: str, parameters: dict[str, Any]) -> Any:
        """A command of the DevTools protocol."""
        return _post(f"{self._base}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def screenshot(self, *, whole: bool = True) -> bytes:
        """PNG of the page."""
        answer = self.emulate("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        return base64.b64decode(answer["data"])


def _post(url: str, value: Any, method: str = "POST") -> Any:
    data = None if method == "DELETE" else json.dumps(value).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)["value"]


@contextmanager
def browser(*, width: int = 1280, height: int = 900, mobile: bool = False, dark: bool = False) -> Iterator[Browser]:
    """A headless Chromium with a window of this size."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    process = subprocess.Popen(["chromedriver", f"--port={port}", "--log-level=OFF"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    driver = f"http://127.0.0.1:{port}"
    try:
        deadline = LoadAdjustedDeadline(START_TIMEOUT_S)
        while True:
            try:
                urllib.request.urlopen(f"{driver}/status", timeout=1).close()
                break
            except OSError:
                assert not deadline.is_over, "chromedriver does not start"
                time.sleep(0.05)
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        capabilities = {"goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}
        session = _post(f"{driver}/session", {"capabilities": {"alwaysMatch": capabilities}})["sessionId"]
        window = Browser(driver, session)
        try:
            window.emulate(
                "Emulation.setDeviceMetricsOverride",
                {"width": width, "height": height, "deviceScaleFactor": 2 if mobile else 1, "mobile": mobile},
            )
            features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
            window.emulate("Emulation.setEmulatedMedia", {"features": features})
            yield window
        finally:
            _post(f"{driver}/session/{session}", None, "DELETE")
    finally:
        process.terminate()
        process.wait(10)
