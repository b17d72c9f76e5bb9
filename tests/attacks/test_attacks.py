"""Every attack on every protocol: who is not granted something gets and changes nothing of it, and is told as of nothing.

Each attack is first run as the owner of the place, who must get it: an attack that fails for everybody shows nothing.
"""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from keyplan.engine import MemoryEngine
from tests.attacks.form import ATTACKS, Answer, Attacker, Row
from tests.attacks.rows import ROWS
from tests.attacks.world import BANK, HIDDEN, NEIGHBOUR, NOBODY, OWNER, SHOP, TOKENS, VALUE, VOID, Place, World
from tests.keyspace.stores import swept

OTHERS: Final = ("shop", "cell", "auditor", "nothing", NOBODY)
WIDE: Final = frozenset({"list across", "list all", "watch all", "page token", "registry"})
"""Attacks that show what is the own, too."""


class Run(NamedTuple):
    """A protocol that is served over a store of its own."""

    row: Row
    world: World
    url: str

    def attacker(self, who: str, place: Place = BANK) -> Attacker:
        return Attacker(self.url, who, place, self.world)

    def told(self, name: str, who: str, place: Place = BANK) -> Answer:
        return self.row.attacks[name](self.attacker(who, place))


class Runs:
    """Serves protocols, each once for all tests of it that change nothing, and anew for those that do."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._number = 0

    def begin(self, row: Row) -> Run:
        self._number += 1
        engine = self._stack.enter_context(MemoryEngine())
        world = World(engine, self._folder / f"access-{self._number}.toml")
        row.settle(world)
        return Run(row, world, self._stack.enter_context(row.served(world)).url)


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Row:
    found: Row = request.param
    return found


@pytest.fixture(scope="module")
def shared(row: Row, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with ExitStack() as stack:
        yield Runs(tmp_path_factory.mktemp("attacks"), stack).begin(row)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    with ExitStack() as stack:
        yield Runs(tmp_path, stack)


@pytest.fixture
def run(row: Row, runs: Runs) -> Run:
    return runs.begin(row)


def test_every_protocol_tries_every_attack_or_says_why_it_has_no_such_thing(row: Row) -> None:
    assert row.attacks.keys() | row.without.keys() == ATTACKS.keys()
    assert not row.attacks.keys() & row.without.keys()
    assert all(row.without.values())


# ---- the owner gets it, nobody else does -----------------------------------------------------------------------------------


def reached(run: Run, name: str, who: str, place: Place = BANK) -> tuple[bool, Answer]:
    """Attack; return whether anything of the place was got, or changed, and what came back."""
    before = run.world.state()
    told = run.told(name, who, place)
    is_changed = run.world.state() != before and not name.startswith("watch")
    return told.is_got or is_changed, told


def each(row: Row) -> Iterator[str]:
    yield from (name for name in ATTACKS if name in row.attacks)


def test_the_owner_gets_what_is_attacked(row: Row, runs: Runs) -> None:
    for name in each(row):
        is_reached, told = reached(runs.begin(row), name, OWNER if name != "registry" else "ada")
        assert is_reached, (name, told)


@pytest.mark.parametrize("who", OTHERS)
def test_nobody_else_gets_anything(shared: Run, who: str) -> None:
    for name in each(shared.row):
        is_reached, told = reached(shared, name, who)
        assert not is_reached, (name, told)
        assert told.status < 500, (name, told)


@pytest.mark.parametrize("who", OTHERS)
def test_what_is_anothers_is_told_of_like_what_never_was(shared: Run, who: str) -> None:
    for name in each(shared.row):
        if name in shared.row.telling or name == "registry":
            continue
        theirs, nothing = shared.told(name, who).masked(BANK), shared.told(name, who, VOID).masked(VOID)
        # Why not all of a wide watch: it tells of what is their own, which both times is another change.
        assert theirs[:1] == nothing[:1] if name == "watch all" else theirs == nothing, name


def test_who_may_only_read_changes_nothing(shared: Run) -> None:
    for name in sorted(shared.row.writing):
        before = shared.world.state()
        told = shared.told(name, "reader")
        assert (shared.world.state(), told.is_reached) == (before, False), (name, told)
        assert told.status < 500, (name, told)


def test_a_name_that_begins_as_the_own_is_not_the_own(shared: Run) -> None:
    for name in each(shared.row):
        if name not in WIDE:
            is_reached, told = reached(shared, name, OWNER, NEIGHBOUR)
            assert not is_reached, (name, told)


HEADERS: Final = (
    {"X-Forwarded-User": OWNER, "X-Remote-User": OWNER, "X-Principal": OWNER, "X-Forwarded-For": "127.0.0.1"},
    {"X-SSL-Client-S-DN": f"CN={OWNER}", "X-Forwarded-Client-Cert": f"Subject=CN={OWNER}"},
    {"X-Keyspace": BANK.keyspace, "X-Application": BANK.application, "From": OWNER},
    {"X-HTTP-Method-Override": "GET", "X-Original-URL": BANK.known, "X-Rewrite-URL": BANK.known},
)


@pytest.mark.parametrize("headers", HEADERS, ids=lambda headers: next(iter(headers)))
def test_no_header_makes_somebody_another(shared: Run, headers: dict[str, str]) -> None:
    for who in ("shop", "nothing", NOBODY):
        attacker = shared.attacker(who)
        attacker.headers = dict(headers)
        told = shared.row.attacks["read"](attacker)
        assert not told.is_got, (who, told)


def test_a_token_is_whose_it_is_under_any_name(shared: Run) -> None:
    for name in (OWNER, "ada"):
        attacker = shared.attacker("shop")
        pair = b64encode(f"{name}:{TOKENS['shop']}".encode()).decode()
        attacker.headers = {"Authorization": f"Basic {pair}"}
        told = shared.row.attacks["read"](attacker)
        assert not told.is_got, told


# ---- what changes hands ----------------------------------------------------------------------------------------------------


def test_what_is_deleted_is_gone_for_its_owner(run: Run) -> None:
    if not run.row.has_data:
        pytest.skip("what the protocol shows outlives the data")
    swept(run.world.registry, BANK.keyspace)
    is_reached, told = reached(run, "read", OWNER)
    assert not is_reached, told
    assert told.status < 500


def test_what_is_made_anew_for_another_is_the_others(run: Run) -> None:
    if not run.row.has_data:
        pytest.skip("what the protocol shows outlives the data")
    assert reached(run, "read", OWNER)[0]
    given_to_the_shop(run)
    for name in ("read", "list", "list all", "count", "watch past"):
        if name in run.row.attacks:
            is_reached, told = reached(run, name, OWNER)
            assert not is_reached, (name, told)
    assert reached(run, "read", "shop")[0]


def test_a_watch_ends_before_it_tells_of_the_next_owners(run: Run) -> None:
    if "watch" not in run.row.attacks:
        pytest.skip("the protocol has no watches")
    attacker = run.attacker(OWNER)
    attacker.happening = lambda _who: given_to_the_shop(run)
    told = run.row.attacks["watch"](attacker)
    assert VALUE not in told.text, told


def given_to_the_shop(run: Run) -> None:
    """Delete the bank's key space, and let the shop have one at its prefix, with something hidden in it."""
    swept(run.world.registry, BANK.keyspace)
    run.world.adopt(BANK, name="loans", application=SHOP.application)
    run.row.settle(run.world)
    run.world.put({BANK.known: f"{VALUE} of the shop", BANK.prefix + HIDDEN: VALUE})


def test_a_grant_that_is_taken_away_ends_with_the_next_request(run: Run) -> None:
    assert reached(run, "read", OWNER)[0]
    run.world.grants[OWNER] = {}
    run.world.write_file()
    while reached(run, "read", OWNER)[0]:
        pass  # A server looks at its file once in a second.
    for name in each(run.row):
        if name != "registry":
            is_reached, told = reached(run, name, OWNER)
            assert not is_reached, (name, told)


def test_what_is_disabled_is_read_and_not_written(run: Run) -> None:
    run.world.registry.disable(BANK.keyspace)
    assert reached(run, "read", OWNER)[0]
    if "write" in run.row.attacks and run.row.has_data:
        is_reached, told = reached(run, "write", OWNER)
        assert not is_reached, told
