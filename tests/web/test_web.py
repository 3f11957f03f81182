"""The status page over HTTP: who is answered, what, and what is never served."""

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from freetrain.cli.context import EX_TEMPFAIL
from freetrain.errors import BadDataError
from freetrain.state.files import StateDir
from freetrain.web import LOOPBACK, MOST_REQUESTS, server, status_app, token_of
from tests.cli.commands import at_home, run

TOKEN = "t" * 43
UID = os.getuid()


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    """A state directory as a tick leaves it."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    (folder / "status.html").write_text("<p>the page</p>")
    (folder / "metrics.prom").write_text("freetrain_holes 3\n")
    (folder / "page.json").write_text("{}")
    return StateDir(folder)


class Answer:
    """What an application answers to one request."""

    def __init__(self, app: Any, **environ: str) -> None:  # noqa: ANN401 - WSGI
        asked: dict[str, Any] = {"SCRIPT_NAME": "", **environ}
        setup_testing_defaults(asked)
        body = validator(app)(asked, self._start)
        self.content = b"".join(body)
        body.close()  # type: ignore[attr-defined] # the validator asks for it

    def _start(
        self, status: str, headers: list[tuple[str, str]], _error: object = None, /
    ) -> Callable[[bytes], object]:
        self.code = int(status.split(maxsplit=1)[0])
        self.headers = dict(headers)
        return lambda content: content


def asked(state: StateDir, path: str = "/", **changes: str) -> Answer:
    told = {"PATH_INFO": path, "QUERY_STRING": f"token={TOKEN}", **changes}
    return Answer(status_app(state.path, token=TOKEN), **told)


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("/", b"<p>the page</p>", "text/html; charset=utf-8"),
        (
            "/metrics",
            b"freetrain_holes 3\n",
            "text/plain; version=0.0.4; charset=utf-8",
        ),
    ],
)
def test_page_and_metrics_are_served_to_who_has_the_token(
    state: StateDir, path: str, content: bytes, kind: str
) -> None:
    answer = asked(state, path)

    assert (answer.code, answer.content) == (200, content)
    assert answer.headers["Content-Type"] == kind
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize(
    "query",
    [
        "",
        "token=",
        f"token={TOKEN[:-1]}",
        f"token={TOKEN}x",
        f"token=x&token={TOKEN}",
        f"other={TOKEN}",
        "token=%C3%A4%00",
        "&".join(["a=b"] * 1_000),
    ],
)
@pytest.mark.parametrize("path", ["/", "/metrics", "/page.json"])
def test_without_the_token_nothing_is_told(
    state: StateDir, path: str, query: str
) -> None:
    answer = asked(state, path, QUERY_STRING=query)

    assert answer.code == 403
    assert b"page" not in answer.content
    assert b"freetrain_holes" not in answer.content


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_other_methods_are_refused(state: StateDir, method: str) -> None:
    answer = asked(state, REQUEST_METHOD=method)

    assert (answer.code, answer.headers["Allow"]) == (405, "GET, HEAD")
    assert b"the page" not in answer.content


def test_head_has_the_headers_of_get_and_no_content(state: StateDir) -> None:
    answer = asked(state, REQUEST_METHOD="HEAD")

    assert (answer.code, answer.content) == (200, b"")
    assert answer.headers["Content-Length"] == "15"


@pytest.mark.parametrize(
    "path",
    [
        "/page.json",
        "/state.sqlite",
        "/../state/page.json",
        "//",
        "/status.html/..",
        "/.",
    ],
)
def test_no_other_file_and_no_folder_is_served(state: StateDir, path: str) -> None:
    answer = asked(state, path)

    assert answer.code == 404
    assert b"page.json" not in answer.content


def test_before_the_first_tick_the_answer_says_so(state: StateDir) -> None:
    state.status_page.unlink()

    answer = asked(state)

    assert answer.code == 503
    assert b"No tick" in answer.content


@pytest.mark.parametrize(
    "plant", [Path.mkdir, os.mkfifo, lambda p: p.symlink_to("/etc/passwd")]
)
def test_what_is_no_plain_file_is_not_read(state: StateDir, plant: Any) -> None:  # noqa: ANN401
    state.status_page.unlink()
    plant(state.status_page)

    answer = asked(state)

    assert (answer.code, b"root" in answer.content) == (503, False)


def test_behind_a_login_of_somebody_else_no_token_is_asked_for(state: StateDir) -> None:
    app = status_app(state.path, token=None)

    answer = Answer(
        app, SCRIPT_NAME="/pun/dev/freetrain", PATH_INFO="", QUERY_STRING=""
    )

    assert (answer.code, answer.content) == (200, b"<p>the page</p>")


def test_whether_a_token_is_asked_for_must_be_said(state: StateDir) -> None:
    with pytest.raises(TypeError, match="token"):
        status_app(state.path)  # type: ignore[call-arg]


def test_the_token_is_long_stays_and_is_for_its_owner_only(state: StateDir) -> None:
    old = os.umask(0)
    try:
        first = token_of(state, uid=UID)
    finally:
        os.umask(old)

    assert len(first) >= 43
    assert token_of(state, uid=UID) == first
    assert stat.S_IMODE(state.web_token.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "short", "x" * 40 + "\n", "&" * 43])
def test_what_is_no_token_is_refused(state: StateDir, content: str) -> None:
    state.web_token.write_text(content)

    with pytest.raises(BadDataError, match="Remove it"):
        token_of(state, uid=UID)


# The server.


@contextmanager
def connected(state: StateDir) -> Iterator[HTTPConnection]:
    """Serve *state*, and wait at the end until all that was asked has been answered."""
    with server(status_app(state.path, token=TOKEN), port=0) as serving:
        serving.daemon_threads = False  # type: ignore[attr-defined] # threads are ours
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            yield HTTPConnection(LOOPBACK, serving.server_port, timeout=5)
        finally:
            serving.shutdown()
            thread.join()


def test_the_server_answers_on_loopback_and_logs_no_token(
    state: StateDir, capfd: pytest.CaptureFixture[str]
) -> None:
    with connected(state) as connection:
        connection.request("GET", f"/?token={TOKEN}")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"<p>the page</p>")

    assert capfd.readouterr() == ("", "")


def test_a_client_that_says_nothing_keeps_no_other_waiting(state: StateDir) -> None:
    with (
        connected(state) as connection,
        closing(HTTPConnection(LOOPBACK, connection.port)) as silent,
    ):
        silent.connect()
        connection.request("GET", f"/?token={TOKEN}")
        assert connection.getresponse().status == 200


def test_more_clients_than_threads_are_turned_away_until_one_leaves(
    state: StateDir,
) -> None:
    with connected(state) as connection, ExitStack() as silent:
        every = [
            silent.enter_context(closing(HTTPConnection(LOOPBACK, connection.port)))
            for _ in range(MOST_REQUESTS)
        ]
        for client in every:
            client.connect()
        with pytest.raises(ConnectionError):
            status_of(connection)
        every[0].close()
        assert answered_within(5.0, connection) == 200


def status_of(connection: HTTPConnection) -> int:
    connection.close()
    connection.request("GET", f"/?token={TOKEN}")
    return connection.getresponse().status


def answered_within(seconds: float, connection: HTTPConnection) -> int | None:
    """Ask again until there is an answer; None where there was none in time."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        try:
            return status_of(connection)
        except ConnectionError:
            time.sleep(0.05)
    return None


def test_a_taken_port_is_refused_with_what_to_do(
    tmp_path: Path, state: StateDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    at_home()
    with server(status_app(state.path, token=TOKEN), port=0) as other:
        ran = run("web", "--port", str(other.server_port))

    assert ran.code == EX_TEMPFAIL
    assert "Leave --port out" in ran.stderr
