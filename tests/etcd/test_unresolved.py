"""Servers whose names have no address are told from servers that are not there yet."""

from collections.abc import Mapping
from typing import Any

import pytest

from keyplan.engine.etcd import EtcdEngine, EtcdOptions, TransportError
from keyplan.errors import StoreUnreachableError

NOWHERE = (
    "errors resolving nowhere:2379: [field:hostname lookup error:address lookup failed for nowhere:2379: Domain name not"
    " found]"
)
SYSTEMS = (
    "errors resolving nowhere:2379: [field:hostname lookup error:Address lookup failed for nowhere:2379 os_error: Name or"
    " service not known syscall: getaddrinfo]"
)
DOWN = "address lookup failed for nowhere:2379: Could not contact DNS servers"
REFUSED = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: connect: Connection refused"


class Failing:
    """A transport whose calls fail, each endpoint's in its own way."""

    def __init__(self, details: Mapping[str, str]) -> None:
        self._details = details

    def call(self, endpoint: str, *_arguments: object, **_named: object) -> Any:
        raise TransportError("UNAVAILABLE", self._details[endpoint])

    def close(self) -> None:
        pass


def unreachable(**details: str) -> StoreUnreachableError:
    with pytest.raises(StoreUnreachableError) as caught:
        EtcdEngine(EtcdOptions(tuple(details)), lambda _options: Failing(details))  # type: ignore[arg-type, return-value]
    return caught.value


@pytest.mark.parametrize("said", [NOWHERE, SYSTEMS])
def test_names_without_an_address_are_named(said: str) -> None:
    """Both of gRPC's resolvers, in their words."""
    assert unreachable(one=said, two=NOWHERE).facts["unresolved"] == ["one", "two"]


@pytest.mark.parametrize("details", [{"one": REFUSED}, {"one": DOWN}, {"one": NOWHERE, "two": REFUSED}, {"one": ""}])
def test_where_waiting_may_help_nothing_is_named(details: dict[str, str]) -> None:
    assert "unresolved" not in unreachable(**details).facts
