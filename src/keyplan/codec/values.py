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
from keyplan.codec.secrets import Secret, SecretPath, change_at
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

    def encode(self, value: Any) -> bytes:
        for path in [()] if isinstance(value, Secret) else self._secrets:
            value = change_at(value, path, _revealed)
        return self._form.encode(value)

    def decode(self, raw: bytes) -> Any:
        value = self._form.decode(raw)
        if not self._secrets:
            return value
        if isinstance(value, bytes):
            return Secret(value)
        for path in self._secrets:
            value = change_at(value, path, Secret)
        return value

    def describe(self) -> dict[str, Any]:
        return self._description


def _revealed(value: Any) -> Any:
    return value.reveal() if isinstance(value, Secret) else value


class _SecretForm(ValueForm[Secret[Any]]):
    """Values that are secret as a whole, stored as another form stores what they hold."""

    def __init__(self, kind: type[Secret[Any]], form: ValueForm[Any]) -> None:
        self._kind = kind
        self._form = form
        self.code = form.code  # type: ignore[misc]  # Why: the bytes are those of this form.

    @property
    def value_type(self) -> Any:
        return self._kind

    def encode(self, value: Secret[Any]) -> bytes:
        check_type(self, value, Secret)
        return self._form.encode(value.reveal())

    def decode(self, raw: bytes) -> Secret[Any]:
        return self._kind(self._form.decode(raw))

    def describe(self) -> dict[str, Any]:
        return self._form.describe()


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
