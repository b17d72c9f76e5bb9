"""What stands at an address that a member has written need not be Patroni: it may answer anything, without an end."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import ClassVar

import pytest

from keyplan.apps.patroni import Member, patroni_rest
from keyplan.apps.patroni.patroni_rest import PatroniRefusedError


class Liar(BaseHTTPRequestHandler):
    """Answers with pieces, and then with `last` again and again until the asking end goes, where it is not empty."""

    first: ClassVar[bytes]
    last: ClassVar[bytes]
    pause: ClassVar[float]
    is_over: ClassVar[Event]

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        try:
            self.wfile.write(self.first)
            while self.last and not self.is_over.wait(self.pause):
                self.wfile.write(self.last)
        except OSError:
            return

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


@pytest.fixture
def liar() -> Iterator[Member]:
    Liar.is_over = Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Liar) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield Member(api_url=f"http://127.0.0.1:{server.server_port}/patroni")
        Liar.is_over.set()
        server.shutdown()


@pytest.mark.parametrize(
    ("first", "last", "pause", "problem"),
    [
        (b"[" * 900_000, b"", 0, "tells nothing of it"),
        (b"[]", b"", 0, "tells nothing of it"),
        (b"", b"x" * 65_536, 0, "answers with more than 1048576 bytes"),
        (b"", b"x", 0.02, "does not answer: TimeoutError"),
    ],
)
def test_an_answer_that_is_none_or_has_no_end_is_given_up(
    liar: Member, monkeypatch: pytest.MonkeyPatch, first: bytes, last: bytes, pause: float, problem: str
) -> None:
    Liar.first, Liar.last, Liar.pause = first, last, pause
    if pause:
        monkeypatch.setattr(patroni_rest, "_SECONDS_MAX", 0.3)
    with pytest.raises(PatroniRefusedError, match=problem):
        patroni_rest.started_at(liar)


@pytest.mark.parametrize(
    "url", ["http://[", "http://h:99999999/", "file:///etc/passwd", "ftp://h/", "http://h\x00/", "x"]
)
def test_an_address_that_is_none_is_a_refusal(url: str) -> None:
    with pytest.raises(PatroniRefusedError, match=r"does not answer|advertises no REST API"):
        patroni_rest.started_at(Member(api_url=url))


def test_what_is_told_is_noted_in_a_bounded_length(liar: Member) -> None:
    Liar.first, Liar.last = b'{"postmaster_start_time": "' + b"1" * 9_999 + b'"}', b""
    assert patroni_rest.started_at(liar) == "1" * 200
