"""User accounts: rights and who may give them, passwords, and what callers may do to whom. HTTP is in rest_users.py.

The keys of users are folded to lower case (R9); the record keeps the name as it was written. A caller's rights are read in the
transaction of the act, so that a right that was taken away is gone from that commit on.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

import bcrypt
import msgspec

from keyplan.apps.cloudchamber.indexed import CloudChamberIndexed
from keyplan.apps.cloudchamber.layout import ServedLayout
from keyplan.apps.cloudchamber.records import Rights, User
from keyplan.apps.cloudchamber.refusals import (
    RefusedError,
    already_exists,
    invalid,
    newer_version,
    no_indexes,
    not_found,
    permission_denied,
    quoted,
)
from keyplan.codec import Secret
from keyplan.errors import CorruptionError
from keyplan.layout import Damaged, Versioned
from keyplan.server import LOGGER

__all__ = [
    "ALL_RIGHTS",
    "Accounts",
    "StoredUser",
    "described_rights",
    "hashed_password",
    "is_password",
    "rights_beyond",
    "rights_of",
]

_COST: Final = 10
"""Why: the original's, so that both check each other's passwords in the same time."""
_COST_MAX: Final = 15
"""Why: each step doubles the work. A hash of this cost is judged in two seconds, the highest that bcrypt has in a day."""
PASSWORD_BYTES_MAX: Final = 72
"""Why: bcrypt reads no more; a longer password would be as good as its first 72 bytes."""

_WORDS: Final = (
    ("can_inject_faults", "can inject faults"),
    ("can_manage_accounts", "can manage accounts"),
    ("can_modify_inventory", "can modify inventory"),
    ("can_modify_workloads", "can modify workloads"),
    ("can_perform_repairs", "can perform repairs"),
    ("can_step_time", "can modify the simulated time"),
)

ALL_RIGHTS: Final = Rights(
    can_manage_accounts=True,
    can_step_time=True,
    can_modify_workloads=True,
    can_modify_inventory=True,
    can_inject_faults=True,
    can_perform_repairs=True,
)

StoredUser = Versioned[str, User]


# ---- rights ----------------------------------------------------------------------------------------------------------


def rights_of(user: User) -> Rights:
    """Return what a user may do; the flag of old records, from before there were rights, counts (5.2)."""
    return Rights(can_manage_accounts=user.can_manage_accounts) if user.rights is None else user.rights


def described_rights(rights: Rights) -> str:
    """Return the rights in words, in the order in which the original lists them."""
    return ", ".join(words for name, words in _WORDS if getattr(rights, name))


def rights_beyond(holder: Rights, rights: Rights, *, had: Rights | None = None) -> list[str]:
    """Return the rights that `rights` has newly against `had` and that the holder does not have.

    The rule: every right newly granted must be held by who grants it.
    """
    before = had or Rights()
    return [
        words
        for name, words in _WORDS
        if getattr(rights, name) and not getattr(before, name) and not getattr(holder, name)
    ]


# ---- passwords -------------------------------------------------------------------------------------------------------


def hashed_password(password: str) -> bytes:
    """Return the bcrypt hash of a password; takes 50 ms of a core. Raises RefusedError for one that bcrypt cannot tell."""
    raw = password.encode()
    if not raw or len(raw) > PASSWORD_BYTES_MAX or b"\x00" in raw:
        raise invalid(f"a password has 1 to {PASSWORD_BYTES_MAX} bytes, none of them zero")
    return bcrypt.hashpw(raw, bcrypt.gensalt(_COST, prefix=b"2a"))


def is_password(password: bytes, password_hash: bytes | None) -> bool:
    """Tell whether a password has this hash. Without one the answer is no, after the same work."""
    known = password_hash if password_hash is not None and _is_hash(password_hash) else _hash_of_nobody()
    fits = 0 < len(password) <= PASSWORD_BYTES_MAX and b"\x00" not in password
    try:
        is_equal = bcrypt.checkpw(password if fits else b"-", known)
    except ValueError:
        # Why: sixty bytes that begin as a hash does, and are none, may be stored by other programs.
        return is_password(password, None)
    return is_equal and fits and known is password_hash


def _is_hash(password_hash: bytes) -> bool:
    """Whether these bytes have the form of a bcrypt hash; anything else, which other programs may have stored, fits nothing."""
    has_form = len(password_hash) == 60 and password_hash[:4] in {b"$2a$", b"$2b$", b"$2y$"}
    return has_form and password_hash[4:6].isdigit() and int(password_hash[4:6]) <= _COST_MAX


@cache
def _hash_of_nobody() -> bytes:
    return bcrypt.hashpw(bcrypt.gensalt(4), bcrypt.gensalt(_COST, prefix=b"2a"))


# ---- accounts --------------------------------------------------------------------------------------------------------


class Accounts:
    """The users of one name space. `caller` is always the key of a user, whose rights decide; refusals are RefusedError."""

    def __init__(self, chamber: ServedLayout) -> None:
        self._chamber = chamber
        self._system_account = ""

    def bootstrap(self, name: str, password: str) -> bool:
        """Make sure of the system account: all rights, protected; return whether the password is the account's (5.2).

        One that is there is left as it is, but for a record from before there were rights, which is migrated: as the account
        that everything is managed with, it gets them all if it had the old flag.
        """
        key = self._system_account = name.lower()
        password_hash = Secret(hashed_password(password))
        created = User(name=name, password_hash=password_hash, enabled=True, never_delete=True, rights=ALL_RIGHTS)

        def work(transaction: ServedLayout) -> Secret[bytes]:
            there = transaction.users.get(key)
            if there is None:
                transaction.users.insert(key, created)
                return created.password_hash
            if there.rights is None:
                rights = ALL_RIGHTS if there.can_manage_accounts else Rights()
                transaction.users.update(key, msgspec.structs.replace(there, rights=rights, can_manage_accounts=False))
            return there.password_hash

        return is_password(password.encode(), self._chamber.run(work).reveal())

    def has_password(self, name: str, password: str) -> bool:
        """Tell whether somebody can log in as this user with this password."""
        found = self.find(name.lower())
        if found is None or not found.record.enabled:
            return False
        return is_password(password.encode(), found.record.password_hash.reveal())

    def find(self, key: str) -> StoredUser | None:
        """Return a user with its revision, or None; None, too, for one whose record is damaged: it may do nothing."""
        try:
            return self._chamber.users.versioned(key)
        except CorruptionError as error:
            LOGGER.error("the record of a user is damaged", extra={"facts": {"error": str(error)}})
            return None

    def may_manage(self, caller: str, key: str | None = None) -> bool:
        """Tell whether the caller may manage accounts, or is the user concerned."""
        found = self.find(caller)
        user = None if found is None else found.record
        return user is not None and user.enabled and (caller == key or rights_of(user).can_manage_accounts)

    def holds(self, caller: str, right: str) -> bool:
        """Tell whether the caller has a right, as the record spells it."""
        found = self.find(caller)
        return found is not None and found.record.enabled and bool(getattr(rights_of(found.record), right))

    def list(self, caller: str, *, right: str | None = None) -> Sequence[StoredUser | Damaged[str]]:
        """Return all users by key, or those with a right, as the record spells it; damaged ones in their places.

        Raises RefusedError: 403, and 409 where a right is given and the store has no indexes.
        """
        if not self.may_manage(caller):
            raise permission_denied()
        with self._chamber.snapshot() as state:
            if right is None:
                return [*state.users.rows()]
            if not isinstance(state, CloudChamberIndexed):
                raise no_indexes()
            return [*state.users_by_right.rows(right)]

    def read(self, caller: str, name: str) -> StoredUser:
        """Return a user. Raises RefusedError (403, 404)."""
        if not self.may_manage(caller, name):
            raise permission_denied()
        return self._present(self._chamber, name)

    def create(self, caller: str, name: str, password: str, *, enabled: bool, rights: Rights) -> int:
        """Create a user; return its revision. Raises RefusedError: 403 also for rights that the caller does not have; 400."""
        if not self.may_manage(caller):
            raise permission_denied()
        user = User(name=name, password_hash=Secret(hashed_password(password)), enabled=enabled, rights=rights)

        def work(transaction: ServedLayout) -> ServedLayout:
            self._require_rights(transaction, caller, "", rights)
            if transaction.users.exists(name.lower()):
                raise already_exists("user", name)
            transaction.users.insert(name.lower(), user)
            return transaction

        return self._chamber.run(work).revision

    def update(self, caller: str, name: str, *, enabled: bool, rights: Rights, expected_revision: int) -> StoredUser:
        """Replace what a user may do, and whether it may log in; return it. Raises RefusedError: 403, 404, 409."""

        def change(transaction: ServedLayout, there: StoredUser) -> User:
            if there.record.never_delete and not enabled:
                raise RefusedError(403, f"user {quoted(name)} is protected and cannot be disabled")
            self._require_rights(transaction, caller, name, rights, had=rights_of(there.record))
            return msgspec.structs.replace(there.record, enabled=enabled, rights=rights, can_manage_accounts=False)

        return self._change(caller, name, expected_revision, change)

    def set_password(
        self, caller: str, name: str, *, old: str, new: str, force: bool, expected_revision: int
    ) -> StoredUser:
        """Give a user another password; return it. Raises RefusedError: 400, 403 also for a wrong old one, 404, 409.

        Who changes the password of another can log in as that user: it takes all the rights of that user. `force` is for the
        passwords of others: whoever finds a session open must not take the account over.
        """
        known = self.read(caller, name).record.password_hash
        force = force and caller != name
        if not force and not is_password(old.encode(), known.reveal()):
            raise permission_denied()
        password_hash = Secret(hashed_password(new))

        def change(transaction: ServedLayout, there: StoredUser) -> User:
            if not force and there.record.password_hash != known:
                raise newer_version("user", name)
            if caller != name:
                self._require_rights(transaction, caller, name, rights_of(there.record))
            return msgspec.structs.replace(there.record, password_hash=password_hash)

        return self._change(caller, name, expected_revision, change)

    def delete(self, caller: str, name: str) -> None:
        """Delete a user, at whatever revision, a damaged one too. Raises RefusedError: 403 also for a protected one, 404."""

        def work(transaction: ServedLayout) -> None:
            self._require_rights(transaction, caller, name)
            try:
                is_protected = self._present(transaction, name).record.never_delete
            except CorruptionError:
                # Why deleted all the same: whoever manages accounts has no other way to be rid of it.
                is_protected = name == self._system_account
            if is_protected:
                raise RefusedError(403, f"user {quoted(name)} is protected and cannot be deleted")
            transaction.users.delete(name, damaged_ok=True)

        self._chamber.run(work)

    def _change(
        self,
        caller: str,
        name: str,
        expected_revision: int,
        change: Callable[[ServedLayout, StoredUser], User],
    ) -> StoredUser:
        def work(transaction: ServedLayout) -> tuple[ServedLayout, User]:
            self._require_rights(transaction, caller, name)
            there = self._present(transaction, name)
            if there.revision != expected_revision:
                raise newer_version("user", name)
            record = change(transaction, there)
            transaction.users.update(name, record)
            return transaction, record

        transaction, record = self._chamber.run(work)
        return Versioned(name, record, 0, transaction.revision, 0, 0)

    @staticmethod
    def _present(chamber: ServedLayout, name: str) -> StoredUser:
        there = chamber.users.versioned(name)
        if there is None:
            raise not_found("user", name)
        return there

    @staticmethod
    def _require_rights(
        chamber: ServedLayout, caller: str, name: str, rights: Rights | None = None, *, had: Rights | None = None
    ) -> None:
        """Raise RefusedError unless the caller manages accounts or is `name`, and holds the rights that are newly given."""
        user = chamber.users.get(caller)
        if user is None or not user.enabled:
            raise permission_denied()
        held = rights_of(user)
        if not (held.can_manage_accounts or caller == name):
            raise permission_denied()
        if rights is not None and rights_beyond(held, rights, had=had):
            raise permission_denied()
