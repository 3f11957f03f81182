"""The status page and the metrics over HTTP: a WSGI application, and a server for it.

Both are files that the last tick wrote; nothing is computed, and no other file is
served. ``serve`` listens on this host's loopback alone, where other users of a login
node could connect, too: so whoever asks must know the token, which lies in the state
directory. Behind Open OnDemand each user's own web server asks for a login first, and
``status_app(..., token=None)`` needs no token.
"""

from __future__ import annotations

import hmac
import secrets
from socketserver import ThreadingMixIn
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from freetrain.elastic.files import create_once
from freetrain.errors import BadDataError
from freetrain.opening import read_plain
from freetrain.state.database import prepare_directory
from freetrain.state.files import StateDir
from freetrain.tick.status_page import POLICY

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

LOOPBACK = "127.0.0.1"

_MOST_BYTES = 1 << 24
_LEAST_TOKEN = 32
_HTML = "text/html; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"

_HEADERS = [
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", f"{POLICY}; frame-ancestors 'none'; base-uri 'none'"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
]


def status_app(folder: Path, *, token: str | None) -> WSGIApplication:
    """Return the application that shows the state directory *folder*.

    ``/`` is the status page, ``/metrics`` the metrics; GET and HEAD alone are answered.

    Args:
        folder: The state directory, absolute.
        token: What ``?token=`` must be; None where somebody else has already made sure
            who asks, as Open OnDemand does.
    """
    state = StateDir(folder)
    files = {
        "": (state.status_page, _HTML),
        "/": (state.status_page, _HTML),
        "/metrics": (state.metrics, _METRICS),
    }

    def app(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        def answer(status: str, kind: str, content: bytes) -> Iterable[bytes]:
            length = ("Content-Length", str(len(content)))
            more = [("Allow", "GET, HEAD")] if status.startswith("405") else []
            start(status, [("Content-Type", kind), length, *more, *_HEADERS])
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [content]

        if token is not None and not _knows(environ, token):
            said = b"`freetrain web` prints the address with its token.\n"
            return answer("403 Forbidden", _TEXT, said)
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            return answer("405 Method Not Allowed", _TEXT, b"Only GET and HEAD.\n")
        found = files.get(environ.get("PATH_INFO", ""))
        if found is None:
            return answer("404 Not Found", _TEXT, b"Only / and /metrics are here.\n")
        path, kind = found
        try:
            content = read_plain(path, _MOST_BYTES)
        except FileNotFoundError:
            said = b"No tick has written it yet: `freetrain tick`, or `cron install`.\n"
            return answer("503 Service Unavailable", _TEXT, said)
        except (OSError, ValueError):
            said = b"It cannot be read. The next tick writes it anew.\n"
            return answer("503 Service Unavailable", _TEXT, said)
        return answer("200 OK", kind, content)

    return app


def _knows(environ: WSGIEnvironment, token: str) -> bool:
    try:
        asked = parse_qs(environ.get("QUERY_STRING", ""), max_num_fields=10)
    except ValueError:  # too many fields
        return False
    given = asked.get("token", [""])[0]
    return hmac.compare_digest(given.encode(), token.encode())


def token_of(state: StateDir, *, uid: int) -> str:
    """Return the token of *state*; the first call makes it.

    It stays, so that bookmarks and Prometheus go on working. To have another, remove
    the file.

    Raises:
        StoreError: The state directory is not safe, or cannot be made.
        OSError: The token cannot be read or made.
        BadDataError: The file holds no token.
    """
    prepare_directory(state.path, uid=uid)
    create_once(state.web_token, secrets.token_urlsafe(32).encode(), mode=0o600)
    found = read_plain(state.web_token, _MOST_BYTES).decode("ascii", "replace")
    if (
        len(found) < _LEAST_TOKEN
        or not found.replace("-", "").replace("_", "").isalnum()
    ):
        raise BadDataError(
            f"{state.web_token} holds no token; nothing was served. Remove it, and the "
            f"next `freetrain web` makes another."
        )
    return found


MOST_REQUESTS = 16
"""Requests that are answered at a time; others are turned away."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread a request: a client that sends nothing keeps no other waiting."""

    daemon_threads = True

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401
        """Take what every such server takes."""
        super().__init__(*args, **options)
        self._room = BoundedSemaphore(MOST_REQUESTS)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Answer *request* in a thread; close it where all are taken."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread could be started
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Answer *request*, and leave the place to another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that went away."""


class _QuietHandler(WSGIRequestHandler):
    """Logs nothing: addresses hold the token."""

    timeout = 10

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        """Drop the line."""


def server(app: WSGIApplication, *, port: int) -> WSGIServer:
    """Return a server for *app* on this host's loopback; 0 stands for any free port.

    Raises:
        OSError: The port is taken.
    """
    return make_server(
        LOOPBACK, port, app, server_class=_Server, handler_class=_QuietHandler
    )
