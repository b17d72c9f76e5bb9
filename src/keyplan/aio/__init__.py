"""keyplan for asyncio, with the same names: `import keyplan.aio as keyplan`, and await what you called.

    async with keyplan.aio.open("lmdb:./site.kv") as store:
        site = Site(store)
        await site.racks.insert("r1", Rack(room="a"))
        async for key, rack in site.racks.list():
            ...

A layout for both uses is declared as `class Site(Layout[Mode], ...)`. The code is that of the synchronous store, run where it
does not hold up the event loop; what is here is that, and nothing about layouts, indexes or transactions.
"""

from keyplan import (
    F64,
    I64,
    U8,
    U16,
    U32,
    U64,
    Async,
    Change,
    ChangeKind,
    Counter,
    Decimal,
    HexUuid,
    Index,
    KeyplanError,
    Layout,
    LayoutWarning,
    Mode,
    Only,
    Parameter,
    Percent,
    RawUuid,
    Secret,
    SecretKeys,
    Sync,
    Table,
    Tail,
    Text,
    Unique,
    Unlike,
    Waiver,
)
from keyplan.aio.greenlets import drive, is_driven, wait
from keyplan.aio.keyspaces import KeySpaceStore
from keyplan.aio.lease import Lease
from keyplan.aio.notifier import CommitNotifier, Wakeup
from keyplan.aio.opening import Opening, open_async
from keyplan.aio.store import Store
from keyplan.aio.transaction import PinnedState, Transaction

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
    "CommitNotifier",
    "Counter",
    "Decimal",
    "HexUuid",
    "Index",
    "KeySpaceStore",
    "KeyplanError",
    "Layout",
    "LayoutWarning",
    "Lease",
    "Mode",
    "Only",
    "Opening",
    "Parameter",
    "Percent",
    "PinnedState",
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
    "Wakeup",
    "drive",
    "is_driven",
    "wait",
]

open = open_async  # noqa: A001  # Why: `keyplan.aio.open(url)` reads as it should; `import *` leaves the builtin alone.
