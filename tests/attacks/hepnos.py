"""The attacks on a HEPnOS server: a place is a data set of its name, with an event and products, by its UUID."""

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count as numbers
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from keyplan.apps.hepnos.keys import Kind, dataset_key, number_key, product_item, product_suffix
from keyplan.apps.hepnos.operations import MODES, digest_of
from keyplan.apps.hepnos.packed import PACKED, pack
from keyplan.apps.hepnos.service import build
from keyplan.engine import KeyRange
from keyplan.server import PolicyAccess
from tests.apps.hepnos.served import RawFrames
from tests.attacks.form import Answer, Attack, Attacker, Row
from tests.attacks.world import BANK, HIDDEN, NEIGHBOUR, SHOP, TOKENS, VALUE, Place, World
from tests.servers.edge import EdgeServer

__all__ = ["ROW"]

NAMES: Final = UUID(int=0x5EED)
STORES: Final = numbers()
EVENT: Final = (1, 1, 7)
NONE: Final[list[bytes]] = []


def uuid_of(place: Place) -> UUID:
    """Return a place's UUID. The neighbour's differs from the bank's in its last byte."""
    if place is NEIGHBOUR:
        return UUID(int=uuid5(NAMES, BANK.keyspace).int ^ 1)
    return uuid5(NAMES, place.keyspace)


def targets_of(place: Place) -> str:
    """Return what a grant on all of a place is on."""
    below = [(kind, uuid_of(place).bytes) for kind in Kind if kind is not Kind.DATASET]
    keys = [(Kind.DATASET, dataset_key(place.keyspace)), *below]
    return " ".join(f"prefix:0x{f'hepnos/{kind.value}/'.encode().hex()}{key.hex()}" for kind, key in keys)


def product_of(place: Place, label: str) -> bytes:
    return product_item(uuid_of(place), EVENT) + product_suffix(label, "text")


WITHOUT: Final = {
    "watch": "databases without a history have no watches",
    "watch all": "databases without a history have no watches",
    "watch past": "databases without a history have no watches",
    "lease take-up": "there are no leases",
    "lease revoke": "there are no leases",
    "compaction": "there is no history",
    "page token": "a page begins at a key that is given",
    "registry": "of keyplan's own there is the ring's description, which is everybody's",
    "long": "keys have the bounds of the layout, for everybody",
}


class HepnosRow(Row):
    """The bank and the shop have a data set each; a cell has the first bytes of raw keys, which are no way in."""

    def __init__(self, name: str, *, has_frames: bool) -> None:
        super().__init__(name, {"hepnos": build}, has_data=False, without=WITHOUT)
        self.has_frames = has_frames

    def settle(self, world: World) -> None:
        own = {name: targets_of(place) for name, place in (("bank", BANK), ("shop", SHOP))}
        world.grants |= {
            "bank": dict.fromkeys(("read", "write"), own["bank"]),
            "shop": dict.fromkeys(("read", "write"), f"{own['shop']} operation:commitHepnos keyspace:ledger"),
            "reader": {"read": own["bank"]},
            "cell": dict.fromkeys(("read", "write"), f"prefix:events prefix:0x{uuid_of(BANK).hex}"),
        }
        world.write_file()

    def served(self, world: World) -> AbstractContextManager[Any]:
        return _served(world, self)


KINDS: Final = (Kind.DATASET, Kind.RUN, Kind.SUBRUN, Kind.EVENT, Kind.PRODUCT)
VERBS: Final = {"get": 2, "list": 3, "count": 4, "put": 5, "commit": 6}
"""As the reference has them. Why not taken from the code: a client of another language has no more."""

CONNECTIONS: Final[dict[tuple[object, ...], RawFrames]] = {}
"""Those of attackers for frames, by the server, who they are and what headers they send."""

FRAMED: Final[set[str]] = set()
"""Servers that are attacked in frames."""

ROW: Final = HepnosRow("hepnos", has_frames=False)
FRAMES_ROW: Final = HepnosRow("hepnos frames", has_frames=True)


def attack(name: str, *, writes: bool = False) -> Callable[[Attack], Attack]:
    """Say how one of ATTACKS is tried, in either form."""

    def add(function: Attack) -> Attack:
        for row in (ROW, FRAMES_ROW):
            row.attack(name, writes=writes)(function)
        return function

    return add


