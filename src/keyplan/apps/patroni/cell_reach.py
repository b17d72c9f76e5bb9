"""What a cell may see of its store: what is its own there, its machine's registrations, and which store it is.

Its own are its record, orders and tasks, and what it says of them.

All that it needs to run a node stands in the order. So it reads no instance, and nothing of another cell, of Patroni or of the
registry of key spaces. An agent works on such a store alone. It opens the store itself, so that this keeps mistakes in, and
nobody out who has taken the agent over.
"""

from collections.abc import Iterator

from keyplan.apps.patroni.layout import DEFAULT_IMAGE, STORE_IDENTITY, Broker
from keyplan.engine import LEASE_MARKS, Area, ConfinedEngine, KeyRange, Outside, OwnedLeases, Reach
from keyplan.store import Store

__all__ = ["cell_reach", "cell_store", "principal_name"]


def principal_name(cell: str) -> str:
    """Return the name of a cell's principal: who its leases belong to, and whom errors name."""
    return f"cell:{cell}"


def cell_reach(cell: str, *, hostname: str, image: str = DEFAULT_IMAGE) -> Reach:
    """Return what a cell may see, all of which it may write."""
    return Reach(Area(key_range, can_write=True) for key_range in _ranges(cell, hostname, image))


def _ranges(cell: str, hostname: str, image: str) -> Iterator[KeyRange]:
    tables = Broker.bound().tables
    for name, first in (
        *((name, (cell,)) for name in ("orders", "reports", "tasks", "task_answers")),
        ("registrations", (image, hostname)),
    ):
        yield KeyRange(*tables[name].keys.range(first))
    # Why whole keys: `cell1` is the beginning of `cell10`.
    yield KeyRange.of_key(tables["cells"].keys.encode(cell))
    yield KeyRange.of_key(tables["identities"].keys.encode(STORE_IDENTITY))


def cell_store(store: Store, cell: str, *, hostname: str, image: str = DEFAULT_IMAGE) -> Store:
    """Return a store as one cell may see it. Closing it ends the cell's leases here, and leaves `store` open."""
    reach, owner = cell_reach(cell, hostname=hostname, image=image), principal_name(cell)
    confined = ConfinedEngine(
        store.engine,
        lambda: reach,
        outside=Outside.REFUSED,
        who=owner,
        leases=OwnedLeases(store.engine, owner, LEASE_MARKS),
        closes_inner=False,
    )
    return Store(confined, secrets=store.secrets)
