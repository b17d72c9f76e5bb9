"""How a command ends: its exit code, and errors and hints on standard error, for people or as JSON.

The exit codes here are those that no error of keyplan has; the others stand on the error classes.
docs/reference/cli.md prints both.
"""

import json
import sys
from contextlib import suppress
from shlex import quote
from typing import Any, Final

from keyplan.cli.output import printable
from keyplan.errors import (
    CorruptionError,
    IndexNotReadyError,
    InvalidInputError,
    InvalidKeyError,
    KeyplanError,
    KeySpaceNotFoundError,
    UnknownNameError,
    UnopenedSecretError,
)

__all__ = [
    "FINDINGS",
    "HUNG_UP",
    "INTERRUPTED",
    "NOT_INSTALLED",
    "OUTPUT_FAILED",
    "TERMINATED",
    "USAGE",
    "Faults",
    "agreed",
    "end_with_findings",
    "print_failure",
    "print_hint",
    "print_usage_error",
]


FINDINGS: Final = 1
"""The command ran, and found something that is wrong: lint findings, a stale map."""

USAGE: Final = 2
"""The command line cannot be read."""

NOT_INSTALLED: Final = 69
"""The packages that the command line needs are not installed."""

OUTPUT_FAILED: Final = 74
"""The output could not be written: a full disk behind `>`."""

HUNG_UP: Final = 129
"""Stopped by SIGHUP, the end of its terminal, as shells count it."""

INTERRUPTED: Final = 130
"""Ended by Ctrl-C, as shells count it."""

TERMINATED: Final = 143
"""Ended by SIGTERM, as shells count it."""


_KEYS: Final = frozenset({"first_key", "raw_key", "raw_keys"})
"""Facts that are raw keys, in hex where they are no bytes."""

# ---- the end of a command ------------------------------------------------------------------------------------------------


def end_with_findings(found: object) -> None:
    """End the command with exit code 1 if something was found."""
    if found:
        from typer import Exit  # noqa: PLC0415  # Why: `keyplan.cli.start` needs an exit code where typer is missing.

        raise Exit(FINDINGS)


def agreed(question: str, *, is_agreed: bool, source: str = "--yes", instead: str = "") -> bool:
    """Ask a question on the terminal, unless --yes has answered it, and return the answer.

    Raises InvalidInputError where there is no terminal: its remedy is --yes, or what `instead` adds to that.
    """
    if is_agreed:
        return True
    if not sys.stdin.isatty():
        raise InvalidInputError(source=source, problem=f"not a terminal: pass --yes{instead}")
    from typer import confirm  # noqa: PLC0415  # Why: as above.

    if confirm(question, err=True):
        return True
    print_hint("nothing was written")
    return False


class Faults:
    """The records that a command could not read while it went on with the others. The first decides the exit code."""

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json
        self._first: KeyplanError | None = None

    def add(self, error: KeyplanError) -> None:
        """Print one fault on standard error."""
        sys.stdout.flush()  # Why: where both streams are one terminal, the fault comes after the records before it.
        print_failure(error, is_json=self._is_json)
        self._first = self._first or error

    def end(self) -> None:
        """End the command, if there were any, with the exit code of the first."""
        if self._first is not None:
            from typer import Exit  # noqa: PLC0415  # Why: as above.

            raise Exit(self._first.exit_code)


# ---- errors and hints ----------------------------------------------------------------------------------------------------


def print_failure(error: KeyplanError, *, is_json: bool) -> None:
    """Print an error of keyplan: its sentence, the problem, the other facts; as JSON its code, summary and facts.

    The fact `remedy` names the commands that mend a store.
    """
    error = _with_remedy(error)
    sys.stdout.flush()  # Why: in a build's log, where both streams are one file, the reason stands last.
    if not is_json:
        print(f"keyplan: {printable(_sentence(error))}", file=sys.stderr)
        return
    _print_object({"code": error.code, "summary": error.summary, "facts": error.plain_facts()})


