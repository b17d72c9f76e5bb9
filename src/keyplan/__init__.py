"""Declare the key layout of an ordered key-value store once: typed records, exact lists, indexes, lint, decoding from it.

    import keyplan
    from keyplan import Layout, Table

    class Site(Layout, root="/site/"):
        racks = Table("racks/{rack}", key=str, value=Rack)

    with keyplan.open("lmdb:./site.kv") as store:
        site = Site(store)
        site.racks.insert("r1", Rack(room="a"))

The packages below have more: `keyplan.codec` elements of keys and value forms, `keyplan.layout` layouts as data and the lint,
`keyplan.engine` the engine contract, `keyplan.store` stores and transactions, `keyplan.errors` every error.
"""

from keyplan.codec import (
    F64,
    I64,
    U8,
    U16,
    U32,
    U64,
    Decimal,
    HexUuid,
    Percent,
    RawUuid,
    Tail,
    Text,
)
from keyplan.errors import KeyplanError
from keyplan.layout import Counter, Index, Layout, Only, Parameter, Table, Unique, Unlike, Waiver
from keyplan.store import Store, Transaction
from keyplan.store import open_store as open  # noqa: A004  # Why: `keyplan.open(url)` reads as it should; nobody imports the name alone.

__all__ = [
    "F64",
    "I64",
    "U8",
    "U16",
    "U32",
    "U64",
    "Counter",
    "Decimal",
    "HexUuid",
    "Index",
    "KeyplanError",
    "Layout",
    "Only",
    "Parameter",
    "Percent",
    "RawUuid",
    "Store",
    "Table",
    "Tail",
    "Text",
    "Transaction",
    "Unique",
    "Unlike",
    "Waiver",
    "open",
]
