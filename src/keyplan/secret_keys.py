"""The keys that secrets are sealed with: AES-256-GCM by the package `cryptography`, keys from a file or from a command.

    current = "k20261123-5f0c"

    [keys]
    k20261123-5f0c = "base64 of 32 bytes"
    k20250104-a1b2 = "base64 of 32 bytes"

New secrets are sealed with the current key; the others are kept as long as anything is sealed with them. A file is read by its
owner alone. What is sealed, and where, stands in keyplan.codec.
"""

import binascii
import os
import re
import shlex
import tomllib
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Self

from keyplan.errors import InvalidInputError, SecretKeyError
from keyplan.files import folder_turn, read_private, write_whole

__all__ = [
    "KEY_BYTES",
    "KEY_FILE_BYTES_MAX",
    "SECRETS_VARIABLE",
    "KeysOnDemand",
    "SecretKeys",
    "add_secret_key",
    "key_text",
]

KEY_BYTES: Final = 32
"""Why: AES-256."""

KEY_FILE_BYTES_MAX: Final = 1 << 16
"""Why: six hundred keys; one a year is usual."""

COMMAND_SECONDS_MAX: Final = 60.0
"""What a command that prints keys may take. Why: it asks a vault or a person's agent; a store is not opened without it."""

_NONCE_BYTES: Final = 12
"""Why: GCM's own size. Random ones may meet after 2^32 secrets by one key; that many a key is not used for."""

SECRETS_VARIABLE: Final = "KEYPLAN_SECRETS"
"""The variable that names the keys, for every command and every server."""

_COMMAND: Final = "command:"
"""What a setting begins with that is a command; a file of such a name is ./command:..."""

_KEY_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


