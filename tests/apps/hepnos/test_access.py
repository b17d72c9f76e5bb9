"""Two experiments and a reader behind one server with an access file: each has databases of what they are granted."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import httpx
import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.keys import Kind, dataset_key, product_item, product_suffix
from keyplan.apps.hepnos.operations import MORE_HEADER, digest_of
from keyplan.apps.hepnos.packed import FINGERPRINT_BYTES, PACKED, pack, unpack
from keyplan.apps.hepnos.service_callers import reach_in
from keyplan.apps.hepnos.types import product_type
from keyplan.engine import ALL_KEYS, Area, KeyRange, Reach
from keyplan.errors import AccessDeniedError, InvalidInputError, StoreMissingError
from keyplan.ring import OWN_PREFIX, RING_KEY, SHARED_PREFIX
from keyplan.server import PolicyAccess
from keyplan.testing.engine_suite import eventually
from tests.apps.hepnos.served import HepnosServer

NAMES: Final = ("ada", "nova", "dune", "reader", "whole", "events", "short", "store", "nothing")
TOKENS: Final = {name: f"the-token-of-{name}-0123456789abcdef" for name in NAMES}
THERE: Final = b"".join(number.to_bytes(8) for number in (1, 1, 7))
ABSENT: Final = b"".join(number.to_bytes(8) for number in (1, 1, 8))


def place(kind: Kind, key: bytes) -> str:
    return f"prefix:0x{b'hepnos/'.hex()}{kind.value.encode().hex()}{b'/'.hex()}{key.hex()}"


def of_experiment(uuid: UUID, name: str) -> list[str]:
    return [
        place(Kind.DATASET, dataset_key(name)),
        *(place(kind, uuid.bytes) for kind in Kind if kind is not Kind.DATASET),
    ]


def principal(name: str, **grants: list[str]) -> str:
    digest = sha256(TOKENS[name].encode()).hexdigest()
    lines = "".join(f"{act} = {on}\n" for act, on in grants.items())
    return f'[principals.{name}]\ntokens = ["sha256:{digest}"]\n{lines}\n'


class Site:
    """What the server has, by name of the experiment; and who asks it."""

    def __init__(self, server: HepnosServer, file: Path, uuids: dict[str, UUID], client: httpx.Client) -> None:
        self.server = server
        self.file = file
        self.uuids = uuids
        self.client = client

    def open(self, name: str) -> hepnos.DataStore:
        return hepnos.open(self.server.url, token=TOKENS[name])

    def ask(self, name: str, kind: Kind, what: str, *columns: Any, **words: Any) -> httpx.Response:
        whose = {"Authorization": f"Bearer {TOKENS[name]}"}
        stores = self.client.get("/hepnos/databases", headers=whose).json()["databases"]
        # Why of a ring that nobody has: who sees no databases knows none.
        known = stores[kind.value][0]["description"] if kind.value in stores else "{}"
        ring = digest_of(known.encode())
        path = f"/hepnos/databases/{kind.value}/0/{what}"
        headers = {"Content-Type": PACKED, **whose}
        return self.client.post(path, params={"ring": ring, **words}, content=pack(*columns), headers=headers)

    def keys(self, name: str, kind: Kind, key_range: KeyRange = ALL_KEYS) -> list[bytes]:
        answer = self.ask(name, kind, "list", [key_range.start, key_range.end])
        assert answer.status_code == 200, answer.text
        assert answer.headers[MORE_HEADER] == "0"
        (keys,) = unpack(answer.content, 1)
        return [key for key in keys if key is not None and key != RING_KEY]


@pytest.fixture(params=["memory:site", "lmdb:"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    url = f"lmdb:{tmp_path}/store?durability=none" if request.param == "lmdb:" else f"memory:{tmp_path.name}"
    file = tmp_path / "access.toml"
    everything = {act: ["everything"] for act in ("read", "write", "administer")}
    file.write_text(principal("ada", **everything))
    file.chmod(0o600)
    with HepnosServer({"store": url}, access=PolicyAccess.of_file(file)) as server:
        uuids: dict[str, UUID] = {}
        with hepnos.open(server.url, token=TOKENS["ada"]) as store:
            for name in ("nova", "dune"):
                dataset = store.root.ensure(name)
                dataset.create_run(1).create_subrun(1).create_event(7).store("energy", 1.5)
                assert dataset.uuid is not None
                uuids[name] = dataset.uuid
        grants = {name: of_experiment(uuid, name) for name, uuid in uuids.items()}
        all_of_it = ["prefix:hepnos/"]
        text = "".join(
            (
                principal("ada", **everything),
                *(principal(name, read=own, write=own) for name, own in grants.items()),
                principal("reader", read=all_of_it),
                principal("whole", read=all_of_it, write=all_of_it),
                principal("events", read=["prefix:hepnos/events/"]),
                principal("short", read=["prefix:hep"]),
                principal("store", read=["prefix:events", "prefix:hepnos0", "keyspace:hepnos"]),
                principal("nothing", audit=["everything"], write=all_of_it),
            )
        )
        file.write_text(text)
        assert len(PolicyAccess.of_file(file).policy.principals) == len(NAMES)
        with httpx.Client(base_url=server.url) as client:
            found = Site(server, file, uuids, client)
            eventually(lambda: databases_of(found, "nova").status_code == 200)
            yield found


def databases_of(site: Site, name: str) -> httpx.Response:
    return site.client.get("/hepnos/databases", headers={"Authorization": f"Bearer {TOKENS[name]}"})


# ---- everybody has their own ---------------------------------------------------------------------------------------------


def test_each_experiment_has_a_store_of_its_own_behind_one_url(site: Site) -> None:
    for name, other in (("nova", "dune"), ("dune", "nova")):
        with site.open(name) as store:
            assert [each.path for each in store.all_datasets()] == [name]
            own = store[name]
            assert [each.numbers for each in own.events()] == [(1, 1, 7)]
            assert own.runs[1].subruns[1].events[7].load("energy", float) == 1.5
            own.create_run(2).create_subrun(3).create_event(4).store("energy", 2.5)
            assert own.runs[2].subruns[3].events[4].load("energy", float) == 2.5
            with pytest.raises(hepnos.MissingError):
                store[other]
    with site.open("whole") as store:
        assert sorted(each.path for each in store.all_datasets()) == ["dune", "nova"]
        assert store["nova"].events().count() == 2


def test_lists_and_counts_end_where_the_grants_do(site: Site) -> None:
    for kind in Kind:
        everybodys = site.keys("ada", kind)
        own = [site.keys(name, kind) for name in ("nova", "dune")]
        assert sorted(own[0] + own[1]) == everybodys
        assert all(own)
        assert site.keys("reader", kind) == site.keys("short", kind) == everybodys
        counted = [site.ask(name, kind, "count", [b"", None]).json()["count"] for name in ("ada", "nova", "dune")]
        # Why one more in each: the ring's description, which is everybody's.
        assert counted == [len(everybodys) + 1, len(own[0]) + 1, len(own[1]) + 1]


def test_many_at_once_are_written_within_the_grants(site: Site) -> None:
    with site.open("nova") as store:
        subrun = store["nova"].runs[1].subruns[1]
        assert subrun.create_events(range(500)) == 499
        with store.batch() as batch:
            for number in range(500, 600):
                subrun.create_event(number, into=batch).store("n", number, into=batch)
        assert subrun.events.count() == 600
        assert subrun.events[555].load("n", int) == 555
    with site.open("dune") as store:
        assert store["dune"].events().count() == 1


# ---- nobody has another's ------------------------------------------------------------------------------------------------


def attacks(uuid: UUID, name: str) -> dict[str, tuple[Kind, str, tuple[Any, ...], dict[str, Any]]]:
    """Return what somebody may try on what is another's; what removes comes last."""
    event, other = uuid.bytes + THERE, uuid.bytes + ABSENT
    product = product_item(uuid, (1, 1, 7)) + product_suffix("energy", product_type(float).name)
    whole = KeyRange.of_prefix(uuid.bytes)
    none: list[bytes] = []
    ends = [whole.start, whole.end]
    return {
        "an event": (Kind.EVENT, "get", ([event],), {}),
        "a product": (Kind.PRODUCT, "get", ([product],), {}),
        "a data set": (Kind.DATASET, "get", ([dataset_key(name)],), {}),
        "a list": (Kind.EVENT, "list", (ends,), {}),
        "a list from the end": (Kind.EVENT, "list", (ends,), {"reverse": "1", "limit": "1"}),
        "a list with values": (Kind.PRODUCT, "list", (ends,), {"values": "1"}),
        "a count": (Kind.EVENT, "count", (ends,), {}),
        "a guess that it is not there": (Kind.EVENT, "commit", ([event], *[none] * 7), {}),
        "a guess what it is": (Kind.EVENT, "commit", (*[none] * 6, [event], [bytes(FINGERPRINT_BYTES)]), {}),
        "a write": (Kind.EVENT, "put", ([other], none), {}),
        "a write over what is there": (Kind.PRODUCT, "put", ([product], [b"stolen"]), {}),
        "a write unless it is there": (Kind.EVENT, "put", ([event], none), {"mode": "new"}),
        "a write if it is there": (Kind.PRODUCT, "put", ([product], [b"stolen"]), {"mode": "exist"}),
        "a commit": (Kind.EVENT, "commit", (none, [other], *[none] * 6), {}),
        "a removal": (Kind.EVENT, "commit", (*[none] * 3, [event], *[none] * 4), {}),
        "a removal of a range": (Kind.EVENT, "commit", (*[none] * 4, ends[:1], ends[1:], none, none), {}),
    }


