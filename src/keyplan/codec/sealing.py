"""Secrets that are sealed in what is stored: how they are spelled, and the place that each is bound to.

    in JSON and msgpack   {"$sealed": ENVELOPE}
    as a whole value      ff "$sealed:" ENVELOPE
    ENVELOPE              "keyplan/1:" KEYID ":" base64(nonce, ciphertext, tag)
    sealed together with  ["keyplan/1", KEYID, LAYOUT, TABLE, [STEP, ...], [FIELD, ...]] in JSON

KEYID names the key of the keys, LAYOUT and TABLE whose record it is, wherever its root is. A STEP leads into the value: a name,
a place in an array of fixed places, the key of a mapping, null for an item of a list. A FIELD is one of the record's key, as
hexadecimal digits. What was sealed is the value as it would be stored. So a ciphertext opens in its own field of its own record
of its own application alone. Who has the keys, and what seals, is not here.
"""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from keyplan.codec.secret_paths import SecretPath
from keyplan.codec.secrets import SEALED_FIELD, SecretSyntax, envelope_of_plain
from keyplan.errors import CorruptionError, UnopenedSecretError

__all__ = [
    "FORMAT",
    "Envelope",
    "SecretCipher",
    "SecretPlace",
    "Way",
    "change_secrets",
    "envelope_in",
    "is_null",
    "marked",
    "secrets_in",
]

FORMAT: Final = "keyplan/1"
_WHOLE_MARK: Final = b"\xff" + SEALED_FIELD.encode() + b":"
"""Why ff: no UTF-8 and no protobuf message begins with it."""

Way: TypeAlias = tuple[Any, ...]
"""The steps to one secret of one value: a SecretPath with the keys of mappings in it."""


_REMEDY: Final = (
    "give the key file that it was sealed with; what a version before sealed otherwise is opened by that version, with"
    " `keyplan secrets open`; delete nothing before, the record may be whole"
)
"""Why nothing that destroys: what another key opens looks no other than what was changed."""


class SecretCipher(Protocol):
    """Keys by their ids, of which one is the current one, and what they are used with."""

    @property
    def current(self) -> str:
        """The id of the key that new secrets are sealed with."""
        ...

    def encrypt(self, key_id: str, plain: bytes, context: bytes) -> bytes:
        """Return nonce, ciphertext and tag. The nonce is new in each call. Raises SecretKeyError for an unknown id."""
        ...

    def decrypt(self, key_id: str, sealed: bytes, context: bytes) -> bytes | None:
        """Return what was sealed in this context; None when it was not so. Raises SecretKeyError for an unknown id."""
        ...


class SecretPlace(NamedTuple):
    """Where a secret stands: its layout and table, the steps to it in the value, the fields of the record's key as bytes."""

    layout: str
    table: str
    way: Way
    fields: tuple[bytes, ...]

    def context(self, key_id: str) -> bytes:
        """Return what a secret in this place is sealed together with."""
        steps = [step.hex() if isinstance(step, bytes) else step for step in self.way]
        fields = [field.hex() for field in self.fields]
        return msgspec.json.encode([FORMAT, key_id, self.layout, self.table, steps, fields])


class Envelope(NamedTuple):
    """A sealed secret: the id of its key; nonce, ciphertext and tag."""

    key_id: str
    sealed: bytes

    @classmethod
    def of(cls, cipher: SecretCipher, plain: bytes, place: SecretPlace) -> "Envelope":
        """Seal what is stored of a secret, with the current key, for its place."""
        key_id = cipher.current
        return cls(key_id, cipher.encrypt(key_id, plain, place.context(key_id)))

    @classmethod
    def read(cls, text: str) -> "Envelope":
        """Read an envelope. Raises CorruptionError."""
        form, _, rest = text.partition(":")
        key_id, colon, content = rest.partition(":")
        if form != FORMAT or not colon:
            raise CorruptionError(problem="the sealed secret is no envelope of a form that is known here")
        try:
            return cls(key_id, b64decode(content, validate=True))
        except (binascii.Error, ValueError) as error:
            raise CorruptionError(problem="the sealed secret is no base64", key_id=key_id) from error

    @property
    def text(self) -> str:
        """The envelope as it is stored."""
        return f"{FORMAT}:{self.key_id}:{b64encode(self.sealed).decode()}"

    def opened(self, cipher: SecretCipher, place: SecretPlace) -> bytes:
        """Return what was sealed. Raises UnopenedSecretError when it was not sealed so in this place, SecretKeyError."""
        plain = cipher.decrypt(self.key_id, self.sealed, place.context(self.key_id))
        if plain is None:
            problem = (
                "the key file has another key of this id, or the secret was changed, or was sealed for another place"
            )
            raise UnopenedSecretError(problem=problem, key_id=self.key_id, remedy=_REMEDY)
        return plain


