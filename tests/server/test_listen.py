"""Where a server may listen, and what it refuses before anything is started."""

import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from keyplan.cli.main import main
from keyplan.errors import InvalidInputError, KeyplanError, StoreMissingError, UnknownNameError
from keyplan.server import ServerOptions, serve
from keyplan.server.listen import listener


def refused(kind: type[KeyplanError] = InvalidInputError, **options: Any) -> str:
    """The words with which a server does not start."""
    asked = {"store_url": "memory:", "listen": ("127.0.0.1:0",), **options}
    with pytest.raises(kind) as caught:
        serve(ServerOptions(**asked), on_listening=_never)
    return str(caught.value)


def _never(_addresses: object) -> None:
    pytest.fail("it listens")


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
def test_an_address_that_others_can_reach_needs_tokens(address: str) -> None:
    with pytest.raises(InvalidInputError, match="can be reached from other machines"):
        listener(address, allow_remote=False)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", "127.1.2.3:0"])
def test_loopback_needs_none(address: str) -> None:
    bound = listener(address, allow_remote=False)
    try:
        host, port = bound.socket.getsockname()
        assert host.startswith("127.")
        assert bound.address == f"http://{address.partition(':')[0]}:{port}"
    finally:
        bound.close()


WRONG = (
    "127.0.0.1 127.0.0.1:99999 ::1:80 :80 127.0.0.1: 127.0.0.1:http 127.0.0.1:-1 [::1:80 unix:/none/here x.invalid:1"
)


@pytest.mark.parametrize("address", WRONG.split())
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidInputError, match="--listen"):
        listener(address, allow_remote=True)


def test_an_address_that_is_taken_is_refused() -> None:
    first = listener("127.0.0.1:0", allow_remote=False)
    try:
        port = first.socket.getsockname()[1]
        with pytest.raises(InvalidInputError, match="already in use"):
            listener(f"127.0.0.1:{port}", allow_remote=False)
    finally:
        first.close()


def test_a_unix_socket_is_the_owners_alone_and_goes_with_its_server(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    bound = listener(f"unix:{path}", allow_remote=False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(InvalidInputError, match="already in use"):
        listener(f"unix:{path}", allow_remote=False)
    bound.close()
    assert not path.exists()


def test_a_file_that_is_no_socket_is_left(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(InvalidInputError, match="already in use"):
        listener(f"unix:{path}", allow_remote=False)
    assert path.read_text() == "data"


def test_an_abandoned_socket_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(path))
    listener(f"unix:{path}", allow_remote=False).close()
    assert not path.exists()


CASES: tuple[tuple[dict[str, Any], type[KeyplanError], str], ...] = (
    ({"services": ("nobody",)}, UnknownNameError, "nobody"),
    ({"settings": {"keyspaces.swep": "off"}}, InvalidInputError, "keyspaces.swep"),
    ({"settings": {"unknown": "x"}}, InvalidInputError, "unknown"),
    ({"settings": {"keyspaces.sweep": "maybe"}}, InvalidInputError, "on, off"),
    ({"settings": {"keyspaces.sweep-keys-per-second": "0"}}, InvalidInputError, "from 1 to"),
    ({"settings": {"keyspaces.profile": "mongo"}}, InvalidInputError, "tikv"),
    ({"settings": {"keyspaces.prefix-codec": "base64"}}, InvalidInputError, "uvarint"),
    ({"tls_certificate": Path("/none/here.pem")}, InvalidInputError, "certificate"),
    ({"store_url": "lmdb:/none/here.kv", "has_to_exist": True}, StoreMissingError, "no such store"),
    ({"listen": ("127.0.0.1:0", "0.0.0.0:0")}, InvalidInputError, "other machines"),
)


@pytest.mark.parametrize(("options", "kind", "problem"), CASES)
def test_what_cannot_be_served_is_said_at_the_start(
    options: dict[str, Any], kind: type[KeyplanError], problem: str
) -> None:
    assert problem in refused(kind, **options)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--setting", "sweep"], "NAME.KEY=VALUE"),
        (["--setting", "a.b=1", "--setting", "a.b=2"], "given twice"),
        (["--local-role", "root"], "client, admin or none"),
        (["--log-level", "chatty"], "debug, info"),
        (["--tokens", "/none/here"], "No such file"),
        (["--body-seconds", "0"], "--body-seconds"),
        (["--body-seconds", "nan"], "more than 0"),
        (["--idle-seconds", "-1"], "--idle-seconds"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--store", "memory:", *arguments]) == 5
    assert problem in capsys.readouterr().err
