"""A store with keys seals the secrets of every record that it writes; one without keys reads all but what is revealed."""

import asyncio
import dataclasses
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import keyplan.aio
from keyplan import Layout, Mode, Secret, SecretKeys, Table
from keyplan.codec import RawForm
from keyplan.engine import Commit, Engine, KeyRange, MemoryEngine, Put
from keyplan.errors import CorruptionError, LayoutError, SecretKeyError
from keyplan.layout import (
    describe,
    layout_class_of,
    layout_of_description,
    plain_value,
)
from keyplan.store import Store
from tests.secrets.vault import NEEDLE, Account, Door, DoorKey, Vault, account, filled, traces

FIRST: dict[str, Any] = {
    "accounts": "ada",
    "packed": "ada",
    "doors": DoorKey("h1", "d1"),
    "locks": "l1",
    "papers": "p1",
    "words": "w1",
    "bytes_": "b1",
}
ADA = b"/vault/accounts/ada"


def keys(*ids: str) -> SecretKeys:
    return SecretKeys({key_id: key_id.encode().ljust(32, b"-") for key_id in ids}, ids[0])


def stored(engine: Engine) -> dict[bytes, bytes]:
    with engine.snapshot() as snapshot:
        return {entry.key: entry.value for entry in snapshot.scan(KeyRange(b"", None))}


@contextmanager
def sealed_vault(*ids: str) -> Iterator[tuple[Engine, Vault]]:
    """An engine with a record in each table of the vault, sealed by the first key."""
    with MemoryEngine() as engine:
        yield engine, filled(engine, secrets=keys(*(ids or ("k1",))))


def secrets_of(record: Any) -> list[Secret[Any]]:
    """The secrets of a record of any class, in the order in which they stand."""
    match record:
        case Secret():
            return [record]
        case msgspec.Struct():
            return [found for name in record.__struct_fields__ for found in secrets_of(getattr(record, name))]
        case dict():
            return [found for value in record.values() for found in secrets_of(value)]
        case list():
            return [found for value in record for found in secrets_of(value)]
        case _ if dataclasses.is_dataclass(record):
            return secrets_of(list(vars(record).values()))
        case _ if hasattr(type(record), "model_fields"):
            return secrets_of(list(dict(record).values()))
    return []


# ---- writing and reading ---------------------------------------------------------------------------------------------------


def test_no_secret_stands_in_a_store_that_has_keys() -> None:
    with sealed_vault() as (engine, vault):
        vault.accounts.put("ada", account())
        vault.accounts.modify("ada", lambda record: msgspec.structs.replace(record, user_name="bob"))
        vault.accounts.rename("ada", "eve")
        with vault.transaction() as transaction:
            transaction.accounts.insert("in", account())
        vault.run(lambda transaction: transaction.packed.insert("in", account()))
        with Store(engine, secrets=keys("k1")).transaction() as shared:
            Vault(shared).doors.insert(DoorKey("h", "d"), Door("x", Secret(NEEDLE)))
        found = stored(engine)
        assert len(found) >= 10
        for raw_key, raw_value in found.items():
            assert not traces(raw_value.decode("latin-1")), raw_key
            if b"by_user" not in raw_key:
                assert b"$sealed" in raw_value, raw_key


@pytest.mark.parametrize("table", list(FIRST))
def test_what_was_sealed_is_read_by_every_way_of_reading(table: str) -> None:
    with sealed_vault() as (_, vault), MemoryEngine() as other:
        clear = filled(other)
        key = FIRST[table]
        view, expected = vault.view(table), clear.view(table).require(key)
        with vault.snapshot() as pinned, vault.transaction() as transaction:
            records = [
                view.get(key),
                view.require(key),
                *view.get_many([key]),
                *(record for _, record in view.list()),
                *(row.record for row in view.rows()),
                *(record for _, record in view.page().records),
                view.versioned(key).record,
                pinned.view(table).get(key),
                transaction.view(table).get(key),
            ]
        if table == "accounts":
            records += [record for _, record in vault.by_user.list("ada")]
        for record in records:
            assert all(secret.sealed is not None for secret in secrets_of(record))
            assert not traces(repr(record) + repr(plain_value(record)))
            assert record == expected
            assert [secret.reveal() for secret in secrets_of(record)] == [s.reveal() for s in secrets_of(expected)]
        assert len(records) >= 9


