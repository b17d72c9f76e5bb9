"""How much a HEPnOS server reads for one caller."""

import pytest

from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.remote import RemoteServer
from keyplan.errors import InvalidInputError
from keyplan.server import EdgeBounds
from tests.apps.hepnos.served import HepnosServer


def test_values_that_are_more_than_one_caller_may_hold_are_refused_however_few_keys_name_them() -> None:
    bounds = EdgeBounds(held_bytes_per_caller_max=32 << 20)
    with HepnosServer({"store": "memory:"}, bounds=bounds) as server:
        database = RemoteServer.at(server.url).database(Kind.PRODUCT, 0)
        key, value = bytes(40) + b"label#type", b"v" * (1 << 20)
        database.put_sorted([key], [value])
        assert database.values([key] * 24 + [key + b"s"]) == [value] * 24 + [None]
        with pytest.raises(InvalidInputError, match=r"32 MiB, as much as one caller may.*\(too_much_held\)"):
            database.values([key] * 200)
        assert database.values([key, key + b"s"] * 9) == [value, None] * 9
