"""A server as a user starts it, in a process of its own."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

TOKEN = "a-token-that-nobody-guesses"


class Running:
    """`quoth serve` with some arguments, at a free port."""

    def __init__(self, *arguments, env=None):
        command = [sys.executable, "-m", "quoth", "serve", "--port", "0", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, encoding="utf-8", env={**os.environ, **(env or {})}
        )
        self.lines = []
        self.url = ""
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            if found := re.search(r"ready at (http://\S+);", line):
                self.url = found[1].replace("0.0.0.0", "127.0.0.1")
                break
        if self.url:
            self.client = httpx.Client(base_url=self.url, timeout=60)

    @property
    def port(self):
        return int(self.url.rpartition(":")[2])

    @property
    def children(self):
        """The processes that it started, by what they do: the first word of their function's name."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                parent = int(place.joinpath("stat").read_text().rpartition(")")[2].split()[1])
                command = place.joinpath("cmdline").read_bytes()
            except (OSError, IndexError):
                continue
            if parent == self.process.pid and b"spawn_main" in command:
                found.append(int(place.name))
        return sorted(found)

    def memory(self):
        """Bytes of resident memory of the server and its processes."""
        total = 0
        for pid in [self.process.pid, *self.children]:
            try:
                status = Path(f"/proc/{pid}/statm").read_text().split()
            except OSError:
                continue
            total += int(status[1]) * os.sysconf("SC_PAGE_SIZE")
        return total

    def ask(self, **body):
        response = self.client.post("/v1/ask", json=body)
        assert response.status_code == 200, response.text
        return response.json()

    def metric(self, name):
        """The sum of a counter over all its labels."""
        text = self.client.get("/metrics").text
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if re.match(rf"{name}[{{ ]", line))

    def stop(self, number=signal.SIGTERM):
        """The exit code and all that it said."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            _, rest = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.lines += rest.splitlines()
        return self.process.returncode


def until(true, seconds=30.0):
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come in time"
        time.sleep(0.05)