def test_a_watch_gives_records_whose_secrets_can_be_revealed() -> None:
    with MemoryEngine() as engine:
        vault = Vault(Store(engine, secrets=keys("k1")))
        with vault.accounts.watch(after=0) as changes:
            vault.accounts.insert("ada", account())
            change = next(iter(changes))
        assert change.new is not None
        assert change.new.pass_word.reveal() == NEEDLE


class Both(Layout[Mode], root="/both/"):
    accounts = Table("accounts/{name}", key=str, value=Account)


def test_the_asynchronous_store_seals_and_opens_too() -> None:
    async def work(engine: Engine) -> None:
        async with keyplan.aio.Store(engine, secrets=keys("k1")) as store:
            both = Both(store)
            await both.accounts.insert("eve", account())
            async with both.transaction() as transaction:
                await transaction.accounts.insert("mal", account())
            async with store.transaction() as shared:
                await Both(shared).accounts.insert("zoe", account())
            async with both.snapshot() as pinned:
                assert (await pinned.accounts.require("eve")).pass_word.reveal() == NEEDLE
            assert [record.pass_word.reveal() async for _, record in both.accounts.list()] == [NEEDLE] * 3
            assert not any(traces(value.decode("latin-1")) for value in stored(engine).values())

    with MemoryEngine() as engine:
        asyncio.run(work(engine))


texts = st.text(max_size=12)


@settings(max_examples=40)
@given(
    record=st.builds(
        Account,
        st.just("ada"),
        texts.map(Secret),
        st.none() | st.binary(max_size=12).map(Secret),
        st.just([]),
        st.dictionaries(texts, texts.map(Secret), max_size=3),
    )
)
def test_any_record_reads_back_and_goes_back_as_the_bytes_that_it_was(record: Account) -> None:
    with MemoryEngine() as engine:
        sealed, keyless = Vault(Store(engine, secrets=keys("k1"))), Vault(Store(engine))
        for table in ("accounts", "packed"):
            view = sealed.view(table)
            view.insert("ada", record)
            assert view.require("ada") == record
            before = stored(engine)
            # Why also without keys: nothing is opened that goes back to where it was.
            for writer in (view, keyless.view(table)):
                writer.put("ada", writer.require("ada"))
                assert stored(engine) == before


# ---- without the key -------------------------------------------------------------------------------------------------------


def test_without_keys_everything_is_read_and_replaced_but_nothing_revealed() -> None:
    with sealed_vault() as (engine, vault):
        keyless = Vault(Store(engine))
        for table, key in FIRST.items():
            record = keyless.view(table).require(key)
            for secret in secrets_of(record):
                with pytest.raises(SecretKeyError, match="the store was opened without keys") as refused:
                    secret.reveal()
                assert refused.value.facts["key_id"] == "k1"
                assert refused.value.facts["table"] == table
        keyless.accounts.modify("ada", lambda record: msgspec.structs.replace(record, user_name="bob"))
        assert vault.accounts.require("ada") == msgspec.structs.replace(account(), user_name="bob")
        keyless.accounts.put("ada", Account("new", Secret("clear")))
        assert vault.accounts.require("ada").pass_word.reveal() == "clear"
        keyless.accounts.delete("ada")


def test_an_unknown_key_is_an_error_of_that_one_secret() -> None:
    with sealed_vault("old") as (engine, _):
        vault = Vault(Store(engine, secrets=keys("new")))
        vault.accounts.insert("eve", account())
        listed = dict(vault.accounts.list())
        assert listed["eve"].pass_word.reveal() == NEEDLE
        with pytest.raises(SecretKeyError, match="no key of this id is known") as refused:
            listed["ada"].pass_word.reveal()
        facts = refused.value.facts
        assert (facts["key_id"], facts["table"], facts["field"], facts["raw_key"]) == (
            "old",
            "accounts",
            "passWord",
            ADA.hex(),
        )
        vault.accounts.modify("ada", lambda record: msgspec.structs.replace(record, user_name="bob"))
        both = Vault(Store(engine, secrets=keys("new", "old")))
        assert both.accounts.require("ada").pass_word.reveal() == NEEDLE