def state(site: Site) -> dict[Kind, list[bytes]]:
    return {kind: site.keys("ada", kind) for kind in Kind}


@pytest.mark.parametrize("name", ["dune", "store", "nothing"])
def test_what_is_anothers_is_not_there_and_is_not_written(site: Site, name: str) -> None:
    before = state(site)
    never = UUID(bytes=b"never was" + bytes(7))
    for attack, asked in attacks(site.uuids["nova"], "nova").items():
        kind, what, columns, words = attacks(never, "none")[attack]
        got = site.ask(name, asked[0], asked[1], *asked[2], **asked[3])
        unknown = site.ask(name, kind, what, *columns, **words)
        if asked[1] in {"get", "list", "count"} and name == "dune":
            assert (got.status_code, len(got.content)) == (200, len(unknown.content)), attack
            assert site.uuids["nova"].bytes not in got.content
        elif attack == "a write if it is there" and name == "dune":
            assert (got.status_code, got.json()) == (200, {"new": 0})
        else:
            assert got.status_code == unknown.status_code, attack
            assert got.json()["error"]["code"] == unknown.json()["error"]["code"], attack
            assert got.status_code in ({403, 409} if name == "dune" else {404}), attack
    assert state(site) == before


def test_each_attack_gets_the_owner_what_it_is_for(site: Site) -> None:
    uuid, never = site.uuids["nova"], attacks(UUID(bytes=b"never was" + bytes(7)), "none")
    for attack, (kind, what, columns, words) in attacks(uuid, "nova").items():
        before = state(site)
        answer = site.ask("nova", kind, what, *columns, **words)
        if attack.startswith("a guess"):
            assert answer.status_code == 409, attack
            continue
        assert answer.status_code == 200, (attack, answer.text)
        if what in {"get", "list", "count"}:
            _, _, elsewhere, _ = never[attack]
            assert answer.content != site.ask("nova", kind, what, *elsewhere, **words).content, attack
        elif attack in {"a write", "a removal", "a removal of a range"}:
            assert state(site) != before, attack


