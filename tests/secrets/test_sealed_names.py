"""The names that a secret is sealed with, of layout and table; and tables whose secrets never are sealed."""

import pytest
from msgspec import Struct

from keyplan import Layout, Secret, Table
from keyplan.engine import Commit, MemoryEngine, Put
from keyplan.errors import CorruptionError
from keyplan.layout import Impact, canonical_description, describe, differences, layout_class_of, layout_of_description
from keyplan.maintenance import plan_migration
from keyplan.store import Store
from tests.secrets.test_sealed_store import ADA, keys, stored
from tests.secrets.vault import NEEDLE, Account, Vault, account, filled


class Bank(Layout, root="/bank/"):
    """Another application with the same table, in the same store, with the same key file."""

    accounts = Table("accounts/{name}", key=str, value=Account)


class VaultNext(Vault, version=2):
    """The vault with a table more."""

    notes = Table("notes/{name}", key=str, value=str)


class Renamed(Layout, root="/vault/", sealed_as="Vault"):
    """The vault under another name."""

    accounts = Table("accounts/{name}", key=str, value=Account)


def test_a_record_that_is_copied_into_another_application_does_not_open_there() -> None:
    with MemoryEngine() as engine:
        filled(engine, secrets=keys("k1"))
        store = Store(engine, secrets=keys("k1"))
        engine.commit(Commit((), (Put(b"/bank/accounts/ada", stored(engine)[ADA]),)))
        with pytest.raises(CorruptionError, match="sealed for another place"):
            Bank(store).accounts.require("ada").pass_word.reveal()
        copied = Vault(store).accounts.require("ada")
        Bank(store).accounts.put("ada", copied)  # a program that has the keys, and both layouts, moves it
        assert Bank(store).accounts.require("ada").pass_word.reveal() == NEEDLE


class Common(Layout, root="/common/"):
    """What two applications have in common: no secret."""

    notes = Table("notes/{name}", key=str, value=str)


class Shop(Common, root="/shop/"):
    accounts = Table("accounts/{name}", key=str, value=Account)


class Office(Common, root="/office/"):
    accounts = Table("accounts/{name}", key=str, value=Account)


def test_applications_that_extend_one_layout_without_secrets_open_nothing_of_each_other() -> None:
    with MemoryEngine() as engine:
        store = Store(engine, secrets=keys("k1"))
        Shop(store).accounts.put("ada", account())
        engine.commit(Commit((), (Put(b"/office/accounts/ada", stored(engine)[b"/shop/accounts/ada"]),)))
        with pytest.raises(CorruptionError, match="sealed for another place"):
            Office(store).accounts.require("ada").pass_word.reveal()


def test_a_name_that_a_layout_was_given_is_that_of_those_that_extend_it() -> None:
    class Named(Layout, root="/named/", sealed_as="Shop"):
        notes = Table("notes/{name}", key=str, value=str)

    class Extended(Named):
        accounts = Table("accounts/{name}", key=str, value=Account)

    assert Extended.spec.sealed_as == "Shop"


def test_a_later_layout_and_one_that_says_so_open_what_the_first_one_sealed() -> None:
    with MemoryEngine() as engine:
        filled(engine, secrets=keys("k1"))
        store = Store(engine, secrets=keys("k1"))
        for kind in (VaultNext, Renamed, layout_class_of(layout_of_description(describe(Renamed.spec)))):
            record = kind(store).view("accounts").require("ada")
            secret = record.pass_word if isinstance(record, Account) else record["passWord"]
            assert secret.reveal() == NEEDLE


def test_a_layout_of_another_name_is_told_by_diff_and_refused_by_a_migration_plan() -> None:
    class Other(Layout, root="/vault/"):
        accounts = Table("accounts/{name}", key=str, value=Account)

    assert [change.code for change in differences(Renamed, Other)] == ["E1", "E22"]
    with MemoryEngine() as engine:
        [obstacle] = plan_migration(engine, Renamed.bound(), Other.bound()).obstacles
        assert obstacle.startswith("E22 breaking layout: its secrets are sealed as Other's, no longer as Vault's")
    assert [change.code for change in differences(Renamed, VaultNext) if change.code == "E22"] == []
    assert describe(Renamed.spec)["sealed_as"] == "Vault"
    assert "sealed_as" not in describe(Vault.spec)
    assert canonical_description(Renamed.spec) == canonical_description(Other.spec)


class Users(Layout, root="/vault/", sealed_as="Vault"):
    """The vault with another name for its table, over the same keys."""

    users = Table("accounts/{name}", key=str, value=Account)


class Unsealed(Layout, root="/vault/", sealed_as="Vault"):
    """The vault whose secrets are never sealed any more."""

    accounts = Table("accounts/{name}", key=str, value=Account, sealed=False)


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (Users, "E22 breaking users: its secrets are sealed as those of users, no longer of accounts"),
        (Unsealed, "E22 breaking accounts: its secrets are never sealed any more"),
    ],
)
def test_a_table_whose_sealed_secrets_would_not_open_any_more_is_told_and_refused(new: type[Layout], told: str) -> None:
    with MemoryEngine() as engine:
        filled(engine, secrets=keys("k1"))
        [change] = [change for change in differences(Renamed, new) if change.code == "E22"]
        assert str(change).startswith(told)
        assert str(change) in plan_migration(engine, Renamed.bound(), new.bound()).obstacles
        assert "E22" not in {change.code for change in differences(new, new)}


def test_who_makes_a_field_no_secret_any_more_is_told_to_open_what_is_sealed() -> None:
    class Plain(Struct):
        word: str

    class Hidden(Struct):
        word: Secret[str]

    class Sealing(Layout, root="/words/", sealed_as="Words"):
        words = Table("{name}", key=str, value=Hidden)

    class Clear(Layout, root="/words/", sealed_as="Words"):
        words = Table("{name}", key=str, value=Plain)

    with MemoryEngine() as engine:
        Sealing(Store(engine, secrets=keys("k1"))).words.put("a", Hidden(Secret(NEEDLE)))
        with pytest.raises(CorruptionError):
            Clear(Store(engine)).words.require("a")
    [change] = [change for change in differences(Sealing, Clear) if change.code == "E22"]
    assert change.impact is Impact.BREAKING
    assert "`keyplan secrets open` with the old layout" in str(change)


def test_what_looks_sealed_in_a_table_that_never_is_is_a_damaged_record() -> None:
    """Programs without keyplan write there: what they write is met where it is read, and not where it is revealed."""
    with MemoryEngine() as engine:
        filled(engine, secrets=keys("k1"))
        sealed = stored(engine)[ADA]
        assert b"$sealed" in sealed
        for written in (sealed, sealed.replace(b"$sealed", rb"\u0024sealed")):
            engine.commit(Commit((), (Put(ADA, written),)))
            with pytest.raises(CorruptionError, match="a secret is sealed in a table whose secrets never are"):
                Unsealed(Store(engine, secrets=keys("k1"))).accounts.require("ada")


def test_a_sealed_secret_that_a_program_writes_into_such_a_table_is_opened() -> None:
    with MemoryEngine() as engine:
        filled(engine, secrets=keys("k1"))
        store = Store(engine, secrets=keys("k1"))
        Unsealed(store).accounts.put("bob", Vault(store).accounts.require("ada"))
        assert Unsealed(Store(engine)).accounts.require("bob").pass_word.reveal() == NEEDLE