def test_clear_and_sealed_records_stand_side_by_side() -> None:
    with MemoryEngine() as engine:
        filled(engine)
        vault = Vault(Store(engine, secrets=keys("k1")))
        assert vault.accounts.require("ada") == account()
        vault.accounts.insert("eve", account())
        values = stored(engine)
        assert NEEDLE.encode() in values[ADA]
        assert NEEDLE.encode() not in values[b"/vault/accounts/eve"]
        vault.accounts.put("ada", vault.accounts.require("ada"))
        assert NEEDLE.encode() not in stored(engine)[ADA]


# ---- other places ----------------------------------------------------------------------------------------------------------


def test_a_secret_that_goes_elsewhere_is_sealed_for_there() -> None:
    with sealed_vault() as (engine, vault):
        vault.packed.put("eve", vault.accounts.require("ada"))
        vault.accounts.put("eve", vault.packed.require("eve"))
        vault.words.put("w2", vault.accounts.require("ada").pass_word)
        vault.doors.put(DoorKey("h1", "d2"), Door("loft", vault.words.require("w2")))
        mixed = vault.accounts.require("ada")
        mixed.tokens = {"api": mixed.tokens["api"], "copy": mixed.pass_word}
        vault.accounts.put("ada", mixed)
        again = Vault(Store(engine, secrets=keys("k1")))
        assert again.packed.require("eve") == again.accounts.require("eve") == account()
        assert again.words.require("w2").reveal() == again.doors.require(DoorKey("h1", "d2")).code.reveal() == NEEDLE
        assert {name: secret.reveal() for name, secret in again.accounts.require("ada").tokens.items()} == {
            "api": NEEDLE,
            "copy": NEEDLE,
        }
        envelopes = [part for value in stored(engine).values() for part in value.split(b"keyplan/1:")[1:]]
        assert len(set(envelopes)) == len(envelopes)


MOVES: dict[str, Callable[[Vault], object]] = {
    "another key": lambda vault: vault.accounts.put("eve", vault.accounts.require("ada")),
    "another table": lambda vault: vault.packed.put("ada", vault.accounts.require("ada")),
    "another field": lambda vault: vault.accounts.modify(
        "ada", lambda record: msgspec.structs.replace(record, tokens={"api": record.pass_word})
    ),
    "a rename": lambda vault: vault.accounts.rename("ada", "eve"),
}


@pytest.mark.parametrize("move", MOVES)
def test_without_keys_a_sealed_secret_goes_nowhere_but_back(move: str) -> None:
    with sealed_vault() as (engine, _):
        before = stored(engine)
        with pytest.raises(SecretKeyError, match="a sealed secret is to be written in another place"):
            MOVES[move](Vault(Store(engine)))
        assert stored(engine) == before


def test_a_rename_keeps_what_the_layout_does_not_know() -> None:
    with sealed_vault() as (engine, vault):
        value = stored(engine)[ADA]
        engine.commit(Commit((), (Put(ADA, value[:-1] + b',"more":1.50}'),)))
        vault.accounts.rename("ada", "eve")
        assert stored(engine)[b"/vault/accounts/eve"].endswith(b',"more":1.50}')
        assert vault.accounts.require("eve") == account()


def raw_put(engine: Engine, raw_key: bytes, change: Callable[[dict[str, Any]], object]) -> None:
    tree = msgspec.json.decode(stored(engine)[ADA])
    change(tree)
    engine.commit(Commit((), (Put(raw_key, msgspec.json.encode(tree)),)))


# What somebody may do who can write the store and has no keys; each with the field that is read afterwards.
TAMPERED: dict[str, tuple[bytes, Callable[[dict[str, Any]], object], Callable[[Account], Any], str]] = {
    "to another record": (b"/vault/accounts/eve", lambda _: None, lambda r: r.pass_word, "passWord"),
    "to another field": (
        ADA,
        lambda tree: tree.update(passWord=tree.pop("tokens")["api"]),
        lambda r: r.pass_word,
        "passWord",
    ),
    "to another key of a mapping": (
        ADA,
        lambda tree: tree.update(tokens={"root": tree["tokens"]["api"]}),
        lambda r: r.tokens["root"],
        "tokens.root",
    ),
    "a copy beside it": (
        ADA,
        lambda tree: tree["tokens"].update(root=tree["tokens"]["api"]),
        lambda r: r.tokens["api"],
        "",
    ),
    "cut short": (
        ADA,
        lambda tree: tree.update(passWord={"$sealed": tree["passWord"]["$sealed"][:40]}),
        lambda r: r.pass_word,
        "passWord",
    ),
    "no envelope": (ADA, lambda tree: tree.update(passWord={"$sealed": "x"}), lambda r: r.pass_word, "passWord"),
}


