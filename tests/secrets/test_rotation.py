"""A rotation seals every secret with the current key, beside whoever writes, and nothing else of a record changes."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from keyplan import Layout, Secret, SecretKeys, Table
from keyplan.engine import Commit, Engine, MemoryEngine, Put, WrappedEngine
from keyplan.errors import InvalidInputError, LayoutError, StoppedError, TargetTakenError
from keyplan.jobs import Progress
from keyplan.maintenance import JobKind, RotationReport, open_jobs, open_secrets, rotate_secrets, secret_counts
from keyplan.store import Store
from keyplan.testing.checked import assert_healthy
from tests.secrets.test_sealed_store import ADA, Unfit, keys, stored
from tests.secrets.vault import NEEDLE, Account, Vault, account, filled

OLD, NEW = keys("old"), keys("new", "old")


def rotated(engine: Engine, secrets: SecretKeys = NEW, **options: Any) -> RotationReport:
    store = Store(engine, secrets=secrets)
    return rotate_secrets(store, Vault(store), **options)


def by_key(engine: Engine) -> dict[str, int]:
    """How many secrets of all tables are sealed with which key; those in clear below the empty id."""
    found: dict[str, int] = {}
    for counts in secret_counts(engine, Vault.bound()):
        for key_id, number in (*counts.sealed.items(), ("", counts.clear)):
            found[key_id] = found.get(key_id, 0) + number
    return {key_id: number for key_id, number in found.items() if number}


def test_secrets_are_counted_by_key_without_one() -> None:
    with MemoryEngine() as engine:
        filled(engine)
        assert by_key(engine) == {"": 15}
        Vault(Store(engine, secrets=OLD)).accounts.put("ada", account())
        Vault(Store(engine, secrets=NEW)).words.put("w1", Secret("x"))
        Vault(Store(engine)).accounts.put("bare", Account("bare", Secret("x")))
        assert by_key(engine) == {"old": 5, "new": 1, "": 10}
        counts = {each.table: each for each in secret_counts(engine, Vault.bound())}
        assert (counts["accounts"].records, counts["accounts"].clear, counts["accounts"].sealed) == (2, 1, {"old": 5})
        engine.commit(Commit((), (Put(b"/vault/accounts/bad", b"{"),)))
        engine.commit(Commit((), (Put(b"/vault/accounts/odd", b'{"passWord":{"$sealed":"?"}}'),)))
        assert {each.table: each.damaged for each in secret_counts(engine, Vault.bound())}["accounts"] == 2


def test_a_rotation_seals_what_is_clear_or_of_another_key_and_changes_nothing_else() -> None:
    with MemoryEngine() as engine:
        filled(engine, secrets=OLD)
        Vault(Store(engine)).accounts.insert("clear", account())
        Vault(Store(engine, secrets=NEW)).accounts.insert("new", account())
        odd = b'{"more":1.50,"userName":"\\u0061da", "passWord":"x"}'
        engine.commit(Commit((), (Put(b"/vault/accounts/odd", odd), Put(b"/vault/by_user/ada/odd", b""))))
        before = stored(engine)
        told: list[Progress] = []
        report = rotated(engine, progress=told.append)
        assert (report.key_id, report.records, report.written, report.failed) == ("new", 10, 9, 0)
        assert told[0].item == "accounts"
        assert set(by_key(engine)) == {"new"}
        after = stored(engine)
        assert after.keys() == before.keys()
        assert after[b"/vault/accounts/new"] == before[b"/vault/accounts/new"]
        assert after[b"/vault/accounts/odd"].startswith(b'{"more":1.50,"userName":"\\u0061da","passWord":{"$sealed":')
        vault = Vault(Store(engine, secrets=keys("new")))
        assert (
            vault.accounts.require("ada") == vault.packed.require("ada") == vault.accounts.require("clear") == account()
        )
        assert vault.words.require("w1").reveal() == vault.papers.require("p1").text.reveal() == NEEDLE
        assert vault.bytes_.require("b1").reveal() == vault.locks.require("l1").code.reveal() == NEEDLE.encode()
        assert rotated(engine).written == 0
        assert_healthy(Store(engine), Vault, has_others=True)
        assert open_jobs(engine) == []


def test_a_record_keeps_its_lease() -> None:
    with MemoryEngine() as engine:
        filled(engine)
        lease = engine.lease(100_000)
        value = stored(engine)[ADA]
        engine.commit(Commit((), (Put(ADA, value, lease.id),)))
        rotated(engine)
        with engine.snapshot() as snapshot:
            entry = snapshot.get(ADA)
        assert entry is not None
        assert entry.lease == lease.id


class Racing(WrappedEngine):
    """An application writes between what the rotation has read and what it commits, so many times."""

    def __init__(self, inner: Engine, write: Callable[[], object], times: int) -> None:
        super().__init__(inner, closes_inner=False)
        self._write, self._left = write, times

    def commit(self, commit: Commit) -> int:
        if self._left and any(mutation.key == ADA for mutation in commit.mutations if isinstance(mutation, Put)):
            self._left -= 1
            self._write()
        return self.inner.commit(commit)


@pytest.mark.parametrize("times", [1, 2, 5])
def test_no_write_of_an_application_is_lost(times: int) -> None:
    with MemoryEngine() as engine:
        filled(engine, secrets=OLD)
        old = Vault(Store(engine, secrets=OLD))
        for number in range(10):
            old.accounts.insert(f"more{number}", account())
        written: list[str] = []

        def write() -> None:
            written.append(f"written{len(written)}")
            old.accounts.modify("ada", lambda record: msgspec.structs.replace(record, pass_word=Secret(written[-1])))

        report = rotated(Racing(engine, write, times))
        assert report.failed == 0
        assert len(written) == times
        assert set(by_key(engine)) == {"new"}
        assert Vault(Store(engine, secrets=NEW)).accounts.require("ada").pass_word.reveal() == written[-1]


class Stopping:
    """Tells to stop after so many looks."""

    def __init__(self, looks: int) -> None:
        self._left = looks

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


def test_what_is_stopped_stands_open_and_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyplan.maintenance.secret_rotation._BATCH_RECORDS_MAX", 4)
    with MemoryEngine() as engine:
        filled(engine, secrets=OLD)
        for number in range(12):
            Vault(Store(engine, secrets=OLD)).accounts.insert(f"more{number}", account())
        with pytest.raises(StoppedError, match="the rotation of the secrets of Vault is not finished"):
            rotated(engine, stop=Stopping(6), command=("secrets", "rotate", "--layout", "vault:Vault"))
        counted = by_key(engine)
        assert counted.keys() == {"new", "old"}
        [job] = open_jobs(engine)
        assert (job.kind, job.subject) == (JobKind.ROTATION, "secrets below /vault/")
        assert job.command_line("memory:") == "keyplan secrets rotate --layout vault:Vault --store memory:"
        report = rotated(engine)
        assert report.records < 19
        assert set(by_key(engine)) == {"new"}
        assert open_jobs(engine) == []


class Two(Layout, root="/two/", sealed_as="Two"):
    packed = Table("packed/{name}", key=str, value=Account, form="msgpack")
    words = Table("words/{name}", key=str, value=Secret[str])


class Three(Layout, root="/two/", sealed_as="Two"):
    accounts = Table("accounts/{name}", key=str, value=Account)
    packed = Table("packed/{name}", key=str, value=Account, form="msgpack")
    words = Table("words/{name}", key=str, value=Secret[str])


def test_a_rotation_of_a_layout_that_has_grown_passes_over_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyplan.maintenance.secret_rotation._BATCH_RECORDS_MAX", 4)
    with MemoryEngine() as engine:
        grown = Three(Store(engine))
        grown.accounts.insert("ada", account())
        for number in range(12):
            grown.packed.insert(f"p{number}", account())
        with pytest.raises(StoppedError):
            rotate_secrets(store := Store(engine, secrets=NEW), Two(store), stop=Stopping(4))
        [job] = open_jobs(engine)
        assert job.kind is JobKind.ROTATION
        rotate_secrets(store := Store(engine, secrets=NEW), Three(store))
        counts = {each.table: each for each in secret_counts(engine, Three.bound())}
        assert (counts["accounts"].clear, counts["packed"].clear) == (0, 0)


def test_a_rotation_to_another_key_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyplan.maintenance.secret_rotation._BATCH_RECORDS_MAX", 4)
    with MemoryEngine() as engine:
        filled(engine, secrets=OLD)
        for number in range(12):
            Vault(Store(engine, secrets=OLD)).accounts.insert(f"more{number}", account())
        with pytest.raises(StoppedError):
            rotated(engine, stop=Stopping(6))
        newer = keys("newer", "new", "old")
        assert rotated(engine, newer).written == 19
        assert set(by_key(engine)) == {"newer"}


def test_whoever_takes_the_rotation_over_ends_the_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyplan.maintenance.secret_rotation._BATCH_RECORDS_MAX", 4)
    with MemoryEngine() as engine:
        filled(engine, secrets=OLD)
        for number in range(12):
            Vault(Store(engine, secrets=OLD)).accounts.insert(f"more{number}", account())
        taken: list[bool] = []

        def take_over(_progress: Progress) -> None:
            if not taken:
                taken.append(True)
                with pytest.raises(StoppedError):
                    rotated(engine, stop=Stopping(6))

        with pytest.raises(TargetTakenError, match="another process does this work now"):
            rotated(engine, progress=take_over)
        assert by_key(engine).keys() == {"new", "old"}
        assert rotated(engine).failed == 0
        assert set(by_key(engine)) == {"new"}
        assert open_jobs(engine) == []


def test_a_record_that_does_not_open_is_named_and_left() -> None:
    with MemoryEngine() as engine:
        filled(engine, secrets=keys("lost"))
        Vault(Store(engine, secrets=OLD)).accounts.insert("eve", account())
        engine.commit(Commit((), (Put(b"/vault/accounts/mal", stored(engine)[b"/vault/accounts/eve"]),)))
        engine.commit(Commit((), (Put(b"/vault/accounts/zoe", b"{"),)))
        before = stored(engine)
        report = rotated(engine)
        assert (report.records, report.written, report.failed) == (10, 1, 9)
        problems = {each.raw_key: each.problem for each in report.left}
        assert "no key of this id is known" in problems[ADA]
        assert "sealed for another place" in problems[b"/vault/accounts/mal"]
        assert "cannot be read" in problems[b"/vault/accounts/zoe"]
        changed = {key for key, value in stored(engine).items() if before.get(key) != value}
        assert changed == {b"/vault/accounts/eve"}
        assert open_jobs(engine) == []


def test_what_cannot_be_rotated_is_refused_before_anything_is_written() -> None:
    with MemoryEngine() as engine:
        filled(engine)
        before = stored(engine)
        store = Store(engine)
        with pytest.raises(InvalidInputError, match="there are no keys to seal with"):
            rotate_secrets(store, Vault(store))
        with pytest.raises(InvalidInputError, match="not bound to this store"):
            rotate_secrets(Store(engine, secrets=NEW), Vault(store))
        keyed = Store(engine, secrets=NEW)
        with pytest.raises(LayoutError, match="union"):
            rotate_secrets(keyed, Unfit(keyed))
        assert stored(engine) == before


# ---- the way back ----------------------------------------------------------------------------------------------------------


def opened(engine: Engine, **options: Any) -> RotationReport:
    store = Store(engine, secrets=NEW)
    return open_secrets(store, Vault(store), **options)


def test_secrets_of_several_keys_are_left_in_clear_byte_for_byte_as_without_keys() -> None:
    with MemoryEngine() as engine, MemoryEngine() as clear:
        filled(engine, secrets=OLD)
        Vault(Store(engine, secrets=NEW)).accounts.put("ada", account())
        report = opened(engine)
        assert (report.key_id, report.records, report.written, report.failed) == ("", 7, 7, 0)
        filled(clear)
        assert stored(engine) == stored(clear)
        assert opened(engine).written == 0


def test_a_record_that_does_not_open_is_left_and_named_while_the_others_are_opened() -> None:
    with MemoryEngine() as engine:
        filled(engine, secrets=OLD)
        lost = keys("lost")
        Vault(Store(engine, secrets=lost)).accounts.insert("eve", account())
        before = stored(engine)[b"/vault/accounts/eve"]
        report = opened(engine)
        assert (report.written, report.failed) == (7, 1)
        assert [(left.table, left.raw_key) for left in report.left] == [("accounts", b"/vault/accounts/eve")]
        assert stored(engine)[b"/vault/accounts/eve"] == before


def test_opening_ends_a_rotation_that_was_stopped_and_the_other_way_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyplan.maintenance.secret_rotation._BATCH_RECORDS_MAX", 4)
    with MemoryEngine() as engine:
        filled(engine, secrets=OLD)
        with pytest.raises(StoppedError):
            rotated(engine, stop=Stopping(2))
        [job] = open_jobs(engine)
        assert job.subject == "secrets below /vault/"
        opened(engine)
        assert open_jobs(engine) == []
        assert rotated(engine).written == 7
        with pytest.raises(StoppedError):
            opened(engine, stop=Stopping(2))
        [job] = open_jobs(engine)
        assert job.subject == "secrets below /vault/, to clear"
        rotated(engine)
        assert set(by_key(engine)) == {"new"}


def test_a_store_without_keys_opens_nothing() -> None:
    with MemoryEngine() as engine:
        filled(engine, secrets=OLD)
        with pytest.raises(InvalidInputError, match="there are no keys to open with"):
            open_secrets(Store(engine), Vault(Store(engine)))
