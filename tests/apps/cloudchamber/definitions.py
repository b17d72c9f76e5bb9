"""What tests of definitions over HTTP share: sites of both layouts, requests, and a check of what is left."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

import keyplan
from keyplan.apps.cloudchamber import (
    CloudChamberGo,
    begin_indexes,
    layout_in_use,
    unsound_pairs,
)
from keyplan.engine import ALL_KEYS
from keyplan.maintenance import check
from keyplan.store import Store
from tests.apps.cloudchamber.site import Site, site_of

__all__ = [
    "CAPACITY",
    "DETAILS",
    "NEW_ONE",
    "SIDES",
    "WHATEVER",
    "Act",
    "as_admin",
    "assert_sound",
    "ports",
    "put",
    "raw",
    "said",
    "seen",
    "site_with",
]

SIDES = ("document", "indexed", "go")
DETAILS = {"enabled": True, "condition": "operational"}
CAPACITY = {"cores": "4", "memoryInMb": "8", "diskInGb": "16", "networkBandwidthInMbps": "32", "arch": "X64"}

NEW_ONE = {"If-None-Match": "*"}
WHATEVER = {"If-Match": "*"}


def ports(number: int) -> dict[str, Any]:
    item = {"type": "blade"}
    return {
        "ports": {str(one): {"wired": True, "item": item | ({"id": str(one)} if one else {})} for one in range(number)}
    }


def seen(answer: httpx.Response) -> dict[str, str]:
    return {"If-Match": answer.headers["etag"]}


@contextmanager
def site_with(side: str, folder: Path) -> Iterator[Site]:
    url = "memory:"
    if side == "indexed":
        url = f"lmdb:{folder / 'kv'}?durability=none"
        with keyplan.open(url) as store:
            begin_indexes(store)
    with site_of(url, folder, layout="go" if side == "go" else "document") as site:
        yield site


def raw(store: Store) -> dict[bytes, bytes]:
    with store.engine.snapshot() as snapshot:
        return {entry.key: entry.value for entry in snapshot.scan(ALL_KEYS)}


def assert_sound(store: Store) -> None:
    """No index entry, list key or record of one is without the others."""
    assert [*check(store, layout_in_use(store)(store))] == []
    go = CloudChamberGo(store)
    assert [*check(store, go)] == []
    assert [*unsound_pairs(go)] == []


Act = Callable[[httpx.AsyncClient], Awaitable[None]]


def as_admin(site: Site, act: Act) -> None:
    async def logged_in(site: Site) -> None:
        await act(await site.logged_in())

    site.run(logged_in)


async def put(client: httpx.AsyncClient, path: str, body: Any, headers: dict[str, str] = NEW_ONE) -> httpx.Response:
    return await client.put(f"/api/{path}/definition", json=body, headers=headers)


def said(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.text.strip()
