"""A value that is shown to nobody who does not ask for it by name; and how it gets to and from what is stored.

Masking is a property of the value, not of what prints it: wherever a record ends up, its secrets are `***`. A secret that is
stored sealed is read as it is, without keys, and opened when it is revealed; how it is spelled stands in `sealing`.
"""

from collections.abc import Callable
from contextvars import ContextVar
from enum import Enum
from functools import cache, partial
from hmac import compare_digest
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    NoReturn,
    Protocol,
    Self,
    TypeGuard,
    TypeVar,
    get_args,
    get_origin,
)

import msgspec

from keyplan.errors import CorruptionError, SecretKeyError

__all__ = [
    "MASK",
    "REVEALED",
    "SEALED_FIELD",
    "STORED",
    "CarriedSecrets",
    "Secret",
    "SecretOrigin",
    "SecretSyntax",
    "decoded_from",
    "envelope_of_plain",
    "envelope_of_secret",
    "is_secret_kind",
    "plain_of_secret",
    "sealed_secret",
    "secret_of_plain",
    "stored_of_secret",
]

T = TypeVar("T")

MASK: Final = "***"
"""What is shown of every secret, whatever it is and however long."""

STORED: Final = object()
"""The context in which pydantic serializes a model to be stored."""

REVEALED: Final = object()
"""That in which it serializes a model with its secrets in clear. In every other one they are masked."""


class SecretSyntax(Enum):
    """How a value is stored in which secrets stand: as a JSON or msgpack document, or one secret as the whole value."""

    JSON = "json"
    MSGPACK = "msgpack"
    WHOLE = "whole"

    # Why: members are one object each, and Enum's own hash is a Python call, several for each secret.
    __hash__ = object.__hash__


SEALED_FIELD: Final = "$sealed"
"""The one field of the map that stands in the place of a sealed secret."""


class SecretOrigin(Protocol):
    """The stored record that sealed secrets were read from; it can open them."""

    @property
    def syntax(self) -> SecretSyntax:
        """How the record is stored."""
        ...

    def open(self, envelope: str) -> bytes:
        """Return what was sealed. Raises SecretKeyError, CorruptionError."""
        ...

    def note_sealed(self) -> None:
        """Take note that a sealed secret was read from the record."""
        ...


class SealedValue(NamedTuple):
    """A secret as it is stored, what reads its value when it is open, and the record that it was read from, where known."""

    envelope: str
    read: Callable[[bytes, SecretSyntax], Any]
    origin: SecretOrigin | None

    def opened(self) -> Any:
        """Return the value. Raises SecretKeyError, CorruptionError."""
        if self.origin is None:
            problem = "the record was not read through a table of a store"
            raise SecretKeyError(problem=problem, remedy="read it from a store, opened with secrets=")
        raw = self.origin.open(self.envelope)
        try:
            return self.read(raw, self.origin.syntax)
        except MemoryError:
            raise  # Why: that says nothing of the secret.
        except Exception:  # noqa: BLE001  # Why any: it is read by the application's classes.
            # Why without its words: they may quote the value.
            raise CorruptionError(problem="what was sealed does not fit the secret's type") from None


_UNOPENED: Final = object()