@contextmanager
def _served(world: World, row: HepnosRow) -> Iterator[EdgeServer]:
    settings, access = {"hepnos.store": f"memory:attacked-{next(STORES)}"}, PolicyAccess.of_file(world.file)
    served = EdgeServer(row.services, engine=world.engine, access=access, settings=settings)
    with served as server:
        if row.has_frames:
            FRAMED.add(server.url)
        for place in (BANK, SHOP, NEIGHBOUR):
            ada = Attacker(server.url, "ada", place, world)
            value = VALUE.encode() if place is not SHOP else b"of the shop"
            labels = ["known"] if place is SHOP else ["known", HIDDEN]
            products = sorted((product_of(place, label), value) for label in labels)
            for kind, keys, values in (
                (Kind.DATASET, [dataset_key(place.keyspace)], [uuid_of(place).bytes]),
                (Kind.RUN, [number_key(uuid_of(place), EVENT[:1])], NONE),
                (Kind.EVENT, [number_key(uuid_of(place), EVENT)], NONE),
                (Kind.PRODUCT, [key for key, _ in products], [value for _, value in products]),
            ):
                told = ask(ada, kind, "put", keys, values)
                assert told.status == 200, told
        try:
            yield server
        finally:
            for who in [who for who in CONNECTIONS if who[0] == server.url]:
                CONNECTIONS.pop(who).close()


def ask(attacker: Attacker, kind: Kind, verb: str, *columns: Sequence[bytes | None], words: str = "") -> Answer:
    """Ask for packed columns, of the ring that the attacker is shown, or of none."""
    shown = attacker.ask("GET", "/hepnos/databases")
    found = shown.json()["databases"].get(kind.value) if shown.status == 200 else None
    ring = digest_of(found[0]["description"].encode() if found else b"")
    if attacker.url in FRAMED:
        told = ask_in_frames(attacker, kind, verb, ring, pack(*columns), words)
    else:
        path = f"/hepnos/databases/{kind.value}/0/{verb}?ring={ring}{words}"
        told = attacker.ask("POST", path, pack(*columns), **{"Content-Type": PACKED})
    text = told.text
    for end in ends_of(whole(attacker)):
        # Why by its name: a refusal gives back the key or range that was asked for, and with it the place's UUID.
        text = text.replace((end or b"").hex(), attacker.place.keyspace)
    return told._replace(text=text)


def ask_in_frames(attacker: Attacker, kind: Kind, verb: str, ring: str, body: bytes, words: str) -> Answer:
    """Ask on the attacker's connection, made when there is none. Why kept: to make one costs as much as hundreds of attacks."""
    who = (attacker.url, attacker.who, *sorted(attacker.headers.items()))
    raw = CONNECTIONS.get(who)
    if raw is None:
        opened = socket.create_connection(("127.0.0.1", urlsplit(attacker.url).port or 0), timeout=45)
        own = {"Authorization": f"Bearer {TOKENS[attacker.who]}"} if attacker.who in TOKENS else {}
        raw = RawFrames(opened, **{**own, **attacker.headers})
        if raw.status != 101:
            raw.close()
            return Answer(raw.status, raw.head.partition(b"\r\n\r\n")[2].decode())
        CONNECTIONS[who] = raw
    options = dict(part.split("=") for part in words.split("&") if part)
    option = int(options.get("reverse", 0)) + 2 * int(options.get("values", 0))
    option += MODES.index(options["mode"]) if "mode" in options else 0
    where = bytes([KINDS.index(kind), option, 0, 0]) + (65_536).to_bytes(4, "little") + bytes.fromhex(ring)
    try:
        found = raw.ask(VERBS[verb], where, body)
    except (AssertionError, OSError):
        # Why asked anew: the server has ended it, as it does when who asks may stay no longer, or is idle.
        CONNECTIONS.pop(who).close()
        return ask_in_frames(attacker, kind, verb, ring, body, words)
    return Answer(found.number, found.body.decode("utf-8", "replace"))


def ends_of(key_range: KeyRange) -> list[bytes | None]:
    return [key_range.start, key_range.end]


def whole(attacker: Attacker) -> KeyRange:
    return KeyRange.of_prefix(uuid_of(attacker.place).bytes)


