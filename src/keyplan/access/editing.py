"""Changes of an access file by commands: of the text itself, so that comments and order stay as they were written.

Each change is a function of the text. It is made of whole lines and whole elements of a list, and then checked: the new text
must read as the old one with exactly this change. A file that is written too oddly for that is refused, and stays as it is.
"""

import json
import math
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from secrets import token_bytes
from typing import Any, Final, TypeAlias

from keyplan.access.document import PRINCIPALS, Statement, Table, tables_of
from keyplan.access.labels import label_of
from keyplan.access.policy import Grant, Principal, TokenSum, sum_of_token
from keyplan.access.reading import CERTIFICATES, LABELS, TOKENS, USERS, certificate_of, read_policy, user_of
from keyplan.access.targets import target_of
from keyplan.errors import InvalidInputError, UnknownNameError
from keyplan.operations import Act

__all__ = [
    "NEW_FILE",
    "Elements",
    "add_principal",
    "change_principal",
    "new_token",
    "remove_principal",
    "remove_token",
    "rotate_token",
]

NEW_FILE: Final = """\
# Who may do what: principals, what they are known by, and what is granted to them. No grant is nothing.
# `keyplan access` changes them, or you by hand. Tokens stand here by their sums alone.
"""
"""What a new access file begins with."""

_TOKEN_BYTES: Final = 32
_BEGINNING: Final = "kp_"
"""Why: who looks for secrets in places where none should be, a log or a repository, finds it by its beginning."""

_DIGITS_MIN: Final = 8
_KEEP_SECONDS_MAX: Final = 10 * 366 * 86_400
"""Why: whoever lets a token count longer has no use for an end."""

Elements: TypeAlias = Mapping[str, Iterable[str | int]]
"""Elements of lists of a principal, as they are written, by the lists' keys."""