class Secret(Generic[T]):
    """A value that is not to be seen: a password, a hash, a token. A field of a record is declared `password: Secret[str]`.

    Text, `repr`, formats and JSON of it are `***`; `reveal` alone returns the value. Two secrets are equal when their values
    are, of texts and bytes in a time that does not tell where they differ. It cannot be hashed, ordered, pickled or tested for
    truth: each would tell of the value, or decide by what nobody meant. Copies are the secret itself.

    One that is stored sealed is opened by `reveal`, and by `==` with anything but itself. Until then nobody needs its key.
    """

    kind: ClassVar[Any] = Any
    """The type of the value: T."""

    __slots__ = ("__sealed", "__value")
    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # Why: a hash is kept in tables and tells of the value.

    def __init__(self, value: T) -> None:
        self.__value: Any = value
        self.__sealed: SealedValue | None = None

    def reveal(self) -> T:
        """Return the value.

        One that is stored sealed raises SecretKeyError when its key is not here, CorruptionError when it was changed, or was
        sealed for another place.
        """
        if self.__value is _UNOPENED and self.__sealed is not None:
            self.__value = self.__sealed.opened()
        value: T = self.__value
        return value

    @property
    def sealed(self) -> SealedValue | None:
        """How it is stored, when it was read sealed: for keyplan's own use."""
        return self.__sealed

    @classmethod
    def of_sealed(cls, sealed: SealedValue) -> Self:
        """Return a secret that is opened when it is revealed: for keyplan's own use."""
        secret = cls(_UNOPENED)  # type: ignore[arg-type]  # Why: nobody sees it before the secret is opened.
        secret.__sealed = sealed  # Why: its own class.
        return secret

    def __str__(self) -> str:
        return MASK

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        if self.sealed is not None and other.sealed is not None and self.sealed.envelope == other.sealed.envelope:
            return True
        mine, others = self.reveal(), other.reveal()
        if isinstance(mine, str) and isinstance(others, str):
            return compare_digest(mine.encode(errors="surrogatepass"), others.encode(errors="surrogatepass"))
        if isinstance(mine, bytes) and isinstance(others, bytes):
            return compare_digest(mine, others)
        return bool(mine == others)

    def __bool__(self) -> NoReturn:
        # Why no answer: a field that was a text becomes a secret, and `if user.password:` would be true from then on.
        raise TypeError("a secret is neither true nor false: reveal() it")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a secret is not pickled: reveal() it, and pass its value where it is meant")

    def __getstate__(self) -> NoReturn:
        raise TypeError("a secret has no state to look at: reveal() it")

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, handler: Callable[[Any], Any]) -> Any:
        # Why here: pydantic calls this, so that it is there; keyplan itself does not import it.
        from pydantic_core import core_schema  # noqa: PLC0415

        def read(plain: Any, validate: Callable[[Any], Any]) -> Secret[Any]:
            envelope = envelope_of_plain(plain)
            if envelope is None:
                return cls(validate(plain))
            return cls.of_sealed(_sealed(envelope, lambda raw, _: validate(msgspec.json.decode(raw))))

        made = core_schema.no_info_wrap_validator_function(read, handler(cls.kind))
        return core_schema.json_or_python_schema(
            json_schema=made,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(Secret), made]),
            serialization=core_schema.plain_serializer_function_ser_schema(
                _pydantic_plain, info_arg=True, when_used="json"
            ),
        )

    if not TYPE_CHECKING:

        def __class_getitem__(cls, kind: Any) -> Any:
            """Return the class of secrets of this kind. Why a class: what reads a record needs to know the kind."""
            if cls is not Secret or isinstance(kind, TypeVar):
                return super().__class_getitem__(kind)
            return _class_of(kind)


@cache
def _class_of(kind: Any) -> "type[Secret[Any]]":
    name = kind.__name__ if isinstance(kind, type) else str(kind)
    return type(f"Secret[{name}]", (Secret,), {"__slots__": (), "__module__": Secret.__module__, "kind": kind})


def is_secret_kind(kind: object) -> "TypeGuard[type[Secret[Any]]]":
    """Tell whether this is a class of secrets."""
    return isinstance(kind, type) and issubclass(kind, Secret)


def _pydantic_plain(secret: Secret[Any], info: Any) -> Any:
    if info.context is STORED:
        return stored_of_secret(secret)
    return secret.reveal() if info.context is REVEALED else MASK


# ---- to and from what is stored --------------------------------------------------------------------------------------------

# Why context variables: what msgspec and pydantic call for a secret is given its value or its type, and nothing else.
_ORIGIN: Final[ContextVar[SecretOrigin | None]] = ContextVar("keyplan_secret_origin", default=None)
_CARRIED: Final[ContextVar["CarriedSecrets | None"]] = ContextVar("keyplan_carried_secrets", default=None)


def decoded_from(origin: SecretOrigin, decode: Callable[[bytes], T], raw: bytes) -> T:
    """Return what `decode` makes of stored bytes; the sealed secrets in it know where they come from."""
    token = _ORIGIN.set(origin)
    try:
        return decode(raw)
    finally:
        _ORIGIN.reset(token)