class SecretKeys:
    """Keys by their ids, of which `current` seals what is written. For `keyplan.open(url, secrets=...)` and `Store`.

    Safe for use by several threads. Printing it shows the ids alone. `random` gives nonces. `read_again` gives the keys as they
    are now, and which is current: it is called when a secret is sealed with a key that is not known here, since another process
    may have begun to use one. Raises InvalidInputError for keys that are none, and without the package `cryptography`.
    """

    def __init__(
        self,
        keys: Mapping[str, bytes],
        current: str,
        *,
        random: Callable[[int], bytes] = os.urandom,
        read_again: "Callable[[], SecretKeys] | None" = None,
        source: str = "secrets",
    ) -> None:
        self._ciphers = {key_id: _cipher(key_id, key, source) for key_id, key in keys.items()}
        if current not in self._ciphers:
            problem = f"the current key {current!r} is not among the keys: name one of {', '.join(keys) or 'them'}"
            raise InvalidInputError(source=source, problem=problem)
        self._current = current
        self._random = random
        self._read_again = read_again

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Return the keys of a file that only its owner may read. Raises InvalidInputError.

        The file is read again when a secret needs a key that it did not have.
        """
        place = Path(path)
        return cls._of_text(
            _file_text(place), str(place), read_again=lambda: cls._of_text(_file_text(place), place.name)
        )

    @classmethod
    def printed_by(cls, command: Sequence[str]) -> Self:
        """Return the keys that a command prints, in the form of a key file. Raises InvalidInputError when it fails."""
        # Why here: hardly anybody's keys come from a command, and every command line would pay for the module.
        import subprocess  # noqa: PLC0415

        source = command[0] if command else "the command"
        try:
            # Why no shell: the command is a list of words. Why its errors pass: they are for the person at the terminal.
            printed = subprocess.run(  # noqa: S603
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=COMMAND_SECONDS_MAX, check=False
            )
            if printed.returncode:
                raise InvalidInputError(source=source, problem=f"it ended with {printed.returncode}, and not with keys")
            return cls._of_text(printed.stdout.decode(), source)
        except subprocess.TimeoutExpired as error:
            problem = f"it printed no keys within {COMMAND_SECONDS_MAX:.0f} seconds"
            raise InvalidInputError(source=source, problem=problem) from error
        except UnicodeDecodeError as error:
            raise InvalidInputError(source=source, problem="it printed no text in UTF-8") from error
        except (OSError, IndexError, ValueError) as error:
            problem = f"it cannot be started: {getattr(error, 'strerror', None) or error}"
            raise InvalidInputError(source=source, problem=problem) from error

    @classmethod
    def named(cls, source: str) -> Self:
        """Return the keys that a setting names: a key file, or `command:WORDS` for a command. Raises InvalidInputError."""
        if not source.startswith(_COMMAND):
            return cls.read(source)
        try:
            return cls.printed_by(shlex.split(source.removeprefix(_COMMAND)))
        except ValueError as error:
            raise InvalidInputError(source="secrets", problem=f"the command cannot be read: {error}") from error

    @classmethod
    def _of_text(cls, text: str, source: str, *, read_again: "Callable[[], SecretKeys] | None" = None) -> Self:
        keys, current = _read_keys(text, source)
        return cls(keys, current, read_again=read_again, source=source)

    @property
    def current(self) -> str:
        """The id of the key that new secrets are sealed with."""
        return self._current

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all keys."""
        return tuple(self._ciphers)

    def encrypt(self, key_id: str, plain: bytes, context: bytes) -> bytes:
        """Return nonce, ciphertext and tag; see keyplan.codec.SecretCipher."""
        nonce = self._random(_NONCE_BYTES)
        sealed: bytes = self._cipher(key_id).encrypt(nonce, plain, context)
        return nonce + sealed

    def decrypt(self, key_id: str, sealed: bytes, context: bytes) -> bytes | None:
        """Return what was sealed, None when it was not sealed so; see keyplan.codec.SecretCipher."""
        cipher = self._cipher(key_id)
        try:
            plain: bytes = cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], context)
        except (_invalid_tag(), ValueError):
            return None  # Why ValueError: too few bytes for a nonce and a tag.
        return plain

    def _cipher(self, key_id: str) -> Any:
        known = self._ciphers.get(key_id)
        if known is None and self._read_again is not None:
            try:
                fresh = self._read_again()
            except InvalidInputError as error:
                raise self._unknown(key_id) from error
            self._ciphers = self._ciphers | fresh._ciphers  # noqa: SLF001  # Why: its own class.
            self._current = fresh.current
            known = self._ciphers.get(key_id)
        if known is None:
            raise self._unknown(key_id)
        return known

    def _unknown(self, key_id: str) -> SecretKeyError:
        known, remedy = list(self._ciphers), "give the key file that has it"
        return SecretKeyError(problem="no key of this id is known", key_id=key_id, known=known, remedy=remedy)

    def __repr__(self) -> str:
        return f"SecretKeys(current={self._current!r}, ids={list(self._ciphers)!r})"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("keys are not pickled: read them where they are used")


