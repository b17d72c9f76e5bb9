"""Who asks: by token, or from this machine; and what a browser on this machine may be made to do."""

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from keyplan.errors import InvalidInputError
from keyplan.server import Access, AnswerError, Caller, Role, Token, read_tokens, tokens_of_environment
from keyplan.server.access import is_loopback

ADMIN_TOKEN = "a-long-token-of-ada"
ACCESS = Access(
    [Token.of_text(Role.ADMIN, "ada", ADMIN_TOKEN), Token.of_text(Role.CLIENT, "shop", "shop-0123456789abcdef")]
)


def scope(
    headers: Mapping[str, str] | None = None,
    *,
    client: tuple[str, int] | None = ("127.0.0.1", 50_000),
    server: tuple[str, int | None] = ("127.0.0.1", 8210),
    method: str = "GET",
) -> dict[str, Any]:
    pairs = {"host": "127.0.0.1:8210", **(headers or {})}
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs.items()]
    return {"type": "http", "method": method, "headers": raw, "client": client, "server": server}


def basic(text: str) -> str:
    return "Basic " + b64encode(text.encode()).decode()


def test_a_bearer_token_tells_who_asks_and_with_which_role() -> None:
    assert ACCESS.caller(scope({"authorization": f"Bearer {ADMIN_TOKEN}"})) == Caller(Role.ADMIN, "ada")
    assert ACCESS.caller(scope({"authorization": "bearer shop-0123456789abcdef"})) == Caller(Role.CLIENT, "shop")


def test_a_token_counts_from_other_machines_too() -> None:
    far = scope({"authorization": f"Bearer {ADMIN_TOKEN}", "host": "store.example"}, client=("192.0.2.7", 4_000))
    assert ACCESS.caller(far) == Caller(Role.ADMIN, "ada")


def test_the_password_of_basic_authentication_is_a_token() -> None:
    assert ACCESS.caller(scope({"authorization": basic(f"anyone:{ADMIN_TOKEN}")})) == Caller(Role.ADMIN, "ada")


@pytest.mark.parametrize(
    "authorization",
    [
        "Bearer wrong-0123456789abcdef",
        "Bearer",
        "Bearer " + ADMIN_TOKEN[:-1],
        "Digest whatever",
        "Basic !!!",
        "Basic " + b64encode(b"\xff\xfe").decode(),
        basic("ada:"),
        "Bearer \xe9\xe9",
    ],
)
def test_a_wrong_token_makes_a_local_request_nobodys(authorization: str) -> None:
    assert ACCESS.caller(scope({"authorization": authorization})) is None


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8210", "127.9.9.9", "localhost", "LOCALHOST:1", "[::1]:8210", "a.localhost"]
)
def test_without_a_token_a_request_from_this_machine_is_a_clients(host: str) -> None:
    assert ACCESS.caller(scope({"host": host})) == Caller(Role.CLIENT, "local")


@pytest.mark.parametrize("client", ["::1", "127.0.0.1", "127.1.2.3", "::ffff:127.0.0.1"])
def test_every_loopback_address_is_this_machine(client: str) -> None:
    assert ACCESS.caller(scope(client=(client, 1))) == Caller(Role.CLIENT, "local")


@pytest.mark.parametrize("client", ["192.0.2.7", "10.0.0.1", "::ffff:192.0.2.7", "fe80::1%eth0", "testclient"])
def test_without_a_token_another_machine_is_nobody(client: str) -> None:
    assert ACCESS.caller(scope(client=(client, 1))) is None


def test_a_request_whose_sender_is_not_known_is_nobodys() -> None:
    assert ACCESS.caller(scope(client=None)) is None


def test_a_unix_socket_is_this_machine() -> None:
    request = scope({"host": "whatever.example"}, client=None, server=("/run/keyplan.sock", None))
    assert ACCESS.caller(request) == Caller(Role.CLIENT, "local")


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "via", "x-real-ip"])
def test_what_a_proxy_on_this_machine_passes_on_is_not_local(header: str) -> None:
    assert ACCESS.caller(scope({header: "203.0.113.9"})) is None


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8210", "localhost.evil.example", "0x7f000001"]
)
def test_a_name_that_another_site_made_resolve_to_this_machine_is_not_local(host: str) -> None:
    assert ACCESS.caller(scope({"host": host})) is None


def test_the_name_that_the_server_listens_on_is_this_machines() -> None:
    access = Access(host_names=frozenset({"node7"}))
    assert access.caller(scope({"host": "node7:8210"})) == Caller(Role.CLIENT, "local")


def test_the_role_of_local_requests_is_as_configured() -> None:
    assert Access(local_role=Role.ADMIN).caller(scope()) == Caller(Role.ADMIN, "local")
    assert Access(local_role=None).caller(scope()) is None


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "https://]", "://", "", "\x00"])
def test_an_origin_that_is_no_url_is_anothers_and_no_fault(origin: str) -> None:
    with pytest.raises(AnswerError) as caught:
        ACCESS.caller(scope({"origin": origin}))
    assert (caught.value.status, caught.value.code) == (403, "cross_site")


