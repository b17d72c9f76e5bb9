"""Consents of a migration: none of them gives up what it does not name, and one that names nothing is refused."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

import keyplan
from keyplan import Secret
from keyplan.errors import InvalidArgumentError, MigrationRefusedError
from keyplan.layout import Layout, Table, Unique
from keyplan.maintenance import Conversion, Keyed, Resolution, Transform, migrate, plan_migration, try_migration
from tests.maintenance.evolving import plan


class Spot(NamedTuple):
    room: str
    number: int


class Box(msgspec.Struct, frozen=True):
    colour: str
    weight: int = 0


class Light(msgspec.Struct, frozen=True):
    colour: str


class Before(Layout, root="/c/"):
    boxes = Table("boxes/{room}/{number}", key=Spot, value=Box)
    notes = Table("notes/{note}", key=str, value=str)


class Numbered(Layout, root="/c/"):
    boxes = Table("numbered/{number}", key=int, value=Box)
    notes = Table("notes/{note}", key=str, value=str)


class Lighter(Layout, root="/c/"):
    boxes = Table("lighter/{room}/{number}", key=Spot, value=Light)


@pytest.mark.parametrize(
    ("after", "codes", "left"),
    [(Numbered, ["E23"], "E23 breaking boxes"), (Lighter, ["E5", "E10"], "E10 breaking boxes.weight")],
)
def test_no_code_gives_up_records_that_it_does_not_name(after: type[Layout], codes: list[str], left: str) -> None:
    with keyplan.open("memory:") as store:
        Before(store).boxes.insert(Spot("a", 1), Box("red", 3))
        planned = plan(store, Before, after, accepts=codes)
        refused = f"{codes[0]} cannot be accepted: there are E17, E19, E22"
        assert {left, refused} <= {
            obstacle[: len(words)] for obstacle in planned.obstacles for words in (left, refused)
        }
        with pytest.raises(MigrationRefusedError):
            migrate(store, planned, is_switched=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"accepts": ["nonsense"]}, "nonsense cannot be accepted"),
        (
            {"accepts": ["gone:crates"]},
            "the consent gone:crates names no table of either layout; there are: boxes, notes",
        ),
        ({"drops": ["boxes.weigth"]}, "there is no boxes.weigth to drop; what goes is: boxes.weight, notes"),
        ({"drops": ["boxes"]}, "there is no boxes to drop"),
        ({"resolutions": {"by_colour": Resolution(lambda key, box: None, "t")}}, "by_colour is given a Resolution"),
    ],
)
def test_a_consent_that_names_nothing_is_in_the_way(options: dict[str, Any], words: str) -> None:
    with keyplan.open("memory:") as store:
        options["drops"] = ["notes", "boxes.weight", *options.get("drops", ())]
        assert plan(store, Before, Lighter, drops=["notes", "boxes.weight"]).obstacles == ()
        (obstacle,) = plan(store, Before, Lighter, **options).obstacles
        assert words in obstacle


def test_a_function_that_ends_the_program_is_a_record_that_cannot_be_converted() -> None:
    def ends(box: Box) -> Light:
        raise SystemExit(0)

    with keyplan.open("memory:") as store:
        Before(store).boxes.insert(Spot("a", 1), Box("red", 3))
        conversions = {"boxes": Conversion(ends, "t:ends")}
        (obstacle,) = plan_migration(
            store.engine, Before.bound(), Lighter.bound(), conversions=conversions, drops=["notes"]
        ).obstacles
        assert "/c/boxes/a/1: the record is not valid: the function raised SystemExit" in obstacle


def test_a_function_of_other_arguments_is_refused_where_it_is_given() -> None:
    def of_both(key: Spot, box: Box) -> Keyed:
        return Keyed(key, box)

    def of_one(box: Box) -> Box:
        return box

    # Why: a type checker would refuse them, and a file need not be checked.
    keyed: Any = of_both
    alone: Any = of_one
    givens: list[Callable[[], object]] = [
        lambda: Conversion(keyed, "t"),
        lambda: Conversion(alone, "t", inverse=keyed),
        lambda: Transform(alone, "t", of=("boxes",), into=("boxes",)),
        lambda: Transform(keyed, "t", of=("boxes", "notes"), into=("boxes",)),
        lambda: Resolution(alone, "t"),
    ]
    for given in givens:
        with pytest.raises(InvalidArgumentError) as caught:
            given()
        assert "is called with" in str(caught.value)
    assert Conversion(str, "t").function is str


# ---- secrets -------------------------------------------------------------------------------------------------------------


class Account(msgspec.Struct, frozen=True):
    password: Secret[str]


class Opened(msgspec.Struct, frozen=True):
    password: str


class Vault(Layout, root="/v/"):
    accounts = Table("accounts/{name}", key=str, value=Account)


class Kept(Layout, root="/v/"):
    accounts = Table("accounts/{name}", key=str, value=Opened)
    by_password = Unique("passwords/{password}", of=accounts, key=str)


class Elsewhere(Layout, root="/v/"):
    accounts = Table("kept/{name}", key=str, value=Opened)
    by_password = Unique("passwords/{password}", of=accounts, key=str)


class Word(NamedTuple):
    password: str
    letter: str


class Worded(Layout, root="/v/"):
    accounts = Table("words/{password}/{letter}", key=Word, value=Opened)


def worded(key: str, account: Account) -> Keyed:
    return Keyed(Word(account.password.reveal(), "a"), Opened("none"))


WORDED = {"transforms": [Transform(worded, "t:worded", of=("accounts",), into=("accounts",))]}


@pytest.mark.parametrize(("after", "options"), [(Kept, {}), (Elsewhere, {}), (Worded, WORDED)])
def test_no_secret_is_shown_in_a_key_that_is_made_of_it(after: type[Layout], options: dict[str, Any]) -> None:
    with keyplan.open("memory:") as store:
        for name in ("ann", "bob"):
            Vault(store).accounts.insert(name, Account(Secret("correct-horse")))
        planned = plan(store, Vault, after, **options)
        trial = try_migration(store.engine, planned)
        assert any("/v/accounts/ann and /v/accounts/bob" in one or "both claim" in one for one in planned.obstacles)
        assert trial.problems(frozenset()) == 1
        assert "correct-horse" not in str((planned.obstacles, trial))
