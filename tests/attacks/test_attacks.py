"""Every attack on every protocol: who is not granted something gets and changes nothing of it, and is told as of nothing.

Each attack is first run as the owner of the place, who must get it: an attack that fails for everybody shows nothing.
"""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from tests.attacks.form import ATTACKS, Row
from tests.attacks.runs import Run, Runs, attacks_of, reached
from tests.attacks.world import (
    BANK,
    HIDDEN,
    NEIGHBOUR,
    NOBODY,
    OWNER,
    SHOP,
    TOKENS,
    VALUE,
    VOID,
    spellings,
)
from tests.keyspace.stores import swept

OTHERS: Final = ("shop", "cell", "auditor", "nothing", NOBODY)
WIDE: Final = frozenset({"list across", "list all", "watch all", "page token", "registry"})
"""Attacks that show what is the own, too."""


@pytest.fixture(scope="module")
def shared(row: Row, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with ExitStack() as stack:
        yield Runs(tmp_path_factory.mktemp("attacks"), stack).begin(row)


@pytest.fixture
def run(row: Row, runs: Runs) -> Run:
    return runs.begin(row)


def test_every_protocol_tries_every_attack_or_says_why_it_has_no_such_thing(row: Row) -> None:
    assert row.attacks.keys() | row.without.keys() == ATTACKS.keys()
    assert not row.attacks.keys() & row.without.keys()
    assert all(row.without.values())


# ---- the owner gets it, nobody else does -----------------------------------------------------------------------------------


def test_the_owner_gets_what_is_attacked(row: Row, runs: Runs) -> None:
    for name in attacks_of(row):
        is_reached, told = reached(runs.begin(row), name, OWNER if name != "registry" else "ada")
        assert is_reached, (name, told)


@pytest.mark.parametrize("who", OTHERS)
def test_nobody_else_gets_anything(shared: Run, who: str) -> None:
    for name in attacks_of(shared.row):
        is_reached, told = reached(shared, name, who)
        assert not is_reached, (name, told)
        assert told.status < 500, (name, told)


@pytest.mark.parametrize("who", OTHERS)
def test_what_is_anothers_is_told_of_like_what_never_was(shared: Run, who: str) -> None:
    for name in attacks_of(shared.row):
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
    if not shared.row.has_places:
        pytest.skip("what is granted are operations")
    for name in attacks_of(shared.row):
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


def test_who_is_the_next_owner_is_told_nothing_of_the_former_one_s(run: Run) -> None:
    if "watch past" not in run.row.attacks or not run.row.has_data:
        pytest.skip("the protocol has no watches, or what it shows outlives the data")
    assert reached(run, "read", OWNER)[0]  # A gateway begins to count with the first request.
    run.world.put({BANK.known: "the former owner's"})
    assert reached(run, "read", OWNER)[1].status == 200
    given_to_the_shop(run)
    attacker = run.attacker("shop")
    attacker.happening = lambda _who: run.world.put({BANK.known: VALUE})
    told = run.row.attacks["watch past"](attacker)
    assert not any(one in told.text for one in spellings("the former owner's")), told


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
    for name in attacks_of(run.row):
        if name != "registry":
            is_reached, told = reached(run, name, OWNER)
            assert not is_reached, (name, told)


def test_what_is_disabled_is_read_and_not_written(run: Run) -> None:
    run.world.registry.disable(BANK.keyspace)
    assert reached(run, "read", OWNER)[0]
    if "write" in run.row.attacks and run.row.has_data:
        is_reached, told = reached(run, "write", OWNER)
        assert not is_reached, told