class CarriedSecrets:
    """The sealed secrets that a record brings when it is written, by their envelopes; `opened` are to be written in clear."""

    def __init__(self) -> None:
        self.by_envelope: dict[str, SealedValue] = {}
        self.opened: frozenset[str] = frozenset()

    def encoded(self, encode: Callable[[Any], bytes], record: object) -> bytes:
        """Return what `encode` makes of a record, and note the sealed secrets in it."""
        token = _CARRIED.set(self)
        try:
            return encode(record)
        finally:
            _CARRIED.reset(token)

    def stored(self, sealed: SealedValue) -> str | None:
        """Note a sealed secret; return its envelope, None when it is to be written in clear."""
        self.by_envelope[sealed.envelope] = sealed
        return None if sealed.envelope in self.opened else sealed.envelope


def envelope_of_secret(secret: Secret[Any]) -> str | None:
    """Return the envelope by which a secret is written as it was read; None for one that is written in clear."""
    sealed = secret.sealed
    if sealed is None:
        return None
    carried = _CARRIED.get()
    return sealed.envelope if carried is None else carried.stored(sealed)


def stored_of_secret(secret: Secret[Any]) -> Any:
    """Return what is stored of a secret in JSON and msgpack. Raises ValueError for a clear one that looks like a sealed one."""
    envelope = envelope_of_secret(secret)
    if envelope is not None:
        return {SEALED_FIELD: envelope}
    value = secret.reveal()
    if envelope_of_plain(value) is not None:
        raise ValueError("a secret in clear looks like a sealed one")
    return value


def envelope_of_plain(plain: Any) -> str | None:
    """Return the text of the envelope of a sealed secret, as JSON or msgpack have it; None for anything else."""
    if plain.__class__ is dict and len(plain) == 1:
        envelope = plain.get(SEALED_FIELD)
        return envelope if isinstance(envelope, str) else None
    return None


def sealed_secret(kind: type[Secret[Any]], envelope: str, read: Callable[[bytes, SecretSyntax], Any]) -> Secret[Any]:
    """Return a secret that was read sealed; `read` makes a value of what was sealed."""
    return kind.of_sealed(_sealed(envelope, read))


def _sealed(envelope: str, read: Callable[[bytes, SecretSyntax], Any]) -> SealedValue:
    origin = _ORIGIN.get()
    if origin is not None:
        origin.note_sealed()
    return SealedValue(envelope, read, origin)


def plain_of_secret(value: object) -> Any:
    """Return what is stored of a secret: msgspec's hook for encoders that write records. Raises TypeError for anything else."""
    if isinstance(value, Secret):
        return stored_of_secret(value)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def secret_of_plain(kind: Any, plain: Any) -> Any:
    """Return the secret of what is stored of it: msgspec's hook for decoders that read records."""
    if get_origin(kind) is Secret:
        kind = _class_of(get_args(kind)[0])  # Why: a generic record's, whose type was not known when it was declared.
    if not is_secret_kind(kind):
        raise TypeError(f"Expected `{getattr(kind, '__name__', kind)}`, got `{type(plain).__name__}`")
    read = partial(_read_opened, kind.kind)
    if isinstance(plain, Secret):
        return kind(plain.reveal()) if plain.sealed is None else kind.of_sealed(plain.sealed._replace(read=read))
    envelope = envelope_of_plain(plain)
    if envelope is not None:
        return sealed_secret(kind, envelope, read)
    try:
        return kind(msgspec.convert(plain, kind.kind, str_keys=True))
    except msgspec.ValidationError:
        # Why not its words, and no cause: they may quote the value.
        name = getattr(kind.kind, "__name__", kind.kind)
        problem = f"Expected `{name}`, got `{type(plain).__name__}`"
    raise ValueError(problem)  # Why not msgspec's own error: to this one it adds the place.


def _read_opened(kind: Any, raw: bytes, syntax: SecretSyntax) -> Any:
    plain = msgspec.msgpack.decode(raw) if syntax is SecretSyntax.MSGPACK else msgspec.json.decode(raw)
    return msgspec.convert(plain, kind, str_keys=True)
