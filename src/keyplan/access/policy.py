"""Principals with their grants, and decisions: who may do what, and which line of the access file says so. Pure.

A grant is for one act on one target, and there is no other way to anything: an act implies no other one, and no line takes
back what another one grants.
"""

import hmac
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Final, NamedTuple, TypeVar

from keyplan.access.labels import Label
from keyplan.access.targets import EVERYTHING, Target
from keyplan.operations import Act

__all__ = [
    "SUMS_OF_NOTHING",
    "TOKEN_CHARACTERS_MIN",
    "Decision",
    "Grant",
    "Policy",
    "Principal",
    "TokenSum",
    "sum_of_token",
]

K = TypeVar("K", bound=int | str | bytes)

TOKEN_CHARACTERS_MIN: Final = 32
"""Why: a token of so many characters has 128 bits or more however it was made; those of `keyplan access` have 256."""

_TOKEN_CHARACTERS_MAX: Final = 1_024
"""Why: what is longer is no token of ours, and is not worth the reading."""

_INDEX_BYTES: Final = 8

SUMS_OF_NOTHING: Final = frozenset(sha256(text).digest() for text in (b"", b"\n"))
"""Why: `printf "$TOKEN" | sha256sum` and `echo` make them of a variable that is empty."""


class Grant(NamedTuple):
    """One act on one target, and the line of the access file that says so."""

    act: Act
    on: Target
    line: int


class TokenSum(NamedTuple):
    """A token by its SHA-256 sum, and the moment from which it counts no more.

    Why a plain sum, without salt or stretching: those are for passwords, which are guessed. A token has 256 random bits, and
    nobody finds one of a given sum, however cheap a guess is. It is why a token that is short is refused whatever its sum.
    """

    digest: bytes
    until: datetime | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Principal:
    """Who asks, by name; how they are known, and what they are granted. `line` is that of their table.

    `certificates` are subjects and alternative names as `Policy.known_by_certificate` takes them; `users` are uids and names.
    `labels` say what it is in the words of an application.
    """

    name: str
    line: int = 0
    tokens: tuple[TokenSum, ...] = field(default=(), repr=False)
    certificates: tuple[str, ...] = ()
    users: tuple[int | str, ...] = ()
    labels: tuple[Label, ...] = ()
    grants: tuple[Grant, ...] = ()

    def labelled(self, kind: str) -> frozenset[str]:
        """Return the names that its labels of a kind give."""
        return frozenset(label.name for label in self.labels if label.kind == kind)


class Decision(NamedTuple):
    """Whether something is allowed, the line of the access file that allows it, and the reason as a sentence."""

    is_allowed: bool
    line: int | None
    reason: str


