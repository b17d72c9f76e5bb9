"""Where tokens come from: a file that only its owner can read, or the environment; never the command line."""

import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from keyplan.access import SUMS_OF_NOTHING
from keyplan.errors import InvalidInputError
from keyplan.server.access import LOCAL, TOKEN_CHARACTERS_MIN, Role, Token

__all__ = ["TOKEN_CHARACTERS_MIN", "TOKEN_VARIABLES", "read_tokens", "tokens_of_environment"]

TOKEN_VARIABLES: Final = {"KEYPLAN_ADMIN_TOKEN": Role.ADMIN, "KEYPLAN_CLIENT_TOKEN": Role.CLIENT}
"""The environment variables that hold one token each."""

_SHA256: Final = re.compile(r"sha256:([0-9a-fA-F]{64})")
_NAME: Final = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_COMMENT: Final = re.compile(r"(?:^|\s)#.*")
_TOKEN: Final = re.compile(r"[!-~]+")


def read_tokens(path: Path) -> list[Token]:
    """Return the tokens of a file: a line `ROLE NAME TOKEN` for each, ROLE being admin or client; `#` begins a comment.

    Where a word would begin, that is: in a token it is a character like others. TOKEN is the text, or `sha256:` and the 64
    digits of its SHA-256 sum. Raises InvalidInputError: for a line of another form, and for a file with tokens in clear that
    others than its owner may read.
    """
    try:
        text = path.read_text(encoding="utf-8")
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "cannot be read as text"
        raise InvalidInputError(source=str(path), problem=problem) from error
    lines = enumerate(_words(text), start=1)
    tokens = [_token(f"{path}:{number}", words) for number, words in lines if words]
    names = [token.name for token in tokens]
    if LOCAL in names:
        raise InvalidInputError(source=str(path), problem=f"{LOCAL} is who asks without a token: give another name")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidInputError(source=str(path), problem=f"there are two tokens of the name {twice}")
    is_shared = mode & (stat.S_IRWXG | stat.S_IRWXO)
    if is_shared and any(len(words) == 3 and not _SHA256.fullmatch(words[2]) for words in _words(text)):
        problem = "it holds tokens in clear, and others than its owner may read it: chmod 600, or store sha256: sums"
        raise InvalidInputError(source=str(path), problem=problem)
    return tokens


def tokens_of_environment(environment: Mapping[str, str]) -> Sequence[Token]:
    """Return the tokens of KEYPLAN_ADMIN_TOKEN and KEYPLAN_CLIENT_TOKEN. Raises InvalidInputError for one too short."""
    return [
        _token_of_text(variable, role, role.value, environment[variable])
        for variable, role in TOKEN_VARIABLES.items()
        if environment.get(variable)
    ]


def _words(text: str) -> list[list[str]]:
    return [_COMMENT.sub("", line).split() for line in text.splitlines()]


def _token(source: str, words: list[str]) -> Token:
    if len(words) != 3 or words[0] not in set(Role) or not _NAME.fullmatch(words[1]):
        # Why: the line is not shown, it may hold a token.
        raise InvalidInputError(source=source, problem="a line is ROLE NAME TOKEN, with the role admin or client")
    role, name, text = Role(words[0]), words[1], words[2]
    if summed := _SHA256.fullmatch(text):
        digest = bytes.fromhex(summed[1])
        if digest in SUMS_OF_NOTHING:
            problem = "it is the sum of nothing, as of a variable that was empty: put a token's there"
            raise InvalidInputError(source=source, problem=problem)
        return Token(role, name, digest)
    return _token_of_text(source, role, name, text)


def _token_of_text(source: str, role: Role, name: str, text: str) -> Token:
    if len(text) < TOKEN_CHARACTERS_MIN or not _TOKEN.fullmatch(text):
        problem = f"a token has at least {TOKEN_CHARACTERS_MIN} characters, printable ASCII without spaces"
        raise InvalidInputError(source=source, problem=problem)
    return Token.of_text(role, name, text)
