"""Who is given the figures: with an access file, with tokens, without either; in clear and over TLS."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client import CollectorRegistry, Counter

from keyplan.access import AccessFile
from keyplan.apps.runm.callers import Callers
from keyplan.apps.runm.figures_port import figures_served
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import InvalidInputError
from keyplan.server import Role, Token
from tests.apps.runm.principals import access_text, token_of
from tests.servers.authority import Authority

FIGURE = "runm_tried_total 0.0"
MONITOR = {"monitor": {"read": ("operation:getMetrics",)}, "shop": {"read": ("operation:runm.*",)}}
CLIENT = "a-token-of-a-client"


@dataclass
class Port:
    """A port that figures are served on."""

    url: str
    trusted: ssl.SSLContext | None = None

    def ask(self, authorization: str | None = None) -> tuple[int, str]:
        """The status and the text of an answer."""
        headers = {} if authorization is None else {"Authorization": authorization}
        try:
            with urlopen(Request(f"{self.url}/metrics", headers=headers), context=self.trusted) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.headers.get("WWW-Authenticate", "") + error.read().decode()


@contextmanager
def port(callers: Callers | None, authority: Authority | None = None) -> Iterator[Port]:
    registry = CollectorRegistry()
    Counter("runm_tried", "What is asked for.", registry=registry)
    certificate = None if authority is None else (authority.certificate("server"), authority.key("server"))
    with figures_served(registry, "127.0.0.1:0", callers, certificate) as address:
        if authority is None:
            yield Port(f"http://{address}")
        else:
            yield Port(f"https://{address}", ssl.create_default_context(cafile=str(authority.ca)))


def test_an_access_file_says_who_has_them_and_a_grant_on_calls_is_none_on_them(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.touch(mode=0o600)
    path.write_text(access_text(MONITOR))
    with port(Callers(access=AccessFile(path, monotonic=SYSTEM_CLOCK.monotonic))) as figures:
        assert FIGURE in figures.ask(f"Bearer {token_of('monitor')}")[1]
        status, why = figures.ask(f"Bearer {token_of('shop')}")
        assert (status, why) == (403, "no line grants shop to read operation:getMetrics.\n")
        unknown = (401, 'Bearer realm="keyplan"a token is needed, or the one given is not known.\n')
        for nobody in (None, f"Bearer {token_of('other')}", f"Token {token_of('monitor')}", ""):
            assert figures.ask(nobody) == unknown


def test_with_tokens_each_of_them_will_do_and_guessing_is_ended() -> None:
    with port(Callers([Token.of_text(Role.CLIENT, "c", CLIENT)])) as figures:
        assert figures.ask(f"Bearer {CLIENT}")[0] == 200
        assert {figures.ask(f"Bearer guess-number-{number:06}")[0] for number in range(20)} == {401}
        assert figures.ask("Bearer guess-number-000021")[0] == 429
        assert figures.ask(f"Bearer {CLIENT}")[0] == 200, "who was right before still is"


def test_where_nobody_is_asked_everybody_has_them() -> None:
    with port(None) as figures:
        assert FIGURE in figures.ask()[1]


def test_with_a_certificate_they_come_over_tls_whoever_else_says_nothing(authority: Authority) -> None:
    with port(None, authority) as figures:
        place = figures.url.removeprefix("https://").rpartition(":")
        with socket.create_connection((place[0], int(place[2]))):  # no handshake comes of it
            assert FIGURE in figures.ask()[1]


def test_a_key_that_is_not_the_certificates_is_refused(authority: Authority) -> None:
    wrong = (authority.certificate("server"), authority.key("client"))
    with (
        pytest.raises(InvalidInputError, match="use-tls"),
        figures_served(CollectorRegistry(), "127.0.0.1:0", None, wrong),
    ):
        pass
