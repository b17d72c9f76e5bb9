"""How errors are printed: a line for people, or one JSON object, on standard error."""

import json
import sys
from typing import Any

from keyplan.cli.output import printable
from keyplan.errors import KeyplanError

__all__ = ["print_failure", "print_hint", "print_usage_error"]


def print_failure(error: KeyplanError, *, is_json: bool) -> None:
    """Print an error of keyplan: its sentence, the problem, the other facts; as JSON its code, summary and facts."""
    if not is_json:
        print(f"keyplan: {printable(_sentence(error))}", file=sys.stderr)
        return
    _print_object({"code": error.code, "summary": error.summary, "facts": error.plain_facts()})


def print_usage_error(error: Any, *, is_json: bool) -> None:
    """Print what is wrong with a command line, and how the command is called; typer's errors have a message and a context."""
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
    """Print something that helps to read the output, without being part of it."""
    sys.stdout.flush()  # Why: on a terminal both go to one place, and the hint comes after what it is about.
    print(f"keyplan: {text}", file=sys.stderr)


def _sentence(error: KeyplanError) -> str:
    facts = {name.replace("_", " "): _words(fact) for name, fact in error.plain_facts().items()}
    problem = facts.pop("problem", "")
    others = ", ".join(f"{name} {words}" for name, words in facts.items())
    return error.summary + (f": {problem}" if problem else "") + (f" ({others})" if others else "")


def _words(fact: object) -> str:
    if not isinstance(fact, list):
        return str(fact)
    words = list(map(_words, fact))
    return ("; " if any(" " in word for word in words) else " ").join(words)


def _print_object(value: dict[str, object]) -> None:
    print(json.dumps(value, ensure_ascii=False), file=sys.stderr)
