"""Frames: the bytes, what a server makes of any bytes at all, and connections that end in the middle."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as st

from keyplan.apps import hepnos
from keyplan.apps.hepnos.frames import (
    FRAMES_PATH,
    MORE,
    OPERATIONS,
    PART,
    BrokenFrameError,
    Frame,
    FrameKind,
    FrameReader,
    frame,
    request_body,
)
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.operations import digest_of
from keyplan.apps.hepnos.packed import pack, unpack
from keyplan.apps.hepnos.remote import RemoteServer
from keyplan.audit_log import AuditLog
from keyplan.engine import SYSTEM_CLOCK, KeyRange
from keyplan.errors import EngineUnavailableError, UnauthorizedError
from keyplan.ring import RING_KEY
from keyplan.server import Access, EdgeBounds, PolicyAccess, Role, Token
from keyplan.testing.engine_suite import eventually
from tests.apps.hepnos.served import HepnosServer, RawFrames, code_of
from tests.servers.authority import Authority

GET, LIST, PUT, COUNT = FrameKind.GET, FrameKind.LIST, FrameKind.PUT, FrameKind.COUNT
UUID = bytes(range(16))
TOKEN = "the-token-of-a-physicist-0123456789abcdef"


def event_keys(number: int) -> list[bytes]:
    return [UUID + b"".join(part.to_bytes(8) for part in (1, 1, at)) for at in range(number)]


PRODUCT = event_keys(1)[0] + b"label#type"


# ---- bytes -----------------------------------------------------------------------------------------------------------------

FRAMES = st.builds(
    Frame,
    st.integers(1, 2**32 - 1),
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(0, 65_535),
    st.binary(max_size=80),
)


@given(st.lists(FRAMES, max_size=8), st.lists(st.integers(1, 40), max_size=30))
def test_frames_are_the_same_in_whatever_pieces_they_come(frames: list[Frame], cuts: list[int]) -> None:
    data = b"".join(frame(one.id, one.kind, one.body, flags=one.flags, number=one.number) for one in frames)
    ends = [sum(cuts[:at]) for at in range(len(cuts) + 1)]
    pieces = [data[begin:end] for begin, end in pairwise([*ends, max(len(data), ends[-1])])]
    reader = FrameReader()
    assert [found for piece in pieces for found in reader.feed(piece)] == frames
    assert not reader.has_begun


def test_a_frame_that_is_passed_over_is_not_kept_and_the_next_one_is_read() -> None:
    reader = FrameReader()
    first, second = frame(1, GET, b"x" * 100), frame(2, GET, b"y")
    assert reader.feed(first[:50]) == []
    assert (reader.body_bytes_of_begun, reader.begun) == (100, Frame(1, GET, 0, 0, b""))
    reader.skip_begun()
    assert reader.feed(first[50:] + second) == [Frame(2, GET, 0, 0, b"y")]


def test_what_is_no_frame_or_too_large_is_told_before_it_is_kept() -> None:
    with pytest.raises(BrokenFrameError, match="at least 8 bytes"):
        FrameReader().feed(bytes(12))
    with pytest.raises(BrokenFrameError, match="at most 10 bytes, and not 11") as caught:
        FrameReader(10).feed(frame(7, GET, bytes(11))[:12])
    assert (caught.value.id, caught.value.is_too_large) == (7, True)


def test_the_bytes_of_a_frame_are_those_of_the_reference() -> None:
    data = frame(
        7, GET, *request_body(OPERATIONS[GET], {"kind": Kind.EVENT, "keys": [b"ab"]}, bytes(range(8))), number=3
    )
    page = (Path(__file__).parents[3] / "docs/reference/hepnos-frames.md").read_text()
    assert data.hex() in "".join(page.split())


# ---- a server, and whoever comes -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[HepnosServer]:
    with HepnosServer({"store": "memory:frames", "log-each": "2"}) as running:
        database = RemoteServer.at(running.url).database(Kind.EVENT, 0)
        database.put_sorted(event_keys(3_000))
        yield running


@pytest.fixture
def raw(server: HepnosServer) -> Iterator[RawFrames]:
    with RawFrames(server.connect()) as opened:
        assert opened.status == 101
        yield opened


def where(server: HepnosServer, kind: Kind = Kind.EVENT) -> bytes:
    return bytes.fromhex(digest_of(RemoteServer.at(server.url).database(kind, 0).description))


def body(
    server: HepnosServer, kind: FrameKind, *, parts: int = 0, at: Kind = Kind.EVENT, **arguments: object
) -> tuple[bytes, ...]:
    return request_body(OPERATIONS[kind], {"kind": at, **arguments}, where(server, at), parts=parts)


@trying(max_examples=60, deadline=None)
@given(st.one_of(st.binary(max_size=400), st.lists(FRAMES, min_size=1, max_size=12)))
def test_any_bytes_are_answered_or_told_and_end_nothing_but_their_connection(
    server: HepnosServer, given_bytes: bytes | list[Frame]
) -> None:
    if isinstance(given_bytes, list):
        ordered = sorted({one.id: one for one in given_bytes}.values())
        given_bytes = b"".join(frame(one.id, one.kind, one.body, number=one.number) for one in ordered)
    with RawFrames(server.connect()) as raw:
        raw.send(given_bytes)
        raw.shut()
        for found in raw.rest():
            assert found.kind in {FrameKind.ANSWER, FrameKind.FAREWELL}
            assert found.kind == FrameKind.FAREWELL or found.number < 500, found
    with RawFrames(server.connect()) as raw:
        assert raw.ask(FrameKind.DATABASES).number == 200


def test_a_failure_is_what_it_is_over_http(server: HepnosServer, raw: RawFrames) -> None:
    where_bytes, _ = body(server, PUT, keys=[], values=[])
    told = [
        raw.ask(18),
        raw.ask(GET, b"short"),
        raw.ask(GET, b"\x09" + bytes(15), pack([b"x"])),
        raw.ask(GET, *body(server, GET, keys=[b"x"]), number=9),
        raw.ask(GET, b"\x03" + bytes(15), pack([b"x"])),
        raw.ask(LIST, *body(server, LIST, key_range=KeyRange(b"", None), limit=0)),
        raw.ask(PUT, *body(server, PUT, keys=[RING_KEY], values=[])),
        raw.ask(PUT, b"\x03\x07" + where_bytes[2:], pack([], [])),
        raw.ask(COUNT, *body(server, COUNT, key_range=KeyRange(b"", None))[:1], b"rubbish"),
    ]
    assert [one.number for one in told] == [404, 400, 400, 404, 409, 400, 400, 400, 400]
    codes = [code_of(one) for one in told]
    assert [codes[at] for at in (0, 3, 4)] == ["not_found", "not_found", "ring_mismatch"]
    assert {*codes} == {"not_found", "ring_mismatch", "invalid_input"}
    assert raw.ask(FrameKind.DATABASES).number == 200


def test_ids_ascend_and_a_connection_whose_do_not_is_ended(raw: RawFrames) -> None:
    raw.next_id = 7
    assert raw.ask(FrameKind.DATABASES).number == 200
    raw.next_id = 7
    raw.begin(FrameKind.DATABASES)
    refused, farewell = raw.rest()
    assert (refused.number, code_of(refused)) == (400, "bad_frame")
    assert (farewell.kind, farewell.id) == (FrameKind.FAREWELL, 7)


def test_a_frame_that_is_too_large_is_refused_by_its_head_alone(raw: RawFrames) -> None:
    raw.send((2**31).to_bytes(4, "little") + frame(1, PUT)[4:])
    refused, farewell = raw.rest()
    assert (refused.id, refused.number, code_of(refused)) == (1, 413, "body_too_large")
    assert (farewell.kind, farewell.id) == (FrameKind.FAREWELL, 0)


def test_hundreds_of_requests_in_one_write_are_all_answered(server: HepnosServer, raw: RawFrames) -> None:
    one, counted = body(server, GET, keys=event_keys(1)), body(server, COUNT, key_range=KeyRange.of_prefix(UUID))
    asked = [frame(at, COUNT, *counted) if at % 5 == 0 else frame(at, GET, *one) for at in range(1, 500)]
    raw.send(b"".join(asked))
    told: dict[int, Frame] = {}
    while len(told) < len(asked):
        found = raw.receive()
        assert found is not None
        told[found.id] = found
    assert {found.number for found in told.values()} == {200}
    assert {bytes(told[number].body) for number in told if number % 5} == {pack([b""])}
    assert {bytes(told[number].body) for number in told if not number % 5} == {b'{"count":3000}'}


def test_parts_are_sent_as_far_as_there_is_credit_and_others_are_answered_meanwhile(
    server: HepnosServer, raw: RawFrames
) -> None:
    pages = body(server, LIST, parts=2, key_range=KeyRange.of_prefix(UUID), limit=1_000)
    own = raw.begin(LIST, *pages)
    parts = [raw.answer_to(own) for _ in range(2)]
    assert raw.ask(FrameKind.DATABASES).number == 200  # Why: had a third part been sent, it would have come before.
    raw.send(frame(own, FrameKind.CREDIT, number=9))
    while parts[-1].flags & PART:
        parts.append(raw.answer_to(own))
    assert [key for part in parts for key in unpack(part.body, 1)[0]] == event_keys(3_000)
    again = raw.begin(LIST, *pages)
    assert raw.answer_to(again).flags & PART
    raw.send(frame(again, FrameKind.CANCEL))
    told = [raw.answer_to(again) for _ in range(2)]
    assert (told[-1].number, code_of(told[-1])) == (499, "cancelled")


def test_lists_that_wait_for_their_client_keep_no_others_from_being_answered(
    server: HepnosServer, raw: RawFrames
) -> None:
    pages = body(server, LIST, parts=1, key_range=KeyRange.of_prefix(UUID), limit=10)
    lists = [raw.begin(LIST, *pages) for _ in range(70)]
    asked, told = raw.begin(FrameKind.DATABASES), [raw.receive()]
    while told[-1] is not None and told[-1].id != asked:
        told.append(raw.receive())
    assert all(one is not None and one.flags & PART for one in told[:-1])  # Why: none was ended to make room.
    raw.send(b"".join(frame(own, FrameKind.CANCEL) for own in lists))
    assert raw.ask(FrameKind.DATABASES).number == 200


def test_a_connection_is_for_frames_only_if_it_is_asked_for(server: HepnosServer) -> None:
    with RawFrames(server.connect(), Upgrade="websocket") as raw:
        assert raw.status == 426
        assert b"upgrade: keyplan-hepnos/1" in raw.head.lower()
    assert httpx.get(server.url + FRAMES_PATH).json()["error"]["code"] == "upgrade_required"


# ---- bounds ----------------------------------------------------------------------------------------------------------------


def test_who_is_slow_or_idle_is_told_so_and_ended() -> None:
    bounds = EdgeBounds(body_seconds_max=0.2, idle_seconds_max=0.3)
    with HepnosServer({"store": "memory:slow-frames"}, bounds=bounds) as server:
        with RawFrames(server.connect()) as raw:
            raw.send(frame(1, GET, bytes(100))[:30])
            refused, farewell = raw.rest()
            assert (refused.id, refused.number, code_of(refused)) == (1, 408, "too_slow")
        with RawFrames(server.connect()) as raw:
            (farewell,) = raw.rest()
            assert (farewell.kind, farewell.id) == (FrameKind.FAREWELL, 0)
        with hepnos.open(server.url) as store:
            dataset = store.root.ensure("a")
            for number in (1, 2):
                eventually(lambda: server.connections == 0)
                dataset.create_run(number)  # Why no failure: what was not begun is asked again, writes too.
            assert [run.number for run in dataset.runs] == [1, 2]


def test_a_list_that_is_gone_on_with_late_is_asked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyplan.apps.hepnos.remote_frames.PARTS_AHEAD", 1)  # Why: so few are ahead of a short list.
    bounds = EdgeBounds(unread_seconds_max=0.2)
    with HepnosServer({"store": "memory:late-frames"}, bounds=bounds) as server, hepnos.open(server.url) as store:
        subrun = store.root.ensure("a").create_run(1).create_subrun(1)
        subrun.create_events(range(40_000))
        listed = iter(subrun.events.numbers())
        assert [next(listed) for _ in range(100)] == list(range(100))
        with RawFrames(server.connect()) as raw:  # Why: it begins later, and so ends later than the other.
            own = raw.begin(LIST, *body(server, LIST, parts=1, key_range=KeyRange(b"", None), limit=1_000))
            assert raw.answer_to(own).flags & PART
            last = raw.answer_to(own)
            assert (last.number, last.flags, last.body) == (200, MORE, pack([]))
        assert list(listed) == list(range(100, 40_000))


def test_what_would_be_too_much_held_is_refused_unread_and_the_connection_goes_on() -> None:
    bounds = EdgeBounds(held_bytes_per_caller_max=1 << 20, body_seconds_max=0.2)
    with HepnosServer({"store": "memory:held-frames"}, bounds=bounds) as server, RawFrames(server.connect()) as raw:
        own = raw.begin(PUT, bytes(2 << 20))
        told = raw.answer_to(own)
        assert (told.number, code_of(told)) == (429, "too_much_held")
        database = RemoteServer.at(server.url).database(Kind.PRODUCT, 0)
        database.put_sorted([PRODUCT], [bytes(1 << 19)])
        told = raw.ask(GET, *body(server, GET, at=Kind.PRODUCT, keys=[PRODUCT] * 100))
        assert (told.number, code_of(told)) == (429, "too_much_held")
        assert len(raw.ask(GET, *body(server, GET, at=Kind.PRODUCT, keys=[PRODUCT])).body) == (1 << 19) + 8


def test_values_of_thousands_of_keys_come_in_parts_of_what_one_caller_may_hold() -> None:
    bounds = EdgeBounds(held_bytes_per_caller_max=24 << 20)
    with HepnosServer({"store": "memory:frames-in-parts"}, bounds=bounds) as server:
        database = RemoteServer.at(server.url).database(Kind.PRODUCT, 0)
        database.put_sorted([PRODUCT], [b"v" * 8_192])
        keys = [PRODUCT, PRODUCT + b"s"] * 4_000
        assert database.values(keys) == [b"v" * 8_192, None] * 4_000


def test_a_page_is_bounded_where_large_values_stand_behind_small_ones() -> None:
    with HepnosServer({"store": "memory:frames-of-sizes"}) as server:
        database = RemoteServer.at(server.url).database(Kind.PRODUCT, 0)
        keys = [PRODUCT + b"%04d" % number for number in range(300)]
        database.put_sorted(keys, [b"small"] * 280 + [bytes(1 << 20)] * 20)
        pages = []
        key_range, has_more = KeyRange.of_prefix(PRODUCT), True
        while has_more:
            found, values, has_more = database.page(key_range, 1_000, reverse=False, has_values=True)
            pages.append(sum(map(len, values)))
            key_range = KeyRange(found[-1] + b"\0", key_range.end)
    assert sum(pages) == 280 * 5 + (20 << 20)
    assert max(pages) <= (8 << 20) + (2 << 20)


# ---- who asks --------------------------------------------------------------------------------------------------------------


def test_a_token_that_is_taken_away_ends_its_connection(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"

    def write(*names: str) -> None:
        digests = {name: sha256(f"{TOKEN}-{name}".encode()).hexdigest() for name in names}
        grants = 'read = ["everything"]\nwrite = ["everything"]\n'
        text = "".join(f'[principals.{name}]\ntokens = ["sha256:{sum_}"]\n{grants}' for name, sum_ in digests.items())
        file.write_text(text)
        file.chmod(0o600)

    write("ada", "bob")
    access = PolicyAccess.of_file(file)
    with HepnosServer(
        {"store": "memory:revoked-frames"}, access=access, bounds=EdgeBounds(idle_seconds_max=60)
    ) as server:
        with RawFrames(server.connect()) as nobody, RawFrames(server.connect(), "another-token-of-nobody") as unknown:
            assert (nobody.status, unknown.status) == (401, 401)
        with RawFrames(server.connect(), f"{TOKEN}-ada") as ada, RawFrames(server.connect(), f"{TOKEN}-bob") as bob:
            assert (ada.ask(FrameKind.DATABASES).number, bob.ask(FrameKind.DATABASES).number) == (200, 200)
            with hepnos.open(server.url, token=f"{TOKEN}-ada") as store:
                write("bob")
                assert [found.kind for found in ada.rest()] == [FrameKind.FAREWELL]
                assert bob.ask(FrameKind.DATABASES).number == 200
                with pytest.raises(UnauthorizedError):
                    store.root.ensure("a")


def test_each_change_has_its_lines_in_the_audit_log_with_the_id_of_its_frame(tmp_path: Path) -> None:
    access = Access([Token.of_text(Role.CLIENT, "physics", TOKEN)], local_role=None)
    settings = {"store": "memory:audited-frames"}
    with AuditLog(tmp_path / "audit", wall=SYSTEM_CLOCK.wall) as log:
        with (
            HepnosServer(settings, access=access, audit_log=log) as server,
            hepnos.open(server.url, token=TOKEN) as store,
        ):
            store.root.ensure("a")
        lines = [line for line in log.lines_behind(0, limit=10) if line.event != "opened"]
    assert [(line.event, line.who, line.operation, line.subject) for line in lines] == [
        ("begun", "physics", "putHepnosPairs", "datasets/0"),
        ("done", "physics", "putHepnosPairs", "datasets/0"),
    ]
    assert lines[0].request == lines[1].request
    assert lines[0].request.partition(".")[2].isdecimal()


def test_every_second_frame_has_a_line_and_every_refused_one(
    server: HepnosServer, raw: RawFrames, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "keyplan.server")
    for _ in range(10):
        raw.ask(FrameKind.DATABASES)
    raw.send((2**31).to_bytes(4, "little") + frame(1 << 20, PUT)[4:])
    raw.rest()
    found = [getattr(record, "facts", {}) for record in caplog.records]
    facts = [one for one in found if one.get("method") == "FRAME"]
    assert [one["status"] for one in facts if one["status"] == 200] == [200] * 5
    assert [one["reason"] for one in facts if one["status"] != 200] == ["body_too_large"]


@pytest.mark.parametrize("over", ["tls", "unix"])
def test_frames_go_over_what_the_server_listens_on(over: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority.create(tmp_path / "ca") if over == "tls" else None
    path = tmp_path / "socket" if over == "unix" else None
    if authority is not None:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    settings = {"store": f"memory:frames-{over}"}
    with (
        HepnosServer(settings, authority=authority, path=path) as server,
        hepnos.open(server.url) as store,
        ThreadPoolExecutor(4) as threads,
    ):
        subrun = store.root.ensure("a").create_run(1).create_subrun(1)
        assert subrun.create_events(range(30_000)) == 30_000
        assert all(threads.map(lambda number: subrun.events[number].store("n", number), range(40)))
        assert list(threads.map(lambda number: subrun.events[number].load("n", int), range(40))) == list(range(40))
        assert list(subrun.events.numbers()) == list(range(30_000))
        assert server.connections == 1


# ---- threads, and connections that end -------------------------------------------------------------------------------------


def test_threads_share_a_connection_and_each_gets_its_own_answers() -> None:
    # Why a server of its own: connections of earlier tests end when the collector or the other side comes to it.
    with HepnosServer({"store": "memory:threads-frames"}) as server, hepnos.open(server.url) as store:
        subrun = store.root.ensure("threads").create_run(1).create_subrun(1)
        numbers = range(16)

        def work(number: int) -> list[int]:
            event = subrun.create_event(number)
            event.store("n", bytes([number]) * 20_000)
            pages = list(subrun.events.numbers())
            assert number in pages
            return [event.load("n", bytes)[-1] for _ in range(10)]

        with ThreadPoolExecutor(16) as threads:
            assert list(threads.map(work, numbers)) == [[number] * 10 for number in numbers]
        assert server.connections == 1


def test_a_list_that_nobody_goes_on_with_holds_up_nobody(server: HepnosServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyplan.apps.hepnos.remote_frames.PARTS_AHEAD", 1)
    with hepnos.open(server.url) as store:
        events = store.root.ensure("left").create_run(1).create_subrun(1)
        events.create_events(range(40_000))
        listed = iter(events.events.numbers())
        assert [next(listed) for _ in range(100)] == list(range(100))
        with ThreadPoolExecutor(4) as threads:
            counts = list(threads.map(lambda _: events.events.count(), range(8)))
        assert counts == [40_000] * 8
        assert next(listed) == 100
        del listed
        assert events.events.count() == 40_000


def test_a_server_that_stops_says_farewell_and_finishes_what_it_has_begun() -> None:
    with HepnosServer({"store": "memory:stopping-frames"}) as server:
        store = hepnos.open(server.url)
        subrun = store.root.ensure("a").create_run(1).create_subrun(1)
        subrun.create_events(range(40_000))
        listed = iter(subrun.events.numbers())
        next(listed)
        raw = RawFrames(server.connect())
        counting = raw.begin(COUNT, *body(server, COUNT, key_range=KeyRange(b"", None)))
    found = raw.rest()
    raw.close()
    assert [one.number for one in found if one.id == counting and one.kind == FrameKind.ANSWER] in ([200], [])
    assert found[-1].kind == FrameKind.FAREWELL or found[-1].id == counting
    with pytest.raises(EngineUnavailableError):
        subrun.create_event(1)
    store.close()
