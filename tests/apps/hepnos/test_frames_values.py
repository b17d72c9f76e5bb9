"""Lists with values in parts: each is sent as soon as it is read, as far as its client lets it, and as of one state."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from hashlib import sha256
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.frames import MORE, OPERATIONS, PART, Frame, FrameKind, frame, request_body
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.operations import digest_of
from keyplan.apps.hepnos.packed import unpack
from keyplan.apps.hepnos.remote import RemoteServer
from keyplan.apps.hepnos.remote_awaited import AwaitedFrames
from keyplan.apps.hepnos.remote_frames import PARTS_AHEAD, FramedCalls
from keyplan.apps.hepnos.service_parts import Credits
from keyplan.engine import ALL_KEYS, KeyRange
from keyplan.server import EdgeBounds, PolicyAccess
from keyplan.testing.engine_suite import eventually
from tests.apps.hepnos.served import HepnosServer, RawFrames, code_of

LIST = FrameKind.LIST
UUID = bytes(range(16))
TOKEN = "the-token-of-a-physicist-0123456789abcdef"
LARGE_AT = frozenset({700, 701, 1_900})
WHOLE = KeyRange.of_prefix(UUID)
AHEAD = 99


def product(number: int) -> bytes:
    return UUID + b"".join(part.to_bytes(8) for part in (1, 1, number)) + b"p#bytes"


PAIRS = {product(at): bytes([at % 251]) * (300_000 if at in LARGE_AT else 1_024) for at in range(2_500)}


@pytest.fixture(scope="module", params=["memory", "lmdb"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HepnosServer]:
    folder = tmp_path_factory.mktemp("values")
    url = "memory:frames-of-values" if request.param == "memory" else f"lmdb:{folder}/store"
    with HepnosServer({"store": url}) as running:
        RemoteServer.at(running.url).database(Kind.PRODUCT, 0).put_sorted([*PAIRS], [*PAIRS.values()])
        yield running


@pytest.fixture
def raw(server: HepnosServer) -> Iterator[RawFrames]:
    with RawFrames(server.connect()) as opened:
        yield opened


def where(server: HepnosServer, token: str | None = None) -> bytes:
    return bytes.fromhex(digest_of(RemoteServer.at(server.url, token=token).database(Kind.PRODUCT, 0).description))


def body(place: bytes, key_range: KeyRange, *, parts: int, reverse: bool = False, limit: int = 65_536) -> bytes:
    asked = {"kind": Kind.PRODUCT, "key_range": key_range, "limit": limit, "reverse": reverse, "values": True}
    return b"".join(request_body(OPERATIONS[LIST], asked, place, parts=parts))


def taken(raw: RawFrames, own: int) -> list[Frame]:
    parts = [raw.answer_to(own)]
    while parts[-1].flags & PART:
        parts.append(raw.answer_to(own))
    return parts


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [1, 300, 512, 65_536])
@pytest.mark.parametrize(
    "key_range",
    [WHOLE, KeyRange(product(5), product(6)), KeyRange(product(9), product(800)), KeyRange(product(2_500), None)],
)
def test_all_pairs_of_a_range_come_once_and_in_order(
    server: HepnosServer, raw: RawFrames, key_range: KeyRange, limit: int, *, reverse: bool
) -> None:
    credit = 40 if limit > 1 else 3_000
    own = raw.begin(LIST, body(where(server), key_range, parts=1, reverse=reverse, limit=limit))
    raw.send(frame(own, FrameKind.CREDIT, number=credit))
    parts = taken(raw, own)
    columns = [unpack(part.body, 2) for part in parts]
    found = [pair for keys, values in columns for pair in zip(keys, values, strict=True)]
    assert found == [pair for pair in sorted(PAIRS.items(), reverse=reverse) if pair[0] in key_range]
    assert all(part.flags == PART | MORE for part in parts[:-1])
    assert not parts[-1].flags
    assert all(len(keys) <= min(limit, 512) for keys, _ in columns)
    bytes_max = (512 if limit >= 512 else 2_048) << 10
    assert all(sum(len(value or b"") for value in values[:-1]) <= bytes_max for _, values in columns)


def test_parts_are_sent_as_far_as_there_is_credit_and_others_are_answered_meanwhile(
    server: HepnosServer, raw: RawFrames
) -> None:
    own = raw.begin(LIST, body(where(server), WHOLE, parts=2))
    parts = [raw.answer_to(own) for _ in range(2)]
    for _ in range(3):
        assert raw.ask(FrameKind.DATABASES).number == 200  # Why: had another part been sent, it would have come before.
        raw.send(frame(own, FrameKind.CREDIT, number=1))
        parts.append(raw.answer_to(own))
    raw.send(frame(own, FrameKind.CREDIT, number=AHEAD))
    parts += taken(raw, own)
    assert [key for part in parts for key in unpack(part.body, 2)[0]] == [*PAIRS]


@pytest.mark.parametrize("is_awaited", [False, True])
def test_clients_let_no_more_parts_be_sent_than_they_have_taken(
    server: HepnosServer, monkeypatch: pytest.MonkeyPatch, *, is_awaited: bool
) -> None:
    given: defaultdict[Credits, list[int]] = defaultdict(list)
    give = Credits.give

    def noted(credit: Credits, own: int, parts: int) -> None:
        given[credit].append(parts)
        give(credit, own, parts)

    monkeypatch.setattr(Credits, "give", noted)
    asked = {"kind": Kind.PRODUCT, "number": 0, "key_range": WHOLE, "limit": 50, "reverse": False, "values": False}
    ring = where(server).hex()

    def threaded() -> int:
        with closing(FramedCalls(server.url)) as frames:
            return len([*frames.ask_in_parts(OPERATIONS[LIST], asked, ring)])

    async def awaited() -> int:
        with closing(AwaitedFrames(server.url)) as frames:
            parts, number = frames.ask_in_parts(OPERATIONS[LIST], asked, ring), 0
            while await parts.next() is not None:
                number += 1
            return number

    taken = asyncio.run(awaited()) if is_awaited else threaded()
    assert taken == len(PAIRS) / 50
    own = max(given.values(), key=len)  # Why: the last word of a connection before may come late.
    assert taken - PARTS_AHEAD <= sum(own) < taken


def test_who_may_send_all_sends_two_mebibytes_before_others_have_their_turn(
    server: HepnosServer, raw: RawFrames
) -> None:
    request = frame(1, LIST, body(where(server), WHOLE, parts=AHEAD))
    raw.send(request + frame(2, LIST, body(where(server), WHOLE, parts=AHEAD)))
    came: list[Frame] = []
    while sum(not each.flags & PART for each in came) < 2:
        found = raw.receive()
        assert found is not None
        came.append(found)
    turns = [[*each] for _, each in groupby(came, key=attrgetter("id"))]
    assert len(turns) >= 4
    assert all(sum(len(each.body) for each in turn[:-1]) <= 2 << 20 for turn in turns)


@pytest.mark.parametrize("limit", [300, 65_536])
def test_lists_that_are_let_on_at_once_are_sent_one_after_the_other(limit: int) -> None:
    bounds = EdgeBounds(held_bytes_per_caller_max=8 << 20)
    with HepnosServer({"store": "memory:many-lists"}, bounds=bounds) as server:
        RemoteServer.at(server.url).database(Kind.PRODUCT, 0).put_sorted([*PAIRS], [*PAIRS.values()])
        place = where(server)
        with RawFrames(server.connect()) as raw, RawFrames(server.connect()) as other:
            lists = [raw.begin(LIST, body(place, WHOLE, parts=1, limit=limit)) for _ in range(30)]
            assert {raw.answer_to(own).flags for own in lists} == {PART | MORE}
            raw.send(b"".join(frame(own, FrameKind.CREDIT, number=AHEAD) for own in lists))
            unfinished = set(lists)
            while unfinished:
                # Why of another: it is refused when this caller holds what one may.
                assert other.ask(FrameKind.DATABASES).number == 200
                found = raw.receive()
                assert found is not None
                assert found.number == 200
                if not found.flags & PART:
                    unfinished.remove(found.id)


@pytest.mark.parametrize("limit", [300, 65_536])
def test_parts_that_a_client_does_not_take_are_what_its_caller_holds(limit: int) -> None:
    bounds = EdgeBounds(held_bytes_per_caller_max=200 << 10)
    with HepnosServer({"store": "memory:untaken-parts"}, bounds=bounds) as server:
        products = RemoteServer.at(server.url).database(Kind.PRODUCT, 0)
        for begin in range(0, 2_500, 100):  # Why: what is written is held, too.
            products.put_sorted([product(begin + at) for at in range(100)], [bytes(1_024)] * 100)
        place = where(server)
        with RawFrames(server.connect()) as raw, RawFrames(server.connect()) as other:
            unfinished = {raw.begin(LIST, body(place, WHOLE, parts=AHEAD, limit=limit)) for _ in range(12)}
            eventually(lambda: other.ask(FrameKind.DATABASES).number == 429)
            while unfinished:
                found = raw.receive()
                assert found is not None
                if not found.flags & PART:
                    unfinished.remove(found.id)
            eventually(lambda: other.ask(FrameKind.DATABASES).number == 200)


@pytest.mark.parametrize("limit", [300, 65_536])
def test_no_part_is_read_before_it_may_be_sent(limit: int) -> None:
    with HepnosServer({"store": "memory:unread-parts"}) as server:
        products = RemoteServer.at(server.url).database(Kind.PRODUCT, 0)
        products.put_sorted([*PAIRS], [*PAIRS.values()])
        with RawFrames(server.connect()) as raw:
            own = raw.begin(LIST, body(where(server), WHOLE, parts=1, limit=limit))
            assert len(unpack(raw.answer_to(own).body, 2)[0]) < 400
            assert raw.ask(FrameKind.DATABASES).number == 200  # Why: behind it the list has had its turn.
            products.put_sorted([product(400)], [b"new"])
            raw.send(frame(own, FrameKind.CREDIT, number=1))
            assert b"new" in unpack(raw.answer_to(own).body, 2)[1]


def test_one_that_is_not_wanted_any_more_ends(server: HepnosServer, raw: RawFrames) -> None:
    own = raw.begin(LIST, body(where(server), WHOLE, parts=1))
    assert raw.answer_to(own).flags == PART | MORE
    raw.send(frame(own, FrameKind.CANCEL))
    last = raw.answer_to(own)
    assert (last.number, code_of(last)) == (499, "cancelled")
    assert raw.ask(FrameKind.DATABASES).number == 200


@pytest.mark.parametrize("limit", [10, 65_536])
def test_one_that_is_cancelled_when_its_last_part_is_sent_is_answered_once(
    server: HepnosServer, raw: RawFrames, limit: int
) -> None:
    """What comes together lets the list send its last part, and cancels it behind that."""
    own = raw.begin(LIST, body(where(server), KeyRange(product(0), product(20)), parts=1, limit=limit))
    assert raw.answer_to(own).flags == PART | MORE
    raw.send(frame(own, FrameKind.CREDIT, number=1) + frame(own, FrameKind.CANCEL))
    last = raw.receive()
    assert last is not None
    assert (last.id, last.flags) == (own, 0)
    other = raw.begin(FrameKind.DATABASES)
    found = raw.receive()
    assert found is not None
    assert found.id == other


def test_what_is_written_between_two_parts_is_seen_and_what_is_deleted_is_told() -> None:
    with HepnosServer({"store": "memory:changed-values"}) as server, hepnos.open(server.url) as store:
        dataset = store.root.ensure("a")
        dataset.create_run(1).create_subrun(1).create_events(range(1_000))
        numbers = [[1] * 1_000, [1] * 1_000, range(1_000)]
        hepnos.store_products(dataset, "n", bytes, numbers, [at.to_bytes(2) for at in range(1_000)])
        with RawFrames(server.connect()) as raw:
            lists = [
                raw.begin(LIST, body(where(server), KeyRange.of_prefix(dataset.uuid.bytes), parts=1)) for _ in range(2)
            ]
            first = [unpack(raw.answer_to(own).body, 2)[1] for own in lists]
            assert {len(values) for values in first} < set(range(256, 512))
            hepnos.Event(dataset, (1, 1, 999)).store("n", b"new")
            raw.send(frame(lists[0], FrameKind.CREDIT, number=AHEAD))
            rest = [value for part in taken(raw, lists[0]) for value in unpack(part.body, 2)[1]]
            assert (len(first[0]) + len(rest), rest[-1]) == (1_000, b"new")
            dataset.delete()
            raw.send(frame(lists[1], FrameKind.CREDIT, number=AHEAD))
            last = taken(raw, lists[1])[-1]
            assert (last.number, code_of(last)) == (410, "dataset_deleted")


def test_nobody_is_sent_on_what_they_may_not_read_any_more(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"

    def grant(*numbers: int) -> None:
        seen = ", ".join(f'"prefix:0x{(b"hepnos/products/" + product(number)[:-8]).hex()}"' for number in numbers)
        grants = {"ada": '"everything"', "bob": seen}
        file.write_text(
            "".join(
                f'[principals.{name}]\ntokens = ["sha256:{sha256((TOKEN + name).encode()).hexdigest()}"]\n'
                f"read = [{granted}]\n" + ('write = ["everything"]\n' if name == "ada" else "")
                for name, granted in grants.items()
            )
        )
        file.chmod(0o600)

    grant(0, 256, 512)
    with HepnosServer({"store": "memory:seen-values"}, access=PolicyAccess.of_file(file)) as server:
        products = RemoteServer.at(server.url, token=f"{TOKEN}ada").database(Kind.PRODUCT, 0)
        products.put_sorted([*PAIRS], [*PAIRS.values()])
        place = where(server, f"{TOKEN}bob")

        def groups(parts: list[Frame]) -> set[int]:
            keys = [key or b"" for part in parts if part.number == 200 for key in unpack(part.body, 2)[0]]
            return {int.from_bytes(key[32:40]) >> 8 for key in keys}

        def seen() -> set[int]:
            with RawFrames(server.connect(), f"{TOKEN}bob") as raw:
                return groups(taken(raw, raw.begin(LIST, body(place, ALL_KEYS, parts=AHEAD))))

        assert seen() == {0, 1, 2}
        with RawFrames(server.connect(), f"{TOKEN}bob") as raw:
            own = raw.begin(LIST, body(place, ALL_KEYS, parts=1))
            assert groups([raw.answer_to(own)]) == {0}
            grant(0)
            eventually(lambda: seen() == {0})
            with suppress(OSError):  # Why: a connection ends when a grant of its caller was taken away.
                raw.send(frame(own, FrameKind.CREDIT, number=AHEAD))
            assert groups([part for part in raw.rest() if part.id == own]) <= {0}
