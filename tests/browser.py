"""A headless Chromium driven over two pipes, so that the pages are tried in a real browser.

Speaks the DevTools protocol (`--remote-debugging-pipe`): JSON, each message ended by a NUL.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
PATIENCE = 60  # seconds for one answer
# The browser takes commands on its descriptor 3 and answers on 4.
ON_3_AND_4 = """
import fcntl, os, sys
high = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 100) for number in sys.argv[1:3]]
os.dup2(high[0], 3), os.dup2(high[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find():
    """The browser's path, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. `events` keeps what it reported: console messages, errors, requests."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="browser", ignore_cleanup_errors=True)
        to_browser, self.writer = os.pipe()
        self.reader, from_browser = os.pipe()
        command = [
            *(sys.executable, "-c", ON_3_AND_4, str(to_browser), str(from_browser), find()),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--remote-debugging-pipe",
            f"--user-data-dir={self.folder.name}",
        ]
        quiet = {name: subprocess.DEVNULL for name in ("stdin", "stdout", "stderr")}
        self.process = subprocess.Popen(command, pass_fds=(to_browser, from_browser), **quiet)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.target, self.events = b"", 0, None, []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self.target = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def close(self):
        os.close(self.writer)
        os.close(self.reader)
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()

    def ask(self, method, **params):
        """One command and its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.target:
            message["sessionId"] = self.target
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def receive(self):
        while b"\0" not in self.buffer:
            chunk = os.read(self.reader, 1 << 16)
            if not chunk:
                raise RuntimeError("the browser has gone")
            self.buffer += chunk
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def open(self, path, width, dark=False, height=900):
        """Opens a file at a width and in a theme; forgets earlier events."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.events = []
        self.ask("Page.navigate", url=f"file://{path}")
        end = time.monotonic() + PATIENCE
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            if time.monotonic() > end:
                raise RuntimeError("the page does not load")
            self.events.append(self.receive())

    def run(self, script):
        """The value of a JavaScript expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return answer["result"].get("value")

    def key(self, name):
        """Presses and releases one key, by its DOM name."""
        number = {"windowsVirtualKeyCode": 9} if name == "Tab" else {}
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=name, code=name, **number)

    def complaints(self):
        """Errors and warnings that the page reported since it was opened."""
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"].get("text", "exception"))
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.append(str(params["args"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
        return found

    def requests(self):
        """Addresses that the page asked for, itself and what it carries inline left out."""
        sent = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        asked = [event["params"]["request"]["url"] for event in sent]
        return [url for url in asked if not url.startswith(("file://", "data:"))]

    def picture(self, path, top=0, height=None):
        """A PNG of the page from `top` on, for a person to look at."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {
            "x": 0,
            "y": top,
            "width": size["width"],
            "height": height or size["height"] - top,
            "scale": 1,
        }
        data = self.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