def test_nobody_is_known_by_nothing_though_a_file_has_the_sum_of_nothing() -> None:
    nothing = Access([Token.of_text(Role.ADMIN, "ada", "")], local_role=None)
    for given in ("Bearer ", "Bearer", "", basic("anyone:")):
        assert nothing.caller(scope({"authorization": given})) is None
    short = Access([Token.of_text(Role.ADMIN, "ada", "fifteen-chars-x")], local_role=None)
    assert short.caller(scope({"authorization": "Bearer fifteen-chars-x"})) is None


FOREIGN = [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}]


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("authorization", [{}, {"authorization": basic(f"x:{ADMIN_TOKEN}")}], ids=["local", "basic"])
def test_a_page_of_another_site_cannot_have_a_browser_change_anything(
    headers: dict[str, str], authorization: dict[str, str]
) -> None:
    with pytest.raises(AnswerError) as caught:
        ACCESS.caller(scope({**headers, **authorization}, method="POST"))
    assert (caught.value.status, caught.value.code) == (403, "cross_site")


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_page_of_another_site_cannot_have_a_browser_read_anything(headers: dict[str, str]) -> None:
    with pytest.raises(AnswerError) as caught:
        ACCESS.caller(scope(headers))
    assert (caught.value.status, caught.value.code) == (403, "cross_site")


def test_a_link_of_another_site_may_be_followed() -> None:
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert ACCESS.caller(scope(followed)) == Caller(Role.CLIENT, "local")
    with pytest.raises(AnswerError):
        ACCESS.caller(scope(followed, method="POST"))


def test_the_servers_own_pages_may_change_things() -> None:
    own = {"origin": "http://127.0.0.1:8210", "sec-fetch-site": "same-origin"}
    assert ACCESS.caller(scope(own, method="POST")) == Caller(Role.CLIENT, "local")


def test_a_bearer_token_is_never_sent_by_a_browser_unasked_and_so_counts_from_any_page() -> None:
    request = scope({"origin": "https://tools.example", "authorization": f"Bearer {ADMIN_TOKEN}"}, method="POST")
    assert ACCESS.caller(request) == Caller(Role.ADMIN, "ada")


def test_loopback_is_an_address_and_never_a_name() -> None:
    assert is_loopback("::1")
    assert not is_loopback("localhost")
    assert not is_loopback("")


# ---- where tokens come from ------------------------------------------------------------------------------------------


def token_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_file_has_a_line_for_each_token(tmp_path: Path) -> None:
    text = f"# who may what\nadmin ada {ADMIN_TOKEN}\n\nclient shop shop-0123456789abcdef  # the shop\n"
    assert read_tokens(token_file(tmp_path, text)) == [*ACCESS.tokens]


def test_a_file_may_hold_sums_instead_and_then_be_readable_by_others(tmp_path: Path) -> None:
    summed = hashlib.sha256(ADMIN_TOKEN.encode()).hexdigest()
    path = token_file(tmp_path, f"admin ada sha256:{summed}\n", 0o644)
    assert read_tokens(path) == [ACCESS.tokens[0]]
    nothing = hashlib.sha256(b"").hexdigest()
    with pytest.raises(InvalidInputError, match="sum of nothing"):
        read_tokens(token_file(tmp_path, f"admin ada sha256:{nothing}\n", 0o600))


def test_a_token_may_hold_the_sign_of_a_comment(tmp_path: Path) -> None:
    path = token_file(tmp_path, "admin ada a-long-token#of-ada-0123 # hers\n#client shop x\n")
    assert read_tokens(path) == [Token.of_text(Role.ADMIN, "ada", "a-long-token#of-ada-0123")]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_with_tokens_in_clear_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(InvalidInputError, match="chmod 600"):
        read_tokens(token_file(tmp_path, f"admin ada {ADMIN_TOKEN}\n", mode))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("root ada a-long-token-of-ada", "ROLE NAME TOKEN"),
        ("admin a-long-token-of-ada", "ROLE NAME TOKEN"),
        ("admin a/b a-long-token-of-ada", "ROLE NAME TOKEN"),
        ("admin ada short", "at least 16"),
        ("admin ada a-long-tökèn-of-ada", "ASCII"),
        ("admin ada a-long-token-of-ada\nclient ada another-long-token", "two tokens of the name ada"),
    ],
)
def test_a_line_of_another_form_is_refused_without_showing_it(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem) as caught:
        read_tokens(token_file(tmp_path, text))
    assert "a-long" not in str(caught.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="No such file"):
        read_tokens(tmp_path / "none")


def test_the_environment_holds_one_token_for_each_role() -> None:
    environment = {"KEYPLAN_ADMIN_TOKEN": ADMIN_TOKEN, "KEYPLAN_CLIENT_TOKEN": "", "OTHER": "x"}
    assert tokens_of_environment(environment) == [Token.of_text(Role.ADMIN, "admin", ADMIN_TOKEN)]
    with pytest.raises(InvalidInputError, match="at least 16"):
        tokens_of_environment({"KEYPLAN_CLIENT_TOKEN": "short"})