_READERS: Final[Mapping[str, Callable[..., Any]]] = {
    CERTIFICATES: certificate_of,
    USERS: user_of,
    LABELS: label_of,
    **dict.fromkeys(Act, target_of),
}
"""What reads an element of a list of this key."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def new_token() -> str:
    """Return a new token: 256 random bits as text that fits into headers, URLs and shells."""
    return _BEGINNING + urlsafe_b64encode(token_bytes(_TOKEN_BYTES)).rstrip(b"=").decode()


# ---- the changes -----------------------------------------------------------------------------------------------------


def add_principal(
    text: str,
    name: str,
    *,
    token: str | None,
    certificates: Sequence[str] = (),
    users: Sequence[int | str] = (),
    labels: Sequence[str] = (),
    grants: Mapping[Act, Sequence[str]],
    source: str,
) -> str:
    """Return the text with one more principal, at its end. Raises InvalidInputError for what no such file may have."""
    principals = read_policy(text, source=source).principals
    if there := next((one for one in principals if one.name == name), None):
        problem = f"{name} is there already: `keyplan access rotate` gives another token, `grant` another grant"
        raise InvalidInputError(source=f"{source}:{there.line}", problem=problem)
    added = Principal(
        name=name,
        tokens=(TokenSum(sum_of_token(token)),) if token else (),
        certificates=tuple(certificate_of(one, source="--certificate") for one in certificates),
        users=tuple(user_of(one, source="--user") for one in users),
        labels=tuple(label_of(one, source="--label") for one in labels),
        grants=tuple(
            Grant(act, target_of(on, source=f"--{act}"), 0) for act, all_on in grants.items() for on in all_on
        ),
    )
    lists: dict[str, list[int | str]] = {
        TOKENS: [_words_of(one) for one in added.tokens],
        CERTIFICATES: [*added.certificates],
        USERS: [*added.users],
        LABELS: [str(one) for one in added.labels],
        **{act: [str(grant.on) for grant in added.grants if grant.act is act] for act in Act},
    }
    lines = [f"[{PRINCIPALS}.{name if _BARE.fullmatch(name) else json.dumps(name)}]"]
    lines += [f"{key} = {json.dumps(elements, ensure_ascii=False)}" for key, elements in lists.items() if elements]
    separator = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return _checked(f"{text}{separator}" + "\n".join(lines) + "\n", [*principals, added], source)


def change_principal(
    text: str, name: str, *, added: Elements | None = None, removed: Elements | None = None, source: str
) -> str:
    """Return the text with other grants, certificates, users or labels of a principal: by the key of each list, its elements.

    An element that is there already is not added again. Raises UnknownNameError, and InvalidInputError for what is no element
    of such a list, or is to be removed and not there.
    """
    principals = read_policy(text, source=source).principals
    known = changed = _named(principals, name)
    for key, elements in (removed or {}).items():
        for element in elements:
            wanted = _read(key, element, key)
            text = _without_element(text, name, key, wanted, source)
            changed = _with_list(changed, key, [one for one in _list_of(changed, key) if one != wanted])
    for key, elements in (added or {}).items():
        for element in elements:
            wanted = _read(key, element, key)
            there = _list_of(changed, key)
            if wanted not in there:
                text = _with_new_element(text, name, key, wanted, source)
                changed = _with_list(changed, key, [wanted, *there])
    return _checked(text, [changed if one is known else one for one in principals], source)


def rotate_token(
    text: str, name: str, token: str, *, now: datetime, keep_seconds: float | None = None, source: str
) -> str:
    """Return the text with a new token for a principal. Those that it has count for `keep_seconds` more; None: until revoked.

    Those whose time is over are removed. Raises UnknownNameError, InvalidInputError.
    """
    principals = read_policy(text, source=source).principals
    known = _named(principals, name)
    fresh = TokenSum(sum_of_token(token))
    end = None if keep_seconds is None else _moment_after(now, keep_seconds)
    kept: dict[bytes, TokenSum] = {}
    for old in known.tokens:
        untils = [one for one in (old.until, end) if one is not None]
        if all(now < until for until in untils):
            kept[old.digest] = TokenSum(old.digest, min(untils, default=None))
    for old in known.tokens:
        if old.digest not in kept:
            text = _without_token(text, name, old, source)
    lines = text.replace("\r\n", "\n").split("\n")
    table = _table_of(text, name, source)
    statement = _statement_of(table, TOKENS)
    if statement is None:
        lines.insert(table.line, f"{TOKENS} = {json.dumps([_words_of(fresh)])}")
    else:
        written = "\n".join(statement.lines)
        for one in set(kept.values()) - set(known.tokens):
            written = re.sub(_written_token(one), json.dumps(_words_of(one)), written, count=1)
        _put(lines, statement, _with_first_element(written, json.dumps(_words_of(fresh))))
    changed = replace(known, tokens=(fresh, *kept.values()))
    return _checked("\n".join(lines), [changed if one is known else one for one in principals], source)


def remove_token(text: str, name: str, digits: str, *, source: str) -> str:
    """Return the text without one token of a principal: that whose sum begins with `digits`.

    Raises UnknownNameError, and InvalidInputError unless exactly one of its tokens has such a sum.
    """
    principals = read_policy(text, source=source).principals
    known = _named(principals, name)
    found = [one for one in known.tokens if one.digest.hex().startswith(digits.lower())]
    if len(digits) < _DIGITS_MIN or len(found) != 1:
        sums = ", ".join(one.digest.hex()[:_DIGITS_MIN] for one in known.tokens) or "none"
        problem = (
            f"{digits!r} does not begin the sum of one token of {name}: give {_DIGITS_MIN} digits or more of {sums}"
        )
        raise InvalidInputError(source="--token", problem=problem)
    changed = replace(known, tokens=tuple(one for one in known.tokens if one is not found[0]))
    text = _without_token(text, name, found[0], source)
    return _checked(text, [changed if one is known else one for one in principals], source)


def remove_principal(text: str, name: str, *, source: str) -> str:
    """Return the text without a principal: its table, and the comment that stands directly above that.

    Raises UnknownNameError, InvalidInputError.
    """
    principals = read_policy(text, source=source).principals
    known = _named(principals, name)
    lines = text.replace("\r\n", "\n").split("\n")
    table = _table_of(text, name, source)
    begin, end = table.line - 1, table.line_last
    while begin > 0 and lines[begin - 1].startswith("#"):
        begin -= 1
    # Why not from the first line on: a comment there is about the file.
    begin = table.line - 1 if begin == 0 else begin
    while end < len(lines) - 1 and not lines[end].strip():
        end += 1
    del lines[begin:end]
    return _checked("\n".join(lines), [one for one in principals if one is not known], source)


# ---- the text --------------------------------------------------------------------------------------------------------


def _named(principals: Iterable[Principal], name: str) -> Principal:
    by_name = {one.name: one for one in principals}
    if name not in by_name:
        raise UnknownNameError(kind="principal", name=name, known=sorted(by_name))
    return by_name[name]


def _table_of(text: str, name: str, source: str) -> Table:
    return next(table for table in tables_of(text, source=source) if table.name == name)


def _read(key: str, element: Any, source: str) -> Any:
    """Return an element of a list, as a principal has it. Raises InvalidInputError."""
    return _READERS[key](element, source=source)


def _statement_of(table: Table, key: str) -> Statement | None:
    return next((one for one in table.statements if one.key == key), None)


def _list_of(principal: Principal, key: str) -> list[Any]:
    if key in set(Act):
        return [grant.on for grant in principal.grants if grant.act == key]
    return list(getattr(principal, key))


def _with_list(principal: Principal, key: str, elements: Sequence[Any]) -> Principal:
    if key not in set(Act):
        lists: dict[str, Any] = {key: tuple(elements)}
        return replace(principal, **lists)
    others = [grant for grant in principal.grants if grant.act != key]
    return replace(principal, grants=(*others, *(Grant(Act(key), on, 0) for on in elements)))


def _with_new_element(text: str, name: str, key: str, element: object, source: str) -> str:
    """The text with one element more in a list, which is made, behind the principal's other lists, where there is none."""
    lines = text.replace("\r\n", "\n").split("\n")
    table = _table_of(text, name, source)
    statement = _statement_of(table, key)
    written = json.dumps(element if isinstance(element, int) else str(element), ensure_ascii=False)
    if statement is not None:
        _put(lines, statement, _with_first_element("\n".join(statement.lines), written))
    else:
        lines.insert(table.line_last, f"{key} = [{written}]")
    return "\n".join(lines)


