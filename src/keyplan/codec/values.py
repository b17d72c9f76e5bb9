"""How the value of a record is stored: the choice of a value form for a record's type, or for a layout's description.

The forms stand in `plain_forms`, `serialized_forms` and `foreign_forms`; an application may write its own by deriving from
`ValueForm`.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from types import NoneType
from typing import Any, Final
from uuid import UUID

from keyplan.codec.element import Element, element_of_spec
from keyplan.codec.foreign_forms import ProtobufForm, PydanticForm, is_protobuf, is_pydantic
from keyplan.codec.numbers import U64, Decimal
from keyplan.codec.plain_forms import ElementForm, EmptyForm, RawForm, TextForm
from keyplan.codec.sealing import envelope_in, marked
from keyplan.codec.secret_paths import SecretPath, change_at
from keyplan.codec.secrets import (
    Secret,
    SecretSyntax,
    envelope_of_plain,
    envelope_of_secret,
    sealed_secret,
    stored_of_secret,
)
from keyplan.codec.serialized_forms import JsonForm, MsgpackForm
from keyplan.codec.uuids import HexUuid, RawUuid
from keyplan.codec.value_form import ValueForm, check_type
from keyplan.errors import UnknownNameError

__all__ = ["value_form_of", "value_form_of_description"]


def value_form_of(
    value_type: Any, *, form: "str | ValueForm[Any] | Element[Any] | None" = None, is_text: bool
) -> "ValueForm[Any]":
    """Return the form in which values of `value_type` are stored.

    `form` names another than the type's own: "json", "msgpack", "protobuf", "raw", "utf8", "empty", or the spec of an element;
    or it is a form or an element itself. By themselves None is stored as nothing, bytes as they are, str in UTF-8, protobuf
    messages in their own encoding; an int is decimal text in a text layout (`is_text`) and u64 in a binary one; a UUID
    hexadecimal text or 16 bytes; everything else, classes, dicts and lists, is JSON. A secret is stored as what it holds.

    Raises LayoutError when type and form do not fit, UnknownNameError for a form that nobody knows.
    """
    if isinstance(form, ValueForm):
        return form
    if isinstance(value_type, type) and issubclass(value_type, Secret):
        return _SecretForm(value_type, value_form_of(value_type.kind, form=form, is_text=is_text))
    if isinstance(form, Element):
        return ElementForm(form)
    name = form or _own_form(value_type, is_text=is_text)
    if name == "json" and is_pydantic(value_type):
        return PydanticForm(value_type)
    maker = _FORMS.get(name)
    if maker is not None:
        return maker(value_type)
    try:
        return ElementForm(element_of_spec(name))
    except UnknownNameError as error:
        raise UnknownNameError(kind="value form", name=name, known=[*_FORMS, *_known_codecs(error)]) from error


def value_form_of_description(description: Mapping[str, Any]) -> "ValueForm[Any]":
    """Return a form that reads what the described one wrote, without the application's classes.

    JSON and msgpack are read as dicts and lists, protobuf and forms unknown here as raw bytes. Secrets are secrets, and so is
    the whole of raw bytes that hold one. It describes itself as given.
    """
    match description["form"]:
        case "element":
            form: ValueForm[Any] = ElementForm(element_of_spec(description["element"]))
        case "empty":
            form = EmptyForm()
        case "utf8":
            form = TextForm()
        case "json":
            form = JsonForm(Any, is_sorted=False)
        case "msgpack":
            form = MsgpackForm(Any, is_sorted=False)
        case _:
            form = RawForm()
    return _DescribedForm(form, dict(description))


class _DescribedForm(ValueForm[Any]):
    """A form that stands in for the one that `description` tells of."""

    def __init__(self, form: ValueForm[Any], description: dict[str, Any]) -> None:
        self._form = form
        self._secrets = [tuple(path) for path in description.pop("secrets", ())]
        self._description = description
        self.code = description["form"]  # type: ignore[misc]  # Why: it stands in for a form of this name.

    @property
    def value_type(self) -> Any:
        return self._form.value_type

    @cached_property
    def secrets(self) -> tuple[SecretPath, ...]:
        return tuple(self._secrets)

    @property
    def secret_syntax(self) -> SecretSyntax | None:
        return self._form.secret_syntax or (SecretSyntax.WHOLE if self._secrets == [()] else None)

    def encode(self, value: Any) -> bytes:
        if isinstance(value, Secret) and self._form.secret_syntax is None:
            return _encoded_whole(self, self._form, value)
        for path in [()] if isinstance(value, Secret) else self._secrets:
            value = change_at(value, path, _stored)
        return self._form.encode(value)

    def decode(self, raw: bytes) -> Any:
        if self._secrets and self._form.secret_syntax is None:
            return _decoded_whole(Secret, self._form, raw)
        value = self._form.decode(raw)
        for path in self._secrets:
            value = change_at(value, path, self._secret)
        return value

    def _secret(self, plain: Any) -> Secret[Any]:
        envelope = envelope_of_plain(plain)
        return (
            Secret(plain)
            if envelope is None
            else sealed_secret(Secret, envelope, lambda raw, _: self._form.decode(raw))
        )

    def describe(self) -> dict[str, Any]:
        return self._description


def _stored(value: Any) -> Any:
    return stored_of_secret(value) if isinstance(value, Secret) else value


class _SecretForm(ValueForm[Secret[Any]]):
    """Values that are secret as a whole, stored as another form stores what they hold."""

    def __init__(self, kind: type[Secret[Any]], form: ValueForm[Any]) -> None:
        self._kind = kind
        self._form = form
        self.code = form.code  # type: ignore[misc]  # Why: the bytes are those of this form.

    @property
    def value_type(self) -> Any:
        return self._kind

    @property
    def secret_syntax(self) -> SecretSyntax:
        return self._form.secret_syntax or SecretSyntax.WHOLE

    def encode(self, value: Secret[Any]) -> bytes:
        check_type(self, value, Secret)
        return _encoded_whole(self, self._form, value)

    def decode(self, raw: bytes) -> Secret[Any]:
        return _decoded_whole(self._kind, self._form, raw)

    def describe(self) -> dict[str, Any]:
        return self._form.describe()


def _encoded_whole(form: ValueForm[Any], held: ValueForm[Any], secret: Secret[Any]) -> bytes:
    """Return a secret as a whole value; `held` is the form of what it holds."""
    syntax, envelope = held.secret_syntax or SecretSyntax.WHOLE, envelope_of_secret(secret)
    if envelope is not None:
        return marked(syntax, envelope)
    raw = held.encode(secret.reveal())
    if envelope_in(syntax, raw) is not None:
        form.refuse("a secret in clear looks like a sealed one")
    return raw


def _decoded_whole(kind: type[Secret[Any]], held: ValueForm[Any], raw: bytes) -> Secret[Any]:
    envelope = envelope_in(held.secret_syntax or SecretSyntax.WHOLE, raw)
    if envelope is None:
        return kind(held.decode(raw))
    return sealed_secret(kind, envelope, lambda opened, _: held.decode(opened))


_FORMS: Final[dict[str, Callable[[Any], ValueForm[Any]]]] = {
    "empty": EmptyForm,
    "json": JsonForm,
    "msgpack": MsgpackForm,
    "protobuf": ProtobufForm,
    "raw": RawForm,
    "utf8": TextForm,
}


def _own_form(value_type: Any, *, is_text: bool) -> str:
    own = {
        None: EmptyForm.code,
        NoneType: EmptyForm.code,
        bytes: RawForm.code,
        str: TextForm.code,
        int: (Decimal if is_text else U64).code,
        UUID: (HexUuid if is_text else RawUuid).code,
    }
    # Why: `is`, since a type may define equality, and types like dict[str, Any] need not be hashable.
    for kind, name in own.items():
        if value_type is kind:
            return name
    return ProtobufForm.code if is_protobuf(value_type) else JsonForm.code


def _known_codecs(error: UnknownNameError) -> list[str]:
    known = error.facts["known"]
    return [str(name) for name in known] if isinstance(known, list) else []
