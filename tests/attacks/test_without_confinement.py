"""Each attack can fail: where nothing confines, it reaches whoever tries.

The owner's success shows that an attack asks for what is there. It does not show that somebody else who got it would be
noticed: what counts as reached may be true of owners alone.
"""

from functools import cache
from typing import Final

import pytest

from keyplan.server import CallerStore, PolicyAccess, Stores
from tests.attacks.form import Row
from tests.attacks.runs import Runs, attacks_of, reached

WITH_TOKENS: Final = ("shop", "nothing", "cell", "auditor")
"""Why not nobody: without a token a server lets no one in, whether or not it confines."""


@pytest.fixture
def nothing_confines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every caller's store be the whole one, and every grant be there. Who asks is known as ever."""

    @cache
    def whole(stores: Stores) -> CallerStore:
        return CallerStore.of_all(stores.whole_for("keyspaces"))

    monkeypatch.setattr(Stores, "of", lambda stores, _caller: whole(stores))
    monkeypatch.setattr(PolicyAccess, "allows", lambda *_asked: True)


@pytest.mark.usefixtures("nothing_confines")
def test_an_attack_reaches_its_place_where_nothing_confines(row: Row, runs: Runs) -> None:
    # Why one of them for each: all that differs is their name, and a server is begun for every attack.
    for number, name in enumerate(attacks_of(row)):
        who = WITH_TOKENS[number % len(WITH_TOKENS)]
        is_reached, told = reached(runs.begin(row), name, who)
        assert is_reached, (name, who, told)