class KeysOnDemand:
    """The keys that a setting names, read when a secret is sealed or opened: most commands do neither."""

    def __init__(self, source: str) -> None:
        self.source: Final = source

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> "KeysOnDemand | None":
        """Return the keys that KEYPLAN_SECRETS names; None where it names none."""
        source = environment.get(SECRETS_VARIABLE)
        return cls(source) if source else None

    @cached_property
    def keys(self) -> SecretKeys:
        """The keys. Raises InvalidInputError."""
        return SecretKeys.named(self.source)

    @property
    def current(self) -> str:
        """The id of the key that new secrets are sealed with."""
        return self.keys.current

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all keys."""
        return self.keys.ids

    def encrypt(self, key_id: str, plain: bytes, context: bytes) -> bytes:
        """See keyplan.codec.SecretCipher."""
        return self.keys.encrypt(key_id, plain, context)

    def decrypt(self, key_id: str, sealed: bytes, context: bytes) -> bytes | None:
        """See keyplan.codec.SecretCipher."""
        return self.keys.decrypt(key_id, sealed, context)

    def from_any_folder(self) -> str:
        """Return the setting as it is from any folder."""
        return self.source if self.source.startswith(_COMMAND) else str(Path(self.source).absolute())


def add_secret_key(path: Path, key_id: str, key: bytes) -> None:
    """Add a key to a key file, and make it the current one; a missing file is made, with mode 0600. Commands take turns.

    Raises InvalidInputError: for an id that is there already, or is none; then the file stays as it is.
    """
    target = Path(os.path.realpath(path))
    with folder_turn(target.parent):
        keys: dict[str, bytes] = {}
        found = None
        if target.exists():
            keys, _ = _read_keys(_file_text(target), str(path))
            found = target.stat()
        if key_id in keys:
            raise InvalidInputError(source=str(path), problem=f"there is a key {key_id!r} already: take another id")
        _check_key(key_id, key, str(path))
        text = key_text({key_id: key, **keys}, key_id)
        # Why: the superuser leaves a file its owner.
        owner = (found.st_uid, found.st_gid) if found is not None and os.geteuid() == 0 else None
        write_whole(target, text, owner=owner)


def key_text(keys: Mapping[str, bytes], current: str) -> str:
    """Return the text of a key file."""
    lines = [f'{key_id} = "{b64encode(key).decode()}"' for key_id, key in keys.items()]
    return "\n".join([f'current = "{current}"', "", "[keys]", *lines, ""])


def _file_text(path: Path) -> str:
    return read_private(
        path,
        bytes_max=KEY_FILE_BYTES_MAX,
        missing="`keyplan secrets new` makes it",
        exposed="chmod 600, and seal anew with another key",
        too_long="take out the keys that nothing is sealed with",
    )


def _read_keys(text: str, source: str) -> tuple[dict[str, bytes], str]:
    """Return the keys of a key file and the id of the current one. Raises InvalidInputError, which quotes no key."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        tree = None
    # Why not within: the parser's error may quote a key.
    if tree is None:
        raise InvalidInputError(
            source=source, problem='it is no key file: current = "ID", and [keys] with ID = "BASE64"'
        )
    keys, current = tree.get("keys"), tree.get("current")
    if set(tree) != {"keys", "current"} or not isinstance(keys, dict) or not isinstance(current, str):
        raise InvalidInputError(
            source=source, problem='it needs current = "ID", and [keys] with ID = "BASE64", no more'
        )
    return {key_id: _read_key(key_id, written, source) for key_id, written in keys.items()}, current


def _read_key(key_id: str, written: object, source: str) -> bytes:
    problem = f"the key {key_id!r} is no base64 in quotation marks"
    if isinstance(written, str):
        try:
            return b64decode(written, validate=True)
        except (binascii.Error, ValueError):
            pass  # Why not from here: the error's cause may quote the key.
    raise InvalidInputError(source=source, problem=problem)


def _cipher(key_id: str, key: bytes, source: str) -> Any:
    _check_key(key_id, key, source)
    return _cryptography("hazmat.primitives.ciphers.aead").AESGCM(key)


def _check_key(key_id: str, key: bytes, source: str) -> None:
    if not _KEY_ID.fullmatch(key_id):
        problem = f"{key_id!r} is no id of a key: 1 to 32 of a-z, 0-9, _ and -, a letter or digit first"
        raise InvalidInputError(source=source, problem=problem)
    if len(key) != KEY_BYTES:
        raise InvalidInputError(source=source, problem=f"the key {key_id!r} has {len(key)} bytes: it needs {KEY_BYTES}")


def _invalid_tag() -> type[Exception]:
    kind: type[Exception] = _cryptography("exceptions").InvalidTag
    return kind


def _cryptography(module: str) -> Any:
    try:
        return import_module(f"cryptography.{module}")
    except ModuleNotFoundError as error:
        problem = "sealing needs the package 'cryptography', which is not installed: pip install 'keyplan[secrets]'"
        raise InvalidInputError(source="secrets", problem=problem) from error