# ---- how they stand in a value -------------------------------------------------------------------------------------------

_JSON_TREE: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw])
_MSGPACK_TREE: Final = msgspec.msgpack.Decoder(dict[Any, msgspec.Raw] | list[msgspec.Raw])
_TREES: Final[dict[SecretSyntax, Callable[[bytes], Any]]] = {
    SecretSyntax.JSON: _JSON_TREE.decode,
    SecretSyntax.MSGPACK: _MSGPACK_TREE.decode,
}
_ENCODERS: Final[dict[SecretSyntax, Callable[[Any], bytes]]] = {
    SecretSyntax.JSON: msgspec.json.encode,
    SecretSyntax.MSGPACK: msgspec.msgpack.encode,
}
_DECODERS: Final[dict[SecretSyntax, Callable[[bytes], Any]]] = {
    SecretSyntax.JSON: msgspec.json.decode,
    SecretSyntax.MSGPACK: msgspec.msgpack.decode,
}
_MAP_STARTS: Final = {SecretSyntax.JSON: frozenset(b"{ \t\r\n"), SecretSyntax.MSGPACK: frozenset({0x81, 0xDE, 0xDF})}
_NULLS: Final = {SecretSyntax.JSON: b"null", SecretSyntax.MSGPACK: b"\xc0"}


def marked(syntax: SecretSyntax, envelope: str) -> bytes:
    """Return what is stored in the place of a sealed secret whose envelope has this text."""
    if syntax is SecretSyntax.WHOLE:
        return _WHOLE_MARK + envelope.encode("latin-1")
    return _ENCODERS[syntax]({SEALED_FIELD: envelope})


def envelope_in(syntax: SecretSyntax, raw: bytes) -> str | None:
    """Return the text of the envelope that stands there; None for a secret in clear."""
    if syntax is SecretSyntax.WHOLE:
        return raw.removeprefix(_WHOLE_MARK).decode("latin-1") if raw.startswith(_WHOLE_MARK) else None
    if not raw or raw[0] not in _MAP_STARTS[syntax]:
        return None
    try:
        return envelope_of_plain(_DECODERS[syntax](raw))
    except (msgspec.DecodeError, RecursionError):
        return None


def is_null(syntax: SecretSyntax, raw: bytes) -> bool:
    """Tell whether there is no secret."""
    return syntax is not SecretSyntax.WHOLE and raw.strip() == _NULLS[syntax]


def change_secrets(
    syntax: SecretSyntax, raw: bytes, paths: Sequence[SecretPath], change: Callable[[Way, bytes], bytes]
) -> bytes:
    """Return a stored value in which `change` was made at each secret; it is given the way there and what stands there.

    What is not on the way to one stays byte for byte. Raises CorruptionError for what is no JSON or msgpack.
    """
    try:
        return _changed(syntax, raw, tuple(paths), (), change)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CorruptionError(problem="the value cannot be read") from error


def secrets_in(syntax: SecretSyntax, raw: bytes, paths: Sequence[SecretPath]) -> list[tuple[Way, bytes]]:
    """Return the secrets of a stored value, each with the way to it. Raises as `change_secrets` does."""
    found: list[tuple[Way, bytes]] = []

    def note(way: Way, raw_secret: bytes) -> bytes:
        found.append((way, raw_secret))
        return raw_secret

    change_secrets(syntax, raw, paths, note)
    return found


def _changed(
    syntax: SecretSyntax, raw: bytes, paths: tuple[SecretPath, ...], way: Way, change: Callable[[Way, bytes], bytes]
) -> bytes:
    if () in paths:
        return change(way, raw)
    try:
        tree = _TREES[syntax](raw)
    except msgspec.ValidationError:
        return raw  # Why: a number, a text, nothing: the secret is of another member of a union, or is not there.
    steps: Sequence[Any] = list(tree) if isinstance(tree, dict) else range(len(tree))
    is_changed = False
    for step in steps:
        below = tuple(path[1:] for path in paths if path[0] is None or path[0] == step)
        if below:
            # Why a list's own place only where it has a meaning: an item that moves in a list stays what it is.
            shown = None if isinstance(tree, list) and (None,) in {path[:1] for path in paths} else step
            old = bytes(tree[step])
            new = _changed(syntax, old, below, (*way, shown), change)
            if new != old:
                tree[step] = msgspec.Raw(new)
                is_changed = True
    return _ENCODERS[syntax](tree) if is_changed else raw