def test_who_may_read_alone_writes_nothing(site: Site) -> None:
    before = state(site)
    with site.open("reader") as store:
        assert store["nova"].events().count() == 1
        with pytest.raises(AccessDeniedError, match="reader"):
            store["nova"].create_run(9)
        with pytest.raises(AccessDeniedError):
            store.root.ensure("other")
    assert state(site) == before


def test_a_kind_of_which_nothing_is_granted_was_never_there(site: Site) -> None:
    def kinds(name: str) -> set[str]:
        answer = databases_of(site, name)
        assert answer.status_code == 200
        return set(answer.json()["databases"])

    every = {kind.value for kind in Kind}
    assert kinds("ada") == kinds("nova") == kinds("short") == every
    assert kinds("events") == {"events"}
    # Why "nothing", which may write: what may not be read cannot be written either.
    assert kinds("store") == kinds("nothing") == set()
    assert len(site.keys("events", Kind.EVENT)) == 2
    assert site.ask("events", Kind.RUN, "list", [b"", None]).status_code == 404
    for name in ("events", "store", "nothing"):
        with pytest.raises(StoreMissingError):
            site.open(name)
    answer = site.client.get("/hepnos/databases")
    assert answer.status_code == 401


def test_a_grant_that_is_taken_away_ends_with_the_next_request(site: Site) -> None:
    with site.open("nova") as store:
        events = store["nova"].events()
        assert events.count() == 1
        text = site.file.read_text()
        own, left = text.index("[principals.nova]"), text.index("[principals.dune]")
        site.file.write_text(text[:own] + principal("nova", read=["prefix:hepnos/datasets/"]) + text[left:])
        eventually(lambda: site.ask("nova", Kind.EVENT, "count", [b"", None]).status_code == 404)
        with pytest.raises(InvalidInputError, match="no such database"):
            store["nova"].runs[1].subruns[1].create_event(9)


