"""Users of this machine for nodes, one for each: whoever breaks into one node is another user than the next node's.

They are not made here. PostgreSQL looks its user up by number, and refuses one that the machine has no name for.
"""

import pwd
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

from keyplan.apps.patroni.processes import users_of_processes
from keyplan.errors import InvalidInputError

__all__ = ["InstanceUsers", "owner_of", "owners_of_homes", "user_entry"]

_SOURCE: Final = "--instance-users"
_USERS_MAX: Final = 10_000
"""Why: each is looked up when a cell starts."""
_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_RANGE: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,10})")


class InstanceUsers(NamedTuple):
    """Names of users that nothing else runs as. Without any, all nodes run as one user."""

    names: tuple[str, ...] = ()

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Read names, numbers and ranges of numbers, with commas: `70000-70999` or `pg1,pg2`. Raises InvalidInputError."""
        # Why by number: to files and processes two names of one number are one user.
        names: dict[int, str] = {}
        for word in filter(None, (word.strip() for word in text.split(","))):
            for entry in _entries_of(word):
                names.setdefault(entry.pw_uid, entry.pw_name)
        if len(names) > _USERS_MAX:
            raise InvalidInputError(source=_SOURCE, problem=f"these are {len(names)} users: give at most {_USERS_MAX}")
        return cls(tuple(names.values()))

    def shared_out(self, taken: Sequence[Collection[int]], *, elsewhere: Collection[int] = ()) -> list[Self]:
        """Return a share for each of so many cells: no user that nobody has yet is in two of them.

        `taken` are the numbers of the users that nodes of each cell have, which stay the cell's; nobody is given those that
        are taken `elsewhere`.
        """
        numbers = {name: user_entry(name).pw_uid for name in self.names}
        everybody = {*elsewhere, *(number for one in taken for number in one)}
        shares = [[name for name in self.names if numbers[name] in one] for one in taken]
        for name in self.names:
            if numbers[name] not in everybody:
                min(shares, key=len).append(name)
        return [type(self)(tuple(share)) for share in shares]

    def free(self, taken: Collection[int] = ()) -> str | None:
        """Return a user whose number is not taken, and whom no process runs as; None when there is none."""
        # Why processes too: another cell of this machine may have been given the same users, and a removed node left some.
        unusable = {*taken, *users_of_processes()}
        return next((name for name in self.names if user_entry(name).pw_uid not in unusable), None)

    def words(self) -> str:
        """Return them as `of_text` reads them."""
        return ",".join(self.names)


def user_entry(name: str) -> pwd.struct_passwd:
    """Return what the machine knows of a user. Raises InvalidInputError when there is none of this name."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise InvalidInputError(source=name, problem="there is no such user on this machine") from None


def owner_of(home: Path) -> int | None:
    """Return whose a node's home is, by number; None when there is none. Why not by the plan: a name may be lost meanwhile."""
    try:
        return home.lstat().st_uid
    except OSError:
        return None


def owners_of_homes(nodes: Path) -> set[int]:
    """Return whose the homes in a folder of nodes are: also of nodes that cannot be read, or are half removed."""
    return {uid for home in nodes.glob("*/home") if (uid := owner_of(home)) is not None}


def _entries_of(word: str) -> list[pwd.struct_passwd]:
    found = _RANGE.fullmatch(word)
    first, last = (int(found[1]), int(found[2])) if found else (0, -1)
    if found and not first <= last < first + _USERS_MAX:
        raise InvalidInputError(source=_SOURCE, problem=f"{word} is no range of at most {_USERS_MAX} users: FIRST-LAST")
    if found:
        return [_entry_of(uid) for uid in range(first, last + 1)]
    return [_entry_of(int(word) if _NUMBER.fullmatch(word) else word)]


def _entry_of(user: int | str) -> pwd.struct_passwd:
    try:
        entry = pwd.getpwuid(user) if isinstance(user, int) else pwd.getpwnam(user)
    except (KeyError, OverflowError):
        option = f"--uid {user} pg{user}" if isinstance(user, int) else str(user)
        problem = (
            f"this machine has no user {user}, and PostgreSQL looks its user up: make it, as with"
            f" `useradd --system --no-create-home {option}`, or leave it out"
        )
        raise InvalidInputError(source=_SOURCE, problem=problem) from None
    if entry.pw_uid == 0:
        raise InvalidInputError(source=_SOURCE, problem="PostgreSQL refuses to run as root: leave that user out")
    return entry
