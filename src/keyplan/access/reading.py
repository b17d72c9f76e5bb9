"""An access file's text as a policy: every statement checked, every refusal with its line and the remedy.

[principals.shop]
tokens = ["sha256:<64 digits>", "sha256:<64 digits> until 2026-12-01T00:00:00Z"]
certificates = ["subject:CN=shop,O=Example", "DNS:shop.example"]
users = ["shop", 1001]
labels = ["project:shop", "partition:east1"]
read = ["application:shop"]
write = ["keyspace:orders", "prefix:/service/"]
administer = ["operation:sweepKeySpace"]
audit = ["everything"]
"""

import re
from collections.abc import Iterator
from datetime import datetime
from ipaddress import ip_address
from typing import Any, Final

from keyplan.access.document import Statement, Table, tables_of
from keyplan.access.labels import Label, label_of
from keyplan.access.policy import SUMS_OF_NOTHING, Grant, Policy, Principal, TokenSum
from keyplan.access.targets import target_of
from keyplan.errors import InvalidInputError
from keyplan.operations import Act

__all__ = ["CERTIFICATES", "CERTIFICATE_KINDS", "LABELS", "TOKENS", "USERS", "certificate_of", "read_policy", "user_of"]

TOKENS: Final = "tokens"
CERTIFICATES: Final = "certificates"
USERS: Final = "users"
LABELS: Final = "labels"

CERTIFICATE_KINDS: Final = ("subject", "DNS", "URI", "email", "IP")
"""What of a certificate a principal is known by: its subject, or an alternative name of one of these kinds."""

_TYPE: Final = r"(?:[A-Za-z][A-Za-z0-9-]*|[0-9]+(?:\.[0-9]+)*)"
_PART: Final = rf"{_TYPE}=(?:(?:\\.|[^\\,+ ])(?:\\.|[^\\,+])*)?"
_SUBJECT: Final = re.compile(rf"{_PART}(?:[,+]{_PART})*")
"""A subject as RFC 4514 has it: no blank behind a comma, or beside the first =."""

_KEYS: Final = (TOKENS, CERTIFICATES, USERS, LABELS, *(str(act) for act in Act))
_TOKEN: Final = re.compile(r"sha256:([0-9a-fA-F]{64})(?: until (\S+))?")
_UID_MAX: Final = 2**32 - 2
_USER: Final = re.compile(r"[!-~]{1,256}")


def read_policy(text: str, *, source: str) -> Policy:
    """Return the policy that an access file's text declares. `source` is how messages name the file.

    Raises InvalidInputError, which names the line and the remedy: for what is no TOML, an unknown key, a value of a wrong
    type, a name that stands twice, a token in clear or a sum that is none, and for a token, a certificate or a user of two.
    """
    seen: dict[object, int] = {}
    return Policy([_Reader(table, source, seen).principal() for table in tables_of(text, source=source)])


def certificate_of(words: str, *, source: str) -> str:
    """Return what a certificate is known by, as it is compared. Raises InvalidInputError for words of another form."""
    kind, colon, name = words.partition(":")
    if not (colon and name and kind in CERTIFICATE_KINDS):
        forms = ", ".join(f"{one}:..." for one in CERTIFICATE_KINDS)
        problem = f"{words!r} names no certificate: write one of {forms}"
        raise InvalidInputError(source=source, problem=problem)
    if kind == "IP":
        try:
            return f"IP:{ip_address(name)}"
        except ValueError as error:
            raise InvalidInputError(source=source, problem=f"{name!r} is no IP address: write one") from error
    if kind == "subject" and _SUBJECT.fullmatch(name) is None:
        problem = (
            f"{name!r} is no subject as it is compared: write it as in subject:CN=shop,O=Example, which"
            " `openssl x509 -noout -subject -nameopt RFC2253,-esc_msb` prints"
        )
        raise InvalidInputError(source=source, problem=problem)
    return f"DNS:{name.lower()}" if kind == "DNS" else words


def user_of(user: object, *, source: str) -> int | str:
    """Return a user of the machine, a number or a name. Raises InvalidInputError for what is neither."""
    if isinstance(user, int) and not isinstance(user, bool) and 0 <= user <= _UID_MAX:
        return user
    if isinstance(user, str) and _USER.fullmatch(user) and not user.isdigit():
        return user
    problem = 'a user is a name, as in "shop", or a number without quotation marks, as in 1001: write one of them'
    raise InvalidInputError(source=source, problem=problem)