# ---- what grants come to -------------------------------------------------------------------------------------------------


def test_what_is_granted_of_the_servers_store_is_cut_and_stripped() -> None:
    fence = (b"\x00kp\x03x\x00", b"1")
    granted = Reach(
        [
            Area(KeyRange.of_prefix(b"hepnos/events/ab"), can_write=True),
            Area(KeyRange(b"hepnos/events/x", b"hepnos/f")),
            Area(KeyRange(b"hepnos/q", b"hepnos/runs/c")),
            Area(KeyRange.of_prefix(b"hepnos/products/"), can_write=True, fence=fence),
            Area(KeyRange.of_prefix(b"unrelated"), can_write=True),
        ]
    )
    ring = Area(KeyRange.of_key(RING_KEY))
    ab = Area(KeyRange(b"ab", b"ac"), can_write=True)
    assert reach_in(Kind.EVENT, granted) == Reach([ring, ab, Area(KeyRange(b"x", None))])
    assert reach_in(Kind.RUN, granted) == Reach([ring, Area(KeyRange(b"", b"c"))])
    assert reach_in(Kind.PRODUCT, granted) == reach_in(Kind.SUBRUN, granted) == Reach([ring])


KEYS = (b"", b"\x00\x00", OWN_PREFIX, RING_KEY, SHARED_PREFIX + b"x", b"\x00\x01")


def test_the_rings_description_is_read_by_all_and_written_by_nobody() -> None:
    for granted in (Reach.everything(), Reach([Area(KeyRange.of_prefix(b"hepnos/"), can_write=True)])):
        reach = reach_in(Kind.EVENT, granted)
        assert reach.at(RING_KEY) is not None
        assert {key: stretch is not None and stretch.write == () for key in KEYS if [stretch := reach.at(key)]} == {
            b"": True, b"\x00\x00": True, OWN_PREFIX: False, RING_KEY: False, SHARED_PREFIX + b"x": False, b"\x00\x01": True
        }  # fmt: skip