def done(told: Answer) -> Answer:
    """Say of what shows nothing whether it was done: the databases are none of the store that is looked at."""
    return told._replace(is_reached=told.status == 200)


@attack("read")
def read(attacker: Attacker) -> Answer:
    return ask(attacker, Kind.PRODUCT, "get", [product_of(attacker.place, "known")])


@attack("list")
def list_place(attacker: Attacker) -> Answer:
    return ask(attacker, Kind.PRODUCT, "list", ends_of(whole(attacker)), words="&values=1")


@attack("list across")
def list_across(attacker: Attacker) -> Answer:
    between = sorted([uuid_of(SHOP).bytes, uuid_of(attacker.place).bytes])
    key_range = KeyRange(between[0], KeyRange.of_prefix(between[1]).end)
    told = [
        ask(attacker, Kind.PRODUCT, "list", ends_of(key_range), words=f"&values=1{way}") for way in ("", "&reverse=1")
    ]
    return Answer(told[0].status, "".join(one.text for one in told))


@attack("list all")
def list_all(attacker: Attacker) -> Answer:
    told = [ask(attacker, kind, "list", [b"", None], words="&values=1") for kind in Kind]
    text = "".join(one.text for one in told)
    return Answer(told[0].status, text, is_reached=attacker.place.keyspace in text)


@attack("count")
def count(attacker: Attacker) -> Answer:
    told = ask(attacker, Kind.EVENT, "count", ends_of(whole(attacker)))
    return told._replace(is_reached=told.status == 200 and told.json()["count"] > 0)


@attack("write", writes=True)
def write(attacker: Attacker) -> Answer:
    over = ask(attacker, Kind.PRODUCT, "put", [product_of(attacker.place, "known")], [VALUE.encode()])
    new = ask(attacker, Kind.EVENT, "put", [number_key(uuid_of(attacker.place), (1, 1, 8))], NONE, words="&mode=new")
    return Answer(over.status, over.text + new.text, is_reached=200 in {over.status, new.status})


@attack("write beside", writes=True)
def write_beside(attacker: Attacker) -> Answer:
    places = {SHOP, attacker.place} if attacker.who == "shop" else {attacker.place}
    keys = sorted(number_key(uuid_of(place), (1, 1, 9)) for place in places)
    return done(ask(attacker, Kind.EVENT, "commit", NONE, keys, *[NONE] * 6))


@attack("delete", writes=True)
def delete(attacker: Attacker) -> Answer:
    return done(
        ask(attacker, Kind.EVENT, "commit", *[NONE] * 3, [number_key(uuid_of(attacker.place), EVENT)], *[NONE] * 4)
    )


@attack("delete all", writes=True)
def delete_all(attacker: Attacker) -> Answer:
    start, end = ends_of(whole(attacker))
    return done(ask(attacker, Kind.PRODUCT, "commit", *[NONE] * 4, [start], [end], NONE, NONE))


@attack("condition")
def condition(attacker: Attacker) -> Answer:
    told = ask(attacker, Kind.EVENT, "commit", [number_key(uuid_of(attacker.place), EVENT)], *[NONE] * 7)
    return told._replace(is_reached="commit_conflict" in told.text)


@attack("encodings")
def encodings(attacker: Attacker) -> Answer:
    key = product_of(attacker.place, "known")
    ring = "?ring=0000000000000000"
    paths = (
        f"/hepnos/databases/products/00/get{ring}", f"/hepnos/databases/PRODUCTS/0/get{ring}",
        f"/hepnos/databases/runs/..%2Fproducts/0/get{ring}", f"/hepnos//databases/products/0/get{ring}",
        f"/hepnos/databases/products/0/get/{ring}", f"/hepnos/databases/products%2F0/0/get{ring}",
        f"/hepnos/databases/products/-1/get{ring}", f"/hepnos/databases/products/0/get{ring}&ring=",
    )  # fmt: skip
    told = [attacker.ask("POST", path, pack([key]), **{"Content-Type": PACKED}) for path in paths]
    assert all(one.status < 500 for one in told), list(zip(paths, told, strict=True))
    plain = read(attacker)
    return Answer(plain.status, plain.text + "".join(one.text for one in told))