def print_usage_error(error: Any, *, is_json: bool) -> None:
    """Print an error in a command line, and the command's usage. typer's errors have a message and a context."""
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if is_json:
        facts = {} if context is None else {"command": context.command_path}
        _print_object({"code": "usage", "summary": message, "facts": facts})
        return
    if context is None or message == context.get_help():
        # Why: a group that is called without a command fails with its whole help as the message.
        print(message, file=sys.stderr)
        return
    print(f"keyplan: {message}", file=sys.stderr)
    print(f"{context.get_usage()}\nSee {context.command_path} --help.", file=sys.stderr)


def print_hint(text: str) -> None:
    """Print a hint on standard error: it helps to read the output and is no part of it."""
    sys.stdout.flush()  # Why: where both streams are one terminal, the hint comes after the lines that it is about.
    print(f"keyplan: {text}", file=sys.stderr)


def _with_remedy(error: KeyplanError) -> KeyplanError:
    facts = error.facts
    if isinstance(error, IndexNotReadyError):
        remedy = f"`keyplan index build {facts['index']}` builds it"
    elif isinstance(error, KeySpaceNotFoundError):
        remedy = "`keyplan keyspace list` shows the names"
    elif isinstance(error, CorruptionError) and "raw_key" in facts and not isinstance(error, UnopenedSecretError):
        key = quote(str(_shown(facts["raw_key"])))
        if "counter" in facts:
            remedy = f"`keyplan raw put {key} NUMBER` writes the right one: one more than the largest handed out"
        elif "index" in facts and "table" not in facts:
            remedy = "`keyplan check --repair` mends the index"
        else:
            remedy = (
                f"`keyplan extract BACKUP --key {key} --into-store --overwrite` takes it from a backup,"
                f" `keyplan raw quarantine {key}` sets it aside, `keyplan raw delete {key}` deletes it"
            )
    else:
        return error
    # Why it replaces the error's own remedy: that one is for programs.
    return type(error)(**{**facts, "remedy": remedy})


def _sentence(error: KeyplanError) -> str:
    if isinstance(error, UnknownNameError) and "problem" not in error.facts:
        return _unknown_name(error)
    if isinstance(error, InvalidKeyError) and {"field", "element", "value"} <= error.facts.keys():
        return f"{error.facts['field']} {error.facts.get('problem', 'is not valid')}"
    facts = {name.replace("_", " "): _words(fact) for name, fact in _readable(error).items()}
    problem = facts.pop("problem", "")
    others = ", ".join(f"{name} {words}" for name, words in facts.items())
    return error.summary + (f": {problem}" if problem else "") + (f" ({others})" if others else "")


def _unknown_name(error: UnknownNameError) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  # Why: most errors are printed without it.

    facts: dict[str, Any] = error.facts
    name, known = str(facts["name"]), [str(one) for one in facts.get("known", ())]
    kind = "table, index or counter" if facts["kind"] == "item" else facts["kind"]
    place = facts.get("item") or facts.get("layout")
    sentence = f"there is no {kind} {name!r}" + (f" in {place}" if place else "")
    if near := get_close_matches(name, known, n=1):
        return f"{sentence}; did you mean {near[0]!r}?"
    return sentence + (f"; known are {', '.join(known)}" if known else "")


def _readable(error: KeyplanError) -> dict[str, object]:
    """Return the facts with raw keys as commands take and print them, without those that are empty.

    Prefixes of key spaces stay in hex, as everywhere in the registry.
    """
    facts: dict[str, object] = error.plain_facts()
    for name, fact in error.facts.items():
        if isinstance(fact, bytes) or name in _KEYS:
            facts[name] = _shown(fact)
    return {name: fact for name, fact in facts.items() if fact != ""}


def _shown(fact: object) -> object:
    from keyplan.layout import shown_key  # noqa: PLC0415  # Why: most errors are printed without it.

    if isinstance(fact, list | tuple):
        return list(map(_shown, fact))
    with suppress(ValueError):  # an application has keys that are text
        fact = bytes.fromhex(fact) if isinstance(fact, str) else fact
    return shown_key(fact) if isinstance(fact, bytes) else fact


def _words(fact: object) -> str:
    if not isinstance(fact, list):
        return str(fact)
    words = list(map(_words, fact))
    return ("; " if any(" " in word for word in words) else " ").join(words)


def _print_object(value: dict[str, object]) -> None:
    print(json.dumps(value, ensure_ascii=False), file=sys.stderr)
