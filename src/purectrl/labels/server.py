"""The page of `purectrl label` over HTTP, to this machine only.

The server binds to 127.0.0.1. Every address begins with a random token, so that neither another user of the machine nor a
page in the same browser can read images or answer: it is only in the address that the program prints. A request must also
name this server as its host, which a foreign domain that resolves to 127.0.0.1 cannot, and an answer must come from the
page.
"""

import base64
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

from purectrl.core.errors import InputError, PurectrlError, require
from purectrl.core.io import encode, parse_json, to_json
from purectrl.labels.queue import LabelQueue

MAX_BODY = 1000
"""Largest size of an answer in bytes."""
LINGER = 60.0
"""Seconds after the end of the run after which the server ends, if no page has asked for the state."""


class Finished(Exception):  # noqa: N818 (not an error)
    """The run has finished, and the page knows it."""


class LabelServer(ThreadingHTTPServer):
    """Serves a queue at `url`.

    Main arguments:
        queue: what is asked and answered.

    Other arguments:
        question: what people are asked.
        port: the port; 0 takes a free one.
    """

    daemon_threads = True
    request_queue_size = 128  # with the default of five, connections that are made at the same time are reset

    def __init__(self, queue: LabelQueue, question: str = "How good is this image?", port: int = 0) -> None:
        require(0 <= port < 2**16, f"port: must be between 0 (a free one) and 65535, not {port}")
        self.queue, self.token = queue, secrets.token_urlsafe(24)
        self.page, self.policy = render(queue.directory, question)
        self.told, self._end = False, float("inf")
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except OSError as error:
            raise InputError(f"port: {port} cannot be used: {error.strerror}; leave it away for a free one") from None
        self.hosts = {f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost")}

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def service_actions(self) -> None:
        """Raises `Finished` once the run has finished and a page has shown it, or a minute later."""
        if self._end == float("inf") and self.queue.finished:
            self._end = time.monotonic() + LINGER
        if self._end < float("inf") and (self.told or time.monotonic() > self._end):
            raise Finished

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that the browser has closed is no error of the program."""


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: LabelServer  # pyright: ignore[reportIncompatibleVariableOverride] (which is what serves it)
    timeout = 20
    server_version, sys_version = "purectrl", ""

    def do_GET(self) -> None:
        """The page, the state, an image."""
        place = self._place()
        if place is None:
            return
        if place == "":
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page)
        elif place == "state":
            self._json(self.server.queue.state)
        elif match := re.fullmatch(r"image/([0-9a-f]{32})", place):
            self._guard(lambda: self._send(HTTPStatus.OK, "image/png", self.server.queue.image(match[1])))
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")

    def do_POST(self) -> None:
        """An answer, its retraction, the submission of all answers."""
        place = self._place()
        if place is None:
            return
        queue = self.server.queue
        actions: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "answer": lambda body: queue.answer(body.get("id", ""), body.get("level", 0)),
            "undo": lambda body: queue.undo(),
            "submit": lambda body: queue.submit(),
        }
        if place not in actions:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")
        elif (body := self._body()) is not None:
            self._json(lambda: actions[place](body))

    def _place(self) -> str | None:
        """The path behind the token; None, after a refusal, if host or token are wrong."""
        if self.headers.get("Host") not in self.server.hosts:
            self._refuse(HTTPStatus.FORBIDDEN, "use the address that purectrl label prints")
            return None
        _, token, *rest = [*self.path.split("/", 2), ""]
        if not rest[:-1] or not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(HTTPStatus.NOT_FOUND, "use the address that purectrl label prints")
            return None
        return rest[0]

    def _body(self) -> dict[str, Any] | None:
        """The JSON object of a request of the page; None, after a refusal, of anything else."""
        origin, size = self.headers.get("Origin"), self.headers.get("Content-Length", "")
        if origin is not None and origin not in {f"http://{host}" for host in self.server.hosts}:
            self._refuse(HTTPStatus.FORBIDDEN, "answers must come from the page")
            return None
        if self.headers.get("Content-Type") != "application/json" or not re.fullmatch(r"[0-9]{1,4}", size):
            self._refuse(HTTPStatus.BAD_REQUEST, "expected a JSON object")
            return None
        if int(size) > MAX_BODY:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {MAX_BODY} bytes")
            return None
        try:
            found = parse_json(self.rfile.read(int(size)), "the request")
        except PurectrlError:
            found = None
        if not isinstance(found, dict):
            self._refuse(HTTPStatus.BAD_REQUEST, "expected a JSON object")
            return None
        return found

    def _json(self, value: Callable[[], dict[str, Any]]) -> None:
        def send() -> None:
            found = value()
            self._send(HTTPStatus.OK, "application/json", encode(to_json(found, indent=None)))
            self.server.told |= found["finished"]

        self._guard(send)

    def _guard(self, answer: Callable[[], None]) -> None:
        """Tells the page why something failed."""
        try:
            answer()
        except InputError as error:
            self._refuse(HTTPStatus.CONFLICT, str(error))
        except (PurectrlError, FileNotFoundError) as error:
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        except ConnectionError:
            raise
        except OSError as error:
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"the answer was not saved: {error.strerror}")

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        self._send(status, "application/json", encode(json.dumps({"error": reason})))

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Content-Security-Policy": self.server.policy,
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *_: Any) -> None:
        """Nothing: the terminal shows the address."""


def render(directory: Path, question: str) -> tuple[bytes, str]:
    """The page, and the policy that lets the browser run and load nothing else."""
    read = lambda name: files("purectrl.labels").joinpath(name).read_text(encoding="utf-8")  # noqa: E731
    style, script = read("page.css"), read("page.js")
    settings = to_json(
        {"question": question, "run": directory.resolve().name, "command": f"purectrl resume {directory}"}
    )
    parts = {"style": style, "script": script, "settings": settings.replace("<", "\\u003c")}
    page = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], read("page.html"))
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return encode(page), policy


def _hash(text: str) -> str:
    """The source expression of a policy that allows exactly this script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def serve(directory: Path, question: str, port: int, announce: Callable[[str], None]) -> int:
    """Serves the queue of a run until it has finished; returns the number of labels.

    Main arguments:
        announce: called with the address once the page can be opened.
    """
    with LabelQueue(directory) as queue, LabelServer(queue, question, port) as server:
        announce(server.url)
        try:
            server.serve_forever(poll_interval=0.2)
        except Finished:
            pass
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"every label is kept in {directory / 'labels'}") from None
        return queue.submitted