def _without_element(text: str, name: str, key: str, element: object, source: str) -> str:
    """The text without one element of a list."""
    statement = _statement_of(_table_of(text, name, source), key)
    values = [] if statement is None else statement.value
    found = [at for at, value in enumerate(values) if _read(key, value, source) == element]
    if statement is None or not found:
        there = ", ".join(map(str, values)) or "nothing"
        raise InvalidInputError(source=key, problem=f"{element} is not among those of {name}, which are: {there}")
    value = statement.value[found[0]]
    spellings = [json.dumps(value, ensure_ascii=False), json.dumps(value), f"'{value}'"]
    written = "|".join(map(re.escape, spellings))
    if isinstance(value, int):
        written = rf"\b{value}\b"  # Why: 10 is a part of 1100.
    return _without_place(text, statement, found[0], written)


def _without_token(text: str, name: str, token: TokenSum, source: str) -> str:
    """The text without a token of a principal that has it."""
    statement = _statement_of(_table_of(text, name, source), TOKENS)
    assert statement is not None
    words = f"sha256:{token.digest.hex()}"
    place = next(place for place, value in enumerate(statement.value) if value.lower().startswith(words))
    return _without_place(text, statement, place, _written_token(token))


def _written_token(token: TokenSum) -> str:
    """What finds a token in the text of its list, with whatever end of its time."""
    return (
        rf"""(?i:"sha256:{token.digest.hex()}(?: until [^"\n]*)?"|'sha256:{token.digest.hex()}(?: until [^'\n]*)?')"""
    )


def _without_place(text: str, statement: Statement, place: int, written: str) -> str:
    """The text without the element at a place of a list, which is written so; without its line where it has one for itself.

    Why the comment goes with it: one that stayed would be about the next element.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    at = statement.element_lines()[place] - 1
    lines[at : at + 1] = _line_without(lines[at], written)
    return "\n".join(lines)


def _line_without(line: str, written: str) -> list[str]:
    """A line of a list without what is written so; no line where there was nothing else."""
    if re.fullmatch(rf"[ \t]*(?:{written})[ \t]*,?[ \t]*(?:#.*)?", line):
        return []
    # Why the last of a list first: the comma before it goes with it.
    changed, count = re.subn(rf",[ \t]*(?:{written})(?=[ \t]*\])", "", line, count=1)
    return [changed if count else re.sub(rf"(?:{written})[ \t]*,?[ \t]*", "", line, count=1)]


def _put(lines: list[str], statement: Statement, written: str) -> None:
    begin = statement.line - 1
    lines[begin : begin + len(statement.lines)] = written.split("\n")


def _words_of(token: TokenSum) -> str:
    words = f"sha256:{token.digest.hex()}"
    return words if token.until is None else f"{words} until {token.until.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _moment_after(now: datetime, seconds: float) -> datetime:
    if not 0 <= seconds <= _KEEP_SECONDS_MAX:
        problem = f"{seconds} is no number of seconds from 0 to {_KEEP_SECONDS_MAX}: give one, or leave it out"
        raise InvalidInputError(source="--keep-seconds", problem=problem)
    # Why to the second: it is written so; and never sooner than asked for.
    return datetime.fromtimestamp(math.ceil((now + timedelta(seconds=seconds)).timestamp()), UTC) if seconds else now


def _with_first_element(written: str, element: str) -> str:
    """The text of a list with one element more, before the others: on a line of its own if they have such lines."""
    begin = written.index("[", written.index("=")) + 1
    rest = written[begin:]
    if rest.lstrip(" \t").startswith("\n"):
        return f"{written[:begin]}\n  {element},{rest}"
    return f"{written[:begin]}{element}{'' if rest.lstrip().startswith(']') else ', '}{rest}"


def _checked(text: str, expected: Sequence[Principal], source: str) -> str:
    """The text, if it reads as expected. Why: a file can be written in ways that the functions above do not know."""
    try:
        found = read_policy(text, source=source).principals
    except InvalidInputError as error:
        named = str(error.source)
        # Why apart: a name that no table may have, a token of two, are the caller's mistake and are told as such.
        raise InvalidInputError(source=named, problem=f"{error.problem}; nothing was changed") from error
    if [_facts(one) for one in found] != [_facts(one) for one in expected]:
        problem = "the file is written in a way that this command cannot change without a loss: change it by hand"
        raise InvalidInputError(source=source, problem=problem)
    return text


def _facts(principal: Principal) -> tuple[object, ...]:
    grants = sorted((grant.act, str(grant.on)) for grant in principal.grants)
    return principal.name, set(principal.tokens), principal.certificates, principal.users, principal.labels, grants
