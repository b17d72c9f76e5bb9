"""Servers whose names have no address are told from servers that are not there yet."""

import socket

import pytest

from keyplan.engine import open_engine
from keyplan.engine.postgres import engine
from keyplan.engine.postgres.failures import ConnectionLostError
from keyplan.errors import StoreUnreachableError

UNKNOWN = f"failed to resolve host 'b': [Errno {socket.EAI_NONAME}] Name or service not known"
TEMPORARY = f"failed to resolve host 'b': [Errno {socket.EAI_AGAIN}] Temporary failure in name resolution"
REFUSED = 'connection failed: connection to server at "127.0.0.1", port 1 failed: Connection refused'


@pytest.mark.parametrize(("said", "named"), [(UNKNOWN, ["a", "b"]), (TEMPORARY, None), (REFUSED, None)])
def test_names_without_an_address_are_named_where_no_host_has_one(
    said: str, named: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg looks up all hosts, and fails so when it has found none."""

    def fail(*_arguments: object, **_named: object) -> None:
        raise ConnectionLostError(said)

    monkeypatch.setattr(engine, "open_session", fail)
    with pytest.raises(StoreUnreachableError) as caught:
        open_engine("postgres://a,b/site")
    assert caught.value.facts.get("unresolved") == named
