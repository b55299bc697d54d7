"""Serves the page to the browser of one user, on 127.0.0.1 only.

Every path begins with a token that is new in each process, so that other users of the machine read nothing. The Host
header must name this address: otherwise a page from elsewhere whose name resolves to 127.0.0.1 could ask. Only GET is
answered. Connections beyond ``AT_ONCE_MAX`` are closed unanswered.
"""

from __future__ import annotations

import hmac
import json
import secrets
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ..errors import AgentError, Error, NotFound
from .pictures import Pictures
from .refused import Refused

AT_ONCE_MAX = 16
PATH_LETTERS_MAX = 4096
FIELDS_MAX = 8
IDLE_S = 10.0
SCRIPTS = ("page.js", "steps.js", "agents.js", "tracks.js", "gauges.js", "exchange.js")
FILES = {
    "": ("page.html", "text/html"),
    "view.css": ("view.css", "text/css"),
    **{name: (name, "text/javascript") for name in SCRIPTS},
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Handler(BaseHTTPRequestHandler):
    server: ViewServer
    timeout = IDLE_S

    def do_GET(self) -> None:
        if len(self.path) > PATH_LETTERS_MAX:
            return self._refuse(414, "the path is too long")
        if self.headers.get_all("Host") not in ([f"127.0.0.1:{self.server.port}"], [f"localhost:{self.server.port}"]):
            return self._refuse(403, "the Host header names another address")
        parts = urlsplit(self.path)
        token, slash, name = parts.path.removeprefix("/").partition("/")
        if not slash or not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return self._refuse(403, "the path does not begin with the token")
        if name in FILES:
            file, kind = FILES[name]
            return self._answer(200, kind, files(__package__).joinpath(file).read_bytes())
        try:
            fields = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=FIELDS_MAX))
            answer = self._ask(name, fields)
        except (KeyError, ValueError) as error:
            return self._refuse(400, f"not a valid request: {error}")
        except NotFound as error:
            return self._refuse(404, str(error))
        except Refused as error:
            return self._refuse(422, str(error))
        except (AgentError, Error) as error:
            return self._refuse(502, str(error))
        if answer is None:
            return self._refuse(404, "there is no such page")
        self._answer(200, "application/json", json.dumps(answer, allow_nan=False).encode())

    def _ask(self, name: str, fields: dict[str, str]) -> dict[str, Any] | None:
        pictures = self.server.pictures
        if name == "agents":
            return pictures.agents()
        if name == "columns":
            return pictures.columns(fields["pool"])
        if name == "density":
            return pictures.density(fields["pool"], fields["x"], fields.get("y", ""), int(fields["bins"]),
                                    fields.get("state", ""))  # fmt: skip
        if name == "track-columns":
            return pictures.paths.columns(fields["tracks"])
        if name == "paths":
            return pictures.paths.paths(fields["tracks"], fields["ids"], fields["x"], fields["y"])
        if name == "exchange":
            return pictures.exchanges.table(fields["name"])
        return None

    def _refuse(self, code: int, why: str) -> None:
        self._answer(code, "application/json", json.dumps({"error": why}).encode())

    def _answer(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: paths hold the token."""


class ViewServer(ThreadingHTTPServer):
    """Listens at once; ``serve_forever`` answers. ``url`` holds the token."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, pictures: Pictures, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.pictures = pictures
        self.port: int = self.server_address[1]
        self.token = secrets.token_urlsafe(24)
        self._places = threading.BoundedSemaphore(AT_ONCE_MAX)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that disconnects in the middle of an answer is not an error of this program."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)