class _Reader:
    """Reads one table. `seen` are the tokens, certificates and users of all tables so far, with their lines."""

    def __init__(self, table: Table, source: str, seen: dict[object, int]) -> None:
        self._table = table
        self._source = source
        self._seen = seen

    def principal(self) -> Principal:
        by_key: dict[str, Statement] = {}
        for statement in self._table.statements:
            if statement.key not in _KEYS:
                problem = f"a principal has no key {statement.key!r}: the keys are {', '.join(_KEYS)}"
                raise self._refusal(statement.line, problem)
            by_key[statement.key] = statement
        return Principal(
            name=self._table.name,
            line=self._table.line,
            tokens=tuple(self._tokens(by_key.get(TOKENS))),
            certificates=tuple(self._certificates(by_key.get(CERTIFICATES))),
            users=tuple(self._users(by_key.get(USERS))),
            labels=tuple(self._labels(by_key.get(LABELS))),
            # Why in the order of the file: the first grant that covers a target is the one that decides.
            grants=tuple(
                grant for key, one in by_key.items() if key in set(Act) for grant in self._grants(Act(key), one)
            ),
        )

    def _tokens(self, statement: Statement | None) -> Iterator[TokenSum]:
        for line, words in self._elements(statement):
            found = _TOKEN.fullmatch(words)
            if found is None:
                # Why without the words: they may be a token.
                problem = (
                    'a token stands here by its sum alone, "sha256:" and 64 hexadecimal digits: `keyplan access add` and'
                    " `rotate` make a token and write its sum; one that stood here in clear is to be used no more"
                )
                raise self._refusal(line, problem)
            digest = bytes.fromhex(found[1])
            if digest in SUMS_OF_NOTHING:
                raise self._refusal(
                    line, "it is the sum of nothing, as of a variable that was empty: put a token's there"
                )
            self._only_here(digest, line, "this token's sum")
            yield TokenSum(digest, self._moment(found[2], line) if found[2] else None)

    def _certificates(self, statement: Statement | None) -> Iterator[str]:
        for line, words in self._elements(statement):
            name = certificate_of(words, source=f"{self._source}:{line}")
            self._only_here(name, line, name)
            yield name

    def _users(self, statement: Statement | None) -> Iterator[int | str]:
        for line, found in self._elements(statement, kinds=(str, int)):
            user = user_of(found, source=f"{self._source}:{line}")
            self._only_here(("user", user), line, f"the user {user}")
            yield user

    def _labels(self, statement: Statement | None) -> Iterator[Label]:
        for line, words in self._elements(statement):
            yield label_of(words, source=f"{self._source}:{line}")

    def _grants(self, act: Act, statement: Statement) -> Iterator[Grant]:
        for line, words in self._elements(statement):
            yield Grant(act, target_of(words, source=f"{self._source}:{line}"), line)

    # ---- what all lists have in common -----------------------------------------------------------------------------------

    def _elements(self, statement: Statement | None, kinds: tuple[type, ...] = (str,)) -> Iterator[tuple[int, Any]]:
        if statement is None:
            return
        if not isinstance(statement.value, list):
            problem = f'{statement.key} is a list: put what stands behind = into brackets, {statement.key} = ["..."]'
            raise self._refusal(statement.line, problem)
        for line, found in zip(statement.element_lines(), statement.value, strict=True):
            if not isinstance(found, kinds):
                raise self._refusal(line, f"{statement.key} is a list of texts: put each into quotation marks")
            yield line, found

    def _only_here(self, identity: object, line: int, shown: str) -> None:
        if identity in self._seen:
            problem = (
                f"{shown} stands in line {self._seen[identity]} already: who asks is one principal; remove one of them"
            )
            raise self._refusal(line, problem)
        self._seen[identity] = line

    def _moment(self, text: str, line: int) -> datetime:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            found = None
        if found is None or found.tzinfo is None:
            problem = f"{text!r} is no moment: write it with its zone, as in 2026-12-01T00:00:00Z"
            raise self._refusal(line, problem)
        return found

    def _refusal(self, line: int, problem: str) -> InvalidInputError:
        return InvalidInputError(source=f"{self._source}:{line}", problem=problem)
