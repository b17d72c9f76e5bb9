"""Requests that come in one write: answered together where they can be, and each as if it had been asked alone."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.frames import MORE, OPERATIONS, PART, Frame, FrameKind, frame, request_body
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.operations import digest_of
from keyplan.apps.hepnos.packed import pack, unpack
from keyplan.apps.hepnos.remote import RemoteServer
from keyplan.apps.hepnos.service_databases import ServedDatabases
from keyplan.engine import KeyRange
from keyplan.server import PolicyAccess
from keyplan.testing.engine_suite import eventually
from tests.apps.hepnos.served import HepnosServer, RawFrames, code_of

GET, LIST = FrameKind.GET, FrameKind.LIST
UUID = bytes(range(16))
LARGE = 70_000
TOKEN = "the-token-of-a-physicist-0123456789abcdef"


def product(number: int) -> bytes:
    return UUID + b"".join(part.to_bytes(8) for part in (1, 1, number)) + b"label#type"


def where(server: HepnosServer, kind: Kind = Kind.PRODUCT, token: str | None = None) -> bytes:
    return bytes.fromhex(digest_of(RemoteServer.at(server.url, token=token).database(kind, 0).description))


@pytest.fixture(scope="module")
def server() -> Iterator[HepnosServer]:
    with HepnosServer({"store": "memory:together", "log-each": "3"}) as running:
        products = RemoteServer.at(running.url).database(Kind.PRODUCT, 0)
        products.put_sorted(
            [product(at) for at in range(40)], [bytes([at]) * (LARGE if at % 7 == 6 else 100) for at in range(40)]
        )
        yield running


@pytest.fixture
def deleted(server: HepnosServer) -> bytes:
    """The key of a product of a data set that was deleted."""
    with hepnos.open(server.url) as store:
        dataset = store.root.ensure("deleted")
        key = dataset.create_run(1).store("label", b"value").raw
        dataset.delete()
    return key


def send_at_once(raw: RawFrames, asked: Sequence[tuple[int, bytes, int]], behind: bytes = b"") -> list[Frame]:
    """Send requests in one write, and return their answers in their order."""
    first, raw.next_id = raw.next_id, raw.next_id + len(asked)
    requests = [frame(own, kind, body, number=number) for own, (kind, body, number) in enumerate(asked, first)]
    raw.send(b"".join(requests) + behind)
    told: dict[int, Frame] = {}
    while len(told) < len(asked):
        found = raw.receive()
        assert found is not None
        assert found.id not in told
        told[found.id] = found
    return [told[first + at] for at in range(len(asked))]


def test_each_of_many_in_one_write_is_answered_as_if_it_were_asked_alone(server: HepnosServer, deleted: bytes) -> None:
    place = where(server)
    ring = request_body(OPERATIONS[GET], {"kind": Kind.PRODUCT, "keys": []}, place)[0]
    keys = [product(at % 45) for at in range(60)]
    keys[3:3] = [b"", deleted, b"k" * 600]
    keys[20:20] = [deleted] * 3
    asked = [(GET, ring + pack([key]), 0) for key in keys]
    asked[5:5] = [
        (GET, ring + pack(keys[:4]), 0),
        (GET, ring + pack([]), 0),
        (GET, ring + pack([None]), 0),
        (GET, ring + pack([product(1)]) + b"more", 0),
        (GET, ring[:8] + bytes(8) + pack([product(1)]), 0),
        (GET, ring + pack([product(1)]), 9),
        (GET, ring[:-1], 0),
        (FrameKind.DATABASES, b"", 0),
    ]
    with RawFrames(server.connect()) as one_by_one, RawFrames(server.connect()) as at_once:
        alone = [one_by_one.ask(kind, body, number=number) for kind, body, number in asked]
        together = send_at_once(at_once, asked)
    statuses = [found.number for found in alone]
    assert {200, 400, 404, 409} < set(statuses)
    assert [one._replace(id=0) for one in alone] == [one._replace(id=0) for one in together]


def test_each_is_counted_and_every_third_has_a_line(server: HepnosServer, caplog: pytest.LogCaptureFixture) -> None:
    body = request_body(OPERATIONS[GET], {"kind": Kind.PRODUCT, "keys": [product(1)]}, where(server))

    def counted() -> float:
        text = httpx.get(f"{server.url}/metrics").text
        name = 'keyplan_hepnos_frames_total{operation="getHepnosValues",status="200"}'
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))

    caplog.set_level("INFO", "keyplan.server")
    before = counted()
    with RawFrames(server.connect()) as raw:
        told = send_at_once(raw, [(GET, b"".join(body), 0)] * 99)
        assert {found.number for found in told} == {200}
    facts = [getattr(record, "facts", {}) for record in caplog.records]
    ids = [int(one["request_id"].rpartition(".")[2]) for one in facts if one.get("method") == "FRAME"]
    assert (len(ids), {after - one for one, after in pairwise(ids)}) == (33, {3})
    assert counted() - before == 99


def test_one_that_is_not_wanted_any_more_is_not_answered_among_the_others(server: HepnosServer) -> None:
    body = b"".join(request_body(OPERATIONS[GET], {"kind": Kind.PRODUCT, "keys": [product(1)]}, where(server)))
    with RawFrames(server.connect()) as raw:
        told = send_at_once(raw, [(GET, body, 0)] * 30, frame(7, FrameKind.CANCEL))
    assert [found.id for found in told if found.number != 200] == [7]
    assert code_of(told[6]) == "cancelled"


def test_nobody_is_answered_together_what_they_may_not_see(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"

    def grant(*numbers: int) -> None:
        seen = ", ".join(f'"prefix:0x{(b"hepnos/products/" + product(number)).hex()}"' for number in numbers)
        grants = {"ada": '"everything"', "bob": seen}
        file.write_text(
            "".join(
                f'[principals.{name}]\ntokens = ["sha256:{sha256((TOKEN + name).encode()).hexdigest()}"]\n'
                f"read = [{granted}]\n" + ('write = ["everything"]\n' if name == "ada" else "")
                for name, granted in grants.items()
            )
        )
        file.chmod(0o600)

    grant(2)
    with HepnosServer({"store": "memory:seen-together"}, access=PolicyAccess.of_file(file)) as server:
        products = RemoteServer.at(server.url, token=f"{TOKEN}ada").database(Kind.PRODUCT, 0)
        products.put_sorted([product(at) for at in range(20)], [bytes([at]) for at in range(20)])
        place = where(server, token=f"{TOKEN}bob")
        single = request_body(OPERATIONS[GET], {"kind": Kind.PRODUCT, "keys": []}, place)[0]

        def seen(raw: RawFrames) -> set[int]:
            told = send_at_once(raw, [(GET, single + pack([product(at)]), 0) for at in range(20)])
            assert all(found.body in (pack([bytes([at])]), pack([None])) for at, found in enumerate(told))
            return {at for at, found in enumerate(told) if found.body != pack([None])}

        with RawFrames(server.connect(), f"{TOKEN}bob") as raw:
            assert seen(raw) == {2}
            grant(2, 3)
            eventually(lambda: seen(raw) == {2, 3})


def test_lists_beyond_those_that_wait_for_their_client_are_answered_at_once() -> None:
    keys = [UUID + b"".join(part.to_bytes(8) for part in (1, 1, at)) for at in range(30)]
    with HepnosServer({"store": "memory:stalled-frames"}) as server:
        RemoteServer.at(server.url).database(Kind.EVENT, 0).put_sorted(keys)
        asked = {"kind": Kind.EVENT, "key_range": KeyRange.of_prefix(UUID), "limit": 10}
        pages = b"".join(request_body(OPERATIONS[LIST], asked, where(server, Kind.EVENT), parts=1))
        opened = server.connect()
        opened.settimeout(20)  # Why: less than the minute after which a client that waits is given up.
        lists = range(1, 1_401)
        found: dict[int, list[bytes | None]] = {own: [] for own in lists}
        is_cut: dict[int, bool] = {}
        with RawFrames(opened) as raw:
            raw.send(b"".join(frame(own, LIST, pages) for own in lists))
            received = 0
            while len(is_cut) < len(lists):
                if received == 1_024:  # Why only now: before, they would come with the lists, and be read.
                    raw.send(b"".join(frame(own, FrameKind.CREDIT, number=9) for own in lists))
                part, received = raw.receive(), received + 1
                assert part is not None
                found[part.id] += unpack(part.body, 1)[0]
                if not part.flags & PART:
                    is_cut[part.id] = bool(part.flags & MORE)
    assert all(found[own] == keys for own in lists if not is_cut[own])
    assert all(found[own] == keys[: len(found[own])] for own in lists)
    assert 0 < sum(is_cut.values()) < len(lists) - 1_024


def test_what_is_answered_together_is_bounded_by_its_bytes() -> None:
    with hepnos.open("memory:") as store:
        event = store.root.ensure("large").create_run(1).create_subrun(1).create_event(1)
        keys = [event.store(f"n{number}", bytes(1_000), type=bytes).raw for number in range(4)]
        served = ServedDatabases(store.databases)
        assert served.first_values(Kind.PRODUCT, 0, keys, 2_500) == [bytes(1_000)] * 2
        assert served.first_values(Kind.PRODUCT, 0, keys, 4_000) == [bytes(1_000)] * 4
        assert served.first_values(Kind.PRODUCT, 0, keys, 999) == []
