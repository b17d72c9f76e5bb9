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

from importlib import import_module
from typing import TYPE_CHECKING, Final

# Why: a name's package is imported when the name is first used. `keyplan --help` and completion must not pay for the layout
# compiler and the store, which take several times as long as Python itself takes to start.
if TYPE_CHECKING:
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
    from keyplan.layout import (
        Async,
        Change,
        ChangeKind,
        Counter,
        Index,
        Layout,
        Mode,
        Only,
        Parameter,
        Sync,
        Table,
        Unique,
        Unlike,
        Waiver,
    )
    from keyplan.store import Lease, Store, Transaction
    from keyplan.store import open_store as open  # noqa: A004  # Why: `keyplan.open(url)` reads as it should; nobody imports the name alone.

__all__ = [
    "F64",
    "I64",
    "U8",
    "U16",
    "U32",
    "U64",
    "Async",
    "Change",
    "ChangeKind",
    "Counter",
    "Decimal",
    "HexUuid",
    "Index",
    "KeyplanError",
    "Layout",
    "Lease",
    "Mode",
    "Only",
    "Parameter",
    "Percent",
    "RawUuid",
    "Store",
    "Sync",
    "Table",
    "Tail",
    "Text",
    "Transaction",
    "Unique",
    "Unlike",
    "Waiver",
    "open",
]

_PACKAGES: Final = {
    "keyplan.codec": (
        *("F64", "I64", "U8", "U16", "U32", "U64"),
        *("Decimal", "HexUuid", "Percent", "RawUuid", "Tail", "Text"),
    ),
    "keyplan.errors": ("KeyplanError",),
    "keyplan.layout": (
        *("Async", "Change", "ChangeKind", "Counter", "Index", "Layout", "Mode", "Only", "Parameter", "Sync", "Table"),
        *("Unique", "Unlike", "Waiver"),
    ),
    "keyplan.store": ("Lease", "Store", "Transaction", "open"),
}
_HOMES: Final = {name: package for package, names in _PACKAGES.items() for name in names}
_NAMED_PACKAGES: Final = frozenset({"aio", "codec", "engine", "errors", "keyspace", "layout", "limits", "store"})

if not TYPE_CHECKING:  # Why: type checkers would take every misspelt name for one that this function knows.

    def __getattr__(name: str) -> object:
        """Import a public name from its package, and keep it; or a package: `keyplan.errors.NotFoundError`."""
        if name in _NAMED_PACKAGES:
            return import_module(f"keyplan.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'keyplan' has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), "open_store" if name == "open" else name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """The public names, imported or not."""
        return sorted({*globals(), *__all__})