class Policy:
    """All principals with their grants; without any, nobody may do anything. Never changed once it is made.

    Raises ValueError for a name, token, certificate or user that two principals have, or one has twice.
    """

    def __init__(self, principals: Iterable[Principal] = ()) -> None:
        self.principals: Final[Sequence[Principal]] = tuple(principals)
        self._by_name = _index((one.name, one) for one in self.principals)
        self._by_certificate = _index((name, one) for one in self.principals for name in one.certificates)
        users = ((user, one) for one in self.principals for user in one.users)
        self._by_user: Mapping[int | str, Principal] = _index(users)
        _index((token.digest, one) for one in self.principals for token in one.tokens)
        self._by_token: dict[bytes, list[tuple[TokenSum, Principal]]] = {}
        for one in self.principals:
            for token in one.tokens:
                self._by_token.setdefault(token.digest[:_INDEX_BYTES], []).append((token, one))

    def beside(self, others: Iterable[Principal]) -> "Policy":
        """Return this policy with more principals, those whose names, tokens, certificates and users are nobody's before them.

        Why the rest is left out, and is no error: what a program keeps must not take away what an access file says.
        """
        marks = {mark for one in self.principals for mark in _marks(one)}
        added: list[Principal] = []
        for other in others:
            known_by = _marks(other)
            if marks.isdisjoint(known_by) and len(set(known_by)) == len(known_by):
                marks.update(known_by)
                added.append(other)
        return Policy((*self.principals, *added))

    # ---- who asks --------------------------------------------------------------------------------------------------------

    def named(self, name: str) -> Principal | None:
        """Return the principal of a name."""
        return self._by_name.get(name)

    def known_by_token(self, text: str, *, at: datetime) -> Principal | None:
        """Return whose token this is at a moment, or None.

        What the time of an answer may tell is how much of the sum of the given text agrees with a stored sum: the look-up by
        its first bytes does not hide that, as comparing all sums would. Nothing follows from it. A sum cannot be steered: to
        have one more byte agree, a guesser tries 256 texts more, and a whole sum, known to everybody, leads to no token. The
        comparison that decides takes the same time for every sum.
        """
        if not TOKEN_CHARACTERS_MIN <= len(text) <= _TOKEN_CHARACTERS_MAX:
            return None
        digest = sum_of_token(text)
        for token, principal in self._by_token.get(digest[:_INDEX_BYTES], ()):
            if hmac.compare_digest(token.digest, digest):
                return principal if token.until is None or at < token.until else None
        return None

    def known_by_certificate(self, subject: str, names: Collection[str]) -> Principal | None:
        """Return whom a TLS client certificate names, or None; also when its names are those of two principals.

        `subject` is as RFC 4514 writes it, `names` are the alternative names with their kind: `DNS:shop.example`. Whether the
        certificate is good was found out before: who signed it, and until when.
        """
        return _only(self._by_certificate.get(name) for name in (f"subject:{subject}", *names))

    def known_by_user(self, uid: int, name: str | None) -> Principal | None:
        """Return whom a user of this machine is, by number or by name, or None; also when they are two principals."""
        return _only((self._by_user.get(uid), self._by_user.get(name) if name else None))

    # ---- what they may ---------------------------------------------------------------------------------------------------

    def grants_of(self, principal: str) -> Sequence[Grant]:
        """Return all that a principal is granted, in the order of the file; nothing for one that there is not.

        Which key spaces an application has is the registry's to say, and which prefix a key space has.
        """
        known = self._by_name.get(principal)
        return known.grants if known else ()

    def decide(self, principal: str, act: Act, on: Target) -> Decision:
        """Decide whether a principal may act on a target: by the first of their grants that covers it; without one, no."""
        known = self._by_name.get(principal)
        if known is None:
            return Decision(is_allowed=False, line=None, reason=f"there is no principal {principal}")
        grant = _granting(known, act, on)
        if grant is None:
            return Decision(is_allowed=False, line=None, reason=f"no line grants {principal} to {act} {on}")
        reason = f"line {grant.line} grants {principal} to {act} {grant.on}"
        return Decision(is_allowed=True, line=grant.line, reason=reason)

    def allows(self, principal: str, act: Act, on: Target) -> bool:
        """Tell whether a principal may act on a target: what `decide` says, without its words."""
        known = self._by_name.get(principal)
        return known is not None and _granting(known, act, on) is not None

    def may(self, principal: str, *acts: Act) -> bool:
        """Tell whether a principal may do all these acts on everything."""
        return all(self.allows(principal, act, EVERYTHING) for act in acts)


def _granting(principal: Principal, act: Act, on: Target) -> Grant | None:
    """Return the first grant that lets a principal act on a target."""
    for grant in principal.grants:
        if grant.act is act and grant.on.covers(on):
            return grant
    return None


def sum_of_token(text: str) -> bytes:
    """Return the sum by which a token is kept."""
    return sha256(text.encode("utf-8", "surrogateescape")).digest()


def _marks(principal: Principal) -> list[tuple[str, object]]:
    """All that tells a principal from the others."""
    return [
        ("name", principal.name),
        *(("token", token.digest) for token in principal.tokens),
        *(("certificate", name) for name in principal.certificates),
        *(("user", user) for user in principal.users),
    ]


def _index(pairs: Iterable[tuple[K, Principal]]) -> dict[K, Principal]:
    found: dict[K, Principal] = {}
    for key, principal in pairs:
        if key in found:
            # Why without the key: it may be the sum of a token.
            raise ValueError(f"{principal.name} has a name, token, certificate or user that stands twice")
        found[key] = principal
    return found


def _only(found: Iterable[Principal | None]) -> Principal | None:
    """The only principal that is found. Why none of two: which of them asks is not known."""
    different = {one for one in found if one is not None}
    return different.pop() if len(different) == 1 else None
