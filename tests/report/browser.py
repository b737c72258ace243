"""A headless Chromium, controlled with the DevTools protocol over two pipes, which needs no library."""

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT = 60.0
"""Seconds to wait for an answer."""


def executable():
    """The path of Chromium from the variable CHROMIUM or the search path; None if it is not installed."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One tab. Use as a context manager."""

    def __init__(self, folder):
        to_browser, from_browser = os.pipe(), os.pipe()
        # the browser reads from descriptor 3 and writes to 4, which can be in use here: duplicate to higher numbers
        read, write = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (to_browser[0], from_browser[1]))
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
        flags += [f"--user-data-dir={folder}", "--autoplay-policy=no-user-gesture-required", "--hide-scrollbars"]
        become = f"import os, sys; os.dup2({read}, 3); os.dup2({write}, 4); os.execvp(sys.argv[1], sys.argv[1:])"
        command = [sys.executable, "-c", become, executable(), *flags]
        self.log = open(folder / "log", "wb")  # noqa: SIM115
        self.process = subprocess.Popen(command, pass_fds=(read, write), stdout=self.log, stderr=self.log)
        for end in (to_browser[0], from_browser[1], read, write):
            os.close(end)
        self._in, self._out, self._buffer = from_browser[0], to_browser[1], b""
        self._numbers, self.session, self.events = itertools.count(1), None, []

    def __enter__(self):
        try:
            target = self.ask("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.ask(f"{domain}.enable")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Terminates the browser."""
        self.process.terminate()
        self.process.wait(TIMEOUT)
        for end in (self._in, self._out):
            os.close(end)
        self.log.close()

    def ask(self, method, **params):
        """Sends a command and waits for its answer; events that arrive before it are stored."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        os.write(
            self._out, json.dumps(message | ({"sessionId": self.session} if self.session else {})).encode() + b"\0"
        )
        while (answer := self._receive()).get("id") != number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _receive(self):
        deadline = time.monotonic() + TIMEOUT
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            if not (more := os.read(self._in, 1 << 20)):
                raise RuntimeError("the browser has ended")
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, path, width=1280, height=900, scheme="light"):
        """Opens a file or an address with the given window size and color scheme, and waits until it is drawn."""
        self.events.clear()
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Page.navigate", url=path if isinstance(path, str) else path.absolute().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())
        self.settle()

    def settle(self):
        """Waits until changes are visible: two frames, since charts are drawn when their width is known."""
        self.do("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 20))))")

    def do(self, expression):
        """The value of a JavaScript expression; promises are awaited."""
        found = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"].get("description", "an exception"))
        return found["result"].get("value")

    def click(self, selector, text=None):
        """Clicks the element that matches and, if asked, has exactly this text."""
        found = f"[...document.querySelectorAll({json.dumps(selector)})]"
        match = "true" if text is None else f"node.textContent.trim() === {json.dumps(text)}"
        self.do(f"{found}.find((node) => {match}).click()")
        self.settle()

    def screenshot(self, path):
        """Writes a screenshot as a PNG file."""
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def complaints(self):
        """Console messages, exceptions and log entries of the page."""
        names = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
        return [event["params"] for event in self.events if event.get("method") in names]

    def requests(self):
        """The URLs that the page has requested, without data URIs."""
        asked = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        found = [event["params"]["request"]["url"] for event in asked]
        return [url for url in found if not url.startswith("data:")]

    def keyboard(self, key):
        """Presses a key."""
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key)
        self.settle()