@pytest.mark.parametrize("way", TAMPERED)
def test_a_ciphertext_that_was_moved_or_changed_is_refused_with_its_place(way: str) -> None:
    raw_key, change, secret, field = TAMPERED[way]
    with sealed_vault() as (engine, vault):
        raw_put(engine, raw_key, change)
        key = raw_key.rpartition(b"/")[2].decode()
        record = vault.accounts.require(key)
        with pytest.raises(CorruptionError) as refused:
            secret(record).reveal()
        assert refused.value.facts["raw_key"] == raw_key.hex()
        assert refused.value.facts["table"] == "accounts"
        assert refused.value.facts.get("field", "") == field
        shown = "".join(traceback.format_exception(refused.value))
        assert not traces(shown)


def test_the_value_of_another_table_is_refused() -> None:
    with sealed_vault() as (engine, vault):
        value = msgspec.msgpack.encode(msgspec.json.decode(stored(engine)[ADA]))
        engine.commit(Commit((), (Put(b"/vault/packed/ada", value),)))
        with pytest.raises(CorruptionError, match="sealed for another place"):
            vault.packed.require("ada").pass_word.reveal()


def test_a_list_of_secrets_may_change_its_order() -> None:
    with sealed_vault() as (_, vault):
        record = account()
        record.keys = [msgspec.structs.replace(record.keys[0], name=name, code=Secret(name)) for name in "abc"]
        vault.accounts.put("ada", record)
        read = vault.accounts.require("ada")
        read.keys = [read.keys[2], read.keys[0]]
        vault.accounts.put("ada", read)
        assert [(key.name, key.code.reveal()) for key in vault.accounts.require("ada").keys] == [("c", "c"), ("a", "a")]


# ---- what cannot be sealed -------------------------------------------------------------------------------------------------


class Cat(msgspec.Struct, tag=True):
    code: Secret[str]


class Dog(msgspec.Struct, tag=True):
    code: str


class Own(RawForm):
    code = "own"

    @property
    def value_type(self) -> Any:
        return Account


PET: Any = Cat | Dog
"""Why: a table's type is a class, to checkers."""


class Unfit(Layout, root="/unfit/"):
    pets = Table("pets/{name}", key=str, value=PET)
    owns: Any = Table("owns/{name}", key=str, value=Account, form=Own())


def test_what_cannot_be_sealed_is_refused_before_it_is_written() -> None:
    with MemoryEngine() as engine:
        clear, sealing = Unfit(Store(engine)), Unfit(Store(engine, secrets=keys("k1")))
        with pytest.raises(LayoutError, match="clear field of another member of a union"):
            sealing.pets.insert("felix", Cat(Secret("x")))
        with pytest.raises(LayoutError, match="cannot be sealed"):
            sealing.owns.insert("ada", b"x")
        assert not stored(engine)
        clear.pets.insert("felix", Cat(Secret("x")))
        assert sealing.pets.require("felix") == Cat(Secret("x"))


def test_who_has_the_description_alone_seals_and_reads_the_same() -> None:
    described = layout_class_of(layout_of_description(describe(Vault.spec)))
    with sealed_vault() as (engine, vault):
        plain: Any = described(Store(engine, secrets=keys("k1")))
        for table, key in FIRST.items():
            if table not in ("locks", "doors"):
                record = plain.view(table).require(key)
                assert not traces(repr(record) + repr(plain_value(record)))
                plain.view(table).put(key, record)
                expected = vault.view(table).require(key)
                assert [secret.reveal() for secret in secrets_of(expected)]
        plain.view("words").put("w3", Secret("new"))
        assert vault.words.require("w3").reveal() == "new"
        changed = {**plain.view("accounts").require("ada"), "passWord": Secret("new")}
        plain.view("accounts").put("ada", changed)
        assert vault.accounts.require("ada") == msgspec.structs.replace(account(), pass_word=Secret("new"))
        assert not any(b'"new"' in value for value in stored(engine).values())
