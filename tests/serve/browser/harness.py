"""A server in a process of its own, and which browser drives its page."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HARBOUR = ROOT / "examples/harbour"
IMAGES = ROOT / "docs/images"
NEEDED = {"playwright": "playwright", "axe_playwright_python": "axe-playwright-python", "fastapi": "quoth[serve]"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")  # playwright's own is not needed
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}


def browser_path():
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def reason_to_skip():
    missing = [package for module, package in NEEDED.items() if find_spec(module) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    return None if browser_path() else f"no browser: {', '.join(BROWSERS)} are not on the path"


@contextmanager
def chromium():
    """A headless browser. Its event loop is in this thread until the end, and must be gone before other tests."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        yield started
        started.close()


class Server:
    """`quoth serve` in a process of its own."""

    def __init__(self, *arguments, token=""):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self._arguments = arguments
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", **({"QUOTH_TOKEN": token} if token else {})}
        self._folder = tempfile.TemporaryDirectory()

    def start(self):
        command = [sys.executable, "-m", "quoth", "serve", *map(str, self._arguments), "--port", str(self.port)]
        told = Path(self._folder.name) / "told"  # a pipe that nobody reads would fill up
        with told.open("wb") as file:
            self._process = subprocess.Popen(command, env=self._environment, stdout=file, stderr=subprocess.STDOUT)
        for _ in range(600):
            if self._process.poll() is not None:
                raise AssertionError(told.read_text())
            try:
                with urllib.request.urlopen(f"{self.url}ready", timeout=5):
                    return self
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.1)
        raise AssertionError("the server is not ready after a minute")

    def stop(self):
        self._process.terminate()
        self._process.wait(timeout=60)
