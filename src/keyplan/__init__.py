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

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, overload

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
        Secret,
        Tail,
        Text,
    )
    from keyplan.errors import KeyplanError
    from keyplan.keyspace import KeySpaceStore
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
    from keyplan.secret_keys import SecretKeys
    from keyplan.store import LayoutCheck, LayoutWarning, Lease, Store, Transaction

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
    "LayoutWarning",
    "Lease",
    "Mode",
    "Only",
    "Parameter",
    "Percent",
    "RawUuid",
    "Secret",
    "SecretKeys",
    "Store",
    "Sync",
    "Table",
    "Tail",
    "Text",
    "Transaction",
    "Unique",
    "Unlike",
    "Waiver",
]

_PACKAGES: Final = {
    "keyplan.codec": (
        *("F64", "I64", "U8", "U16", "U32", "U64"),
        *("Decimal", "HexUuid", "Percent", "RawUuid", "Secret", "Tail", "Text"),
    ),
    "keyplan.errors": ("KeyplanError",),
    "keyplan.layout": (
        *("Async", "Change", "ChangeKind", "Counter", "Index", "Layout", "Mode", "Only", "Parameter", "Sync", "Table"),
        *("Unique", "Unlike", "Waiver"),
    ),
    "keyplan.secret_keys": ("SecretKeys",),
    "keyplan.store": ("LayoutWarning", "Lease", "Store", "Transaction"),
}
_HOMES: Final = {name: package for package, names in _PACKAGES.items() for name in names}
_NAMED_PACKAGES: Final = frozenset({"aio", "codec", "engine", "errors", "keyspace", "layout", "limits", "store"})


@overload
def open(  # noqa: A001  # Why: `keyplan.open(url)` reads as it should; nobody imports the name alone.
    url: str,
    *,
    keyspace: str,
    application: str,
    create_if_missing: bool = False,
    default_prefix: bytes | str | None = None,
    require_keyspace_api: bool = False,
    accept_registered_prefix: bool = False,
    allow_foreign_write: bool = False,
    on_close: "Callable[[KeyplanError], object] | None" = None,
    secrets: "SecretKeys | None" = None,
    layout_check: "LayoutCheck" = "warn",
    **options: str | int | bool,
) -> "KeySpaceStore": ...


@overload
def open(  # noqa: A001
    url: str,
    *,
    secrets: "SecretKeys | None" = None,
    layout_check: "LayoutCheck" = "warn",
    **options: str | int | bool,
) -> "Store": ...


def open(url: str, **options: Any) -> "Store":  # noqa: A001
    """Open the store that `url` names: `memory:`, `lmdb:PATH`, ...; `options` are the URL's, as in `history="off"`.

    With `keyspace` and `application`, open that key space of it: a store in which any layout runs, and which nobody else can
    write to; see `keyplan.keyspace.open_key_space` for the other options. With `secrets`, keys of a file or of a command, the
    secrets of records are sealed when they are written. A layout that is bound and is not the one that the store notes makes a
    LayoutWarning; with `layout_check="refuse"` it raises, with "off" nobody looks. For both see `Store`.

    Close it, or use it in a `with` block. Raises EngineOpenError.
    """
    # Why: key spaces are imported when one is opened; they cost as much as a layout of fourteen tables.
    store: Store
    if "keyspace" in options or "application" in options:
        store = import_module("keyplan.keyspace").open_keyspace_url(url, **options)
    else:
        store = import_module("keyplan.store").open_store(url, **options)
    return store


if not TYPE_CHECKING:  # Why: type checkers would take every misspelt name for one that this function knows.

    def __getattr__(name: str) -> object:
        """Import a public name from its package, and keep it; or a package: `keyplan.errors.NotFoundError`."""
        if name in _NAMED_PACKAGES:
            return import_module(f"keyplan.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'keyplan' has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """The public names, imported or not."""
        return sorted({*globals(), *__all__})
