"""JSON and msgpack by msgspec: classes, dicts and lists, read back before they are written."""

import re
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cached_property
from typing import Any, Final, TypeVar, get_origin, is_typeddict

import msgspec

from keyplan.codec.secrets import SecretSyntax, plain_of_secret, secret_of_plain
from keyplan.codec.survival import difference
from keyplan.codec.value_form import ValueForm, check_type, type_name
from keyplan.codec.value_schema import value_schema
from keyplan.errors import CorruptionError, InvalidRecordError, LayoutError

__all__ = ["JsonForm", "MsgpackForm"]

V = TypeVar("V")


class _SerializedForm(ValueForm[V]):
    """What JSON and msgpack share.

    `encode` reads its own output back before returning it, and compares: serializing does not look at declared types, so that
    a field of the wrong type would be written and found at the next read, or read as another value. Reading back was measured
    at 0.6 microseconds for ten fields, half of converting field by field, and nothing validates twice. Comparing is the class's
    own equality; where it says no, `survival.difference` has the last word.
    """

    def __init__(
        self,
        value_type: Any,
        encoder: type[msgspec.json.Encoder | msgspec.msgpack.Encoder],
        decoder: Callable[..., msgspec.json.Decoder[V] | msgspec.msgpack.Decoder[V]],
        *,
        is_sorted: bool,
    ) -> None:
        self._value_type = value_type
        # Why hooks for every type: they are called for secrets alone, and cost nothing where there are none.
        self._encode_as_is = encoder(enc_hook=plain_of_secret).encode
        self._encode_sorted = self._encode_as_is
        if is_sorted:
            self._encode_sorted = encoder(enc_hook=plain_of_secret, order="deterministic").encode
        try:
            self._decode = decoder(value_type, dec_hook=secret_of_plain).decode
        except (TypeError, ValueError) as error:
            name = type_name(value_type)
            problem = f"values of this type cannot be stored as {self.code}"
            raise LayoutError(problem=problem, value_type=name) from error
        self._class: Any = (get_origin(value_type) or value_type) if _is_record_class(value_type) else None

    @property
    def value_type(self) -> Any:
        return self._value_type

    @property
    def secret_syntax(self) -> SecretSyntax:
        return SecretSyntax(self.code)

    def encode(self, value: V) -> bytes:
        if self._class is not None and type(value) is not self._class:
            check_type(self, value, self._value_type)
            self.refuse(
                "a subclass, whose own fields would not be stored",
                type_expected=type_name(self._value_type),
                type_found=type(value).__name__,
            )
        try:
            try:
                raw = self._encode_sorted(value)
            except TypeError:
                # Why: msgspec sorts dicts with text keys only; others keep the order that they have.
                raw = self._encode_as_is(value)
            read_back = self._decode(raw)
            changed = difference(value, read_back) if read_back != value else None
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidRecordError(form=self.code, problem=_problem(error)) from error
        except MemoryError:
            raise  # Why: that says nothing of the record.
        except Exception as error:
            raise InvalidRecordError(form=self.code, problem=_of_class(error)) from error
        if changed is not None:
            self.refuse(changed)
        return raw

    def decode(self, raw: bytes) -> V:
        try:
            return self._decode(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise CorruptionError(problem=_problem(error)) from error
        except MemoryError:
            raise  # Why: as above; a whole record would count as damaged.
        except Exception as error:
            raise CorruptionError(problem=_of_class(error)) from error

    def describe(self) -> dict[str, Any]:
        description = {"form": self.code, "type": type_name(self._value_type)}
        return description if self._schema is None else description | {"schema": _copied(self._schema)}

    @cached_property
    def _schema(self) -> dict[str, Any] | None:
        # Why once: layouts are described again and again, and a walk through a class takes a millisecond.
        try:
            return value_schema(self._value_type)
        except TypeError:
            # Why: a type may be readable through hooks of its own, and yet have no schema.
            return None


class JsonForm(_SerializedForm[V]):
    """JSON by msgspec: a Struct, dataclass, NamedTuple, TypedDict, or dicts, lists and scalars.

    Text keys of dicts and sets are written in order, so that equal values have equal bytes; fields keep their declared order.
    What JSON would change, anywhere in a value, is refused: a tuple where a list is read back, NaN, a UUID in an untyped field.
    With `is_sorted=False` dicts keep the order that they have: a class's fields, read without the class, are written as read.
    """

    code = "json"

    def __init__(self, value_type: Any, *, is_sorted: bool = True) -> None:
        super().__init__(value_type, msgspec.json.Encoder, msgspec.json.Decoder, is_sorted=is_sorted)


class MsgpackForm(_SerializedForm[V]):
    """msgpack by msgspec: smaller and faster to write than JSON, and not readable by eye. Dicts are sorted as in JSON."""

    code = "msgpack"

    def __init__(self, value_type: Any, *, is_sorted: bool = True) -> None:
        super().__init__(value_type, msgspec.msgpack.Encoder, msgspec.msgpack.Decoder, is_sorted=is_sorted)


def _copied(schema: Any) -> Any:
    """The dicts and lists of a schema anew, for who changes them. Why not copy.deepcopy: it takes as long as the walk."""
    if isinstance(schema, dict):
        return {name: _copied(part) for name, part in schema.items()}
    return list(map(_copied, schema)) if isinstance(schema, list) else schema


def _is_record_class(value_type: Any) -> bool:
    """A class of the application, whose instances are told from others by class; not a TypedDict, dict, list or scalar."""
    kind = get_origin(value_type) or value_type
    if not isinstance(kind, type) or is_typeddict(kind):
        return False
    return (
        issubclass(kind, msgspec.Struct) or is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


def _of_class(error: Exception) -> str:
    """What the record's class raised, as an assertion in `__post_init__`: its kind, as its text may quote the value."""
    return f"the value does not fit its type: its class raised {type(error).__name__}"


_SAFE: Final = (
    "Expected",
    "Object missing",
    "JSON is malformed",
    "MessagePack data is malformed",
    "Input data was truncated",
)


def _problem(error: BaseException) -> str:
    """What msgspec found, without what it may quote of the value: an enum's or tag's unknown name, an unknown field."""
    message = str(error)
    if isinstance(error, msgspec.MsgspecError) and message.startswith(_SAFE):
        return f"the value does not fit its type: {message}"
    where = re.search(r" - at `(?:\$|key)[^`]*`", message) if isinstance(error, msgspec.MsgspecError) else None
    return f"the value does not fit its type: an invalid value{where[0] if where else ''}"
