"""Rotations of secrets that are killed, from key to key and into the clear."""

from collections.abc import Iterator

from keyplan import Secret, SecretKeys
from keyplan.engine import KeyRange
from keyplan.jobs import UNPACED
from keyplan.maintenance import open_secrets, rotate_secrets, secret_counts
from keyplan.store import Store
from keyplan.testing.killing import KillScenario
from tests.kills.furniture import SMALL, Scene, nothing_is_open
from tests.secrets.vault import Account, Vault, account, filled

__all__ = ["openings", "rotations"]


def rotations() -> Iterator[Scene]:
    """Secrets in clear, of the old key and of the new one, sealed with the new one."""
    yield Scene(
        "rotate", KillScenario(job=_rotate, setup=_setup, beside=_write_accounts, holds=_is_rotated, profile=SMALL)
    )


def openings() -> Iterator[Scene]:
    """Secrets in clear and of two keys, left in clear."""
    yield Scene("open", KillScenario(job=_open, setup=_setup, beside=_write_in_clear, holds=_is_open, profile=SMALL))


def _keys(*ids: str) -> SecretKeys:
    """Keys whose nonces are all one, so that two ends can be compared byte for byte. Why here alone: it is unsafe."""
    return SecretKeys({key_id: key_id.encode().ljust(32) for key_id in ids}, ids[0], random=bytes)


_OLD, _NEW = _keys("old"), _keys("new", "old")


def _setup(store: Store) -> None:
    filled(store.engine, secrets=_OLD)
    clear, new = Vault(store), Vault(Store(store.engine, secrets=_NEW))
    for number in range(4):
        Vault(Store(store.engine, secrets=_OLD)).accounts.insert(f"old{number}", account())
        clear.accounts.insert(f"clear{number}", account())
        new.accounts.insert(f"new{number}", account())


def _rotate(store: Store) -> None:
    keyed = Store(store.engine, secrets=_NEW)
    rotate_secrets(keyed, Vault(keyed), pace=UNPACED)


def _write_accounts(store: Store) -> None:
    """What an application does that has the new key: a record comes, one goes, one changes."""
    vault = Vault(Store(store.engine, secrets=_NEW))
    vault.accounts.insert("beside", Account("eve", Secret("beside")))
    vault.accounts.delete("old1")
    vault.accounts.put("old2", Account("ada", Secret("changed")))


def _is_rotated(store: Store) -> None:
    nothing_is_open(store, Vault)
    with store.engine.snapshot() as snapshot:
        assert snapshot.count(KeyRange.of_prefix(b"\x00ks")) == 0
    counts = secret_counts(store, Vault.bound())
    assert all(each.clear == each.damaged == 0 and set(each.sealed) == {"new"} for each in counts), counts
    vault = Vault(Store(store.engine, secrets=_keys("new")))
    assert vault.accounts.require("old0") == account()


def _open(store: Store) -> None:
    keyed = Store(store.engine, secrets=_NEW)
    open_secrets(keyed, Vault(keyed), pace=UNPACED)


def _write_in_clear(store: Store) -> None:
    """What an application does that has no keys any more."""
    vault = Vault(store)
    vault.accounts.insert("beside", Account("eve", Secret("beside")))
    vault.accounts.delete("old1")
    vault.accounts.put("old2", Account("ada", Secret("changed")))


def _is_open(store: Store) -> None:
    nothing_is_open(store, Vault)
    with store.engine.snapshot() as snapshot:
        assert snapshot.count(KeyRange.of_prefix(b"\x00ks")) == 0
    counts = secret_counts(store, Vault.bound())
    assert all(each.damaged == 0 and not each.sealed for each in counts), counts
    assert Vault(store).accounts.require("old0") == Vault(store).accounts.require("new0") == account()
