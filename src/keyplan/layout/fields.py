"""From Python types to codecs: which element a template field gets when the template does not spell one.

In order: the codec in the template, an Element in the annotation (`Annotated[int, Decimal(width=4)]`), the type's default for
text or binary layouts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin, get_type_hints
from uuid import UUID

from keyplan.codec import U64, Decimal, Element, HexUuid, RawUuid, Tail, Text, TextTail, element_of_spec
from keyplan.errors import LayoutError, TemplateError
from keyplan.layout.spec import KeyShape
from keyplan.layout.template import Field, Literal, Part, Placeholder, Template, read_template

__all__ = ["FieldType", "key_shape_of", "key_types", "resolve_template"]

_TEXT_DEFAULTS: Final[Mapping[type, type[Element[Any]]]] = {str: Text, int: Decimal, UUID: HexUuid}
_BINARY_DEFAULTS: Final[Mapping[type, type[Element[Any]]]] = {int: U64, UUID: RawUuid, bytes: Tail, str: TextTail}


class FieldType(NamedTuple):
    """The declared Python type of a key field, and the element in its annotation, if there is one."""

    python_type: type
    element: Element[Any] | None


def field_type_of(annotation: object) -> FieldType:
    """Split `Annotated[int, U64()]` into its type and element; `X | None` counts as X."""
    if get_origin(annotation) is Annotated:
        inner, *extras = get_args(annotation)
        elements = [extra for extra in extras if isinstance(extra, Element)]
        return FieldType(field_type_of(inner).python_type, elements[-1] if elements else None)
    members = [member for member in get_args(annotation) if member is not type(None)]
    if type(None) in get_args(annotation) and len(members) == 1:
        return field_type_of(members[0])
    return FieldType(annotation if isinstance(annotation, type) else object, None)


def is_named_tuple(kind: object) -> bool:
    """Tell whether `kind` is a NamedTuple class."""
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def key_types(kind: object, names: Sequence[str], *, item: str) -> dict[str, FieldType]:
    """The declared types of the key fields `names`, from a NamedTuple with exactly these fields or from one scalar type.

    Raises LayoutError when key class and template disagree.
    """
    if not is_named_tuple(kind):
        if len(names) != 1:
            raise LayoutError(
                item=item, problem="a key of several fields, or none, is declared as a NamedTuple", fields=list(names)
            )
        return {names[0]: field_type_of(kind)}
    declared: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]  # Why: is_named_tuple said so.
    if declared != tuple(names):
        raise LayoutError(
            item=item,
            problem="the key's fields are not those of the template, in its order",
            key=declared,
            template=tuple(names),
        )
    hints = get_type_hints(kind, include_extras=True)
    return {name: field_type_of(hints[name]) for name in names}


def key_shape_of(kind: object) -> KeyShape:
    """The shape of keys of this type."""
    if is_named_tuple(kind):
        return KeyShape(kind.__name__, is_scalar=False, make=kind)  # type: ignore[attr-defined,arg-type]
    scalar = field_type_of(kind).python_type
    return KeyShape(scalar.__name__, is_scalar=True, make=scalar)


def resolve_template(
    source: str | bytes, types: Callable[[list[str]], Mapping[str, FieldType]], *, is_text: bool, item: str
) -> Template:
    """Read a template and give each field its codec. `types` gets the field names and gives their declared types.

    Raises TemplateError or LayoutError naming `item`, the field and what disagrees.
    """
    if isinstance(source, str) is not is_text:
        raise TemplateError(template=source, item=item, problem="str and bytes templates do not mix in one layout")
    read = read_template(source)
    names = [part.name for part in read if isinstance(part, Placeholder) and part.attribute is None]
    declared = types(names)
    elements = {
        part.name: _element_of(part, declared.get(part.name), source, is_text=is_text, item=item)
        for part in read
        if isinstance(part, Placeholder) and part.attribute is None
    }
    parts: list[Part] = [part if isinstance(part, Literal) else _field(part, elements, source, item) for part in read]
    return Template(tuple(parts), is_text)


def _field(part: Placeholder, elements: Mapping[str, Element[Any]], source: str | bytes, item: str) -> Field:
    if part.attribute is None:
        return Field(part.name, None, elements[part.name])
    whole = elements.get(part.name)
    if whole is None:
        raise TemplateError(
            template=source,
            item=item,
            position=part.position,
            problem=f"{part.name}.{part.attribute} needs the field {part.name}",
        )
    if part.attribute not in whole.attributes:
        raise TemplateError(
            template=source,
            item=item,
            position=part.position,
            problem=f"the codec {whole.spec} has no attribute {part.attribute!r}",
            known=sorted(whole.attributes),
        )
    if not part.spec:
        raise TemplateError(
            template=source,
            item=item,
            position=part.position,
            problem="a derived field needs its codec, as in {path.level:u8}",
        )
    return Field(part.name, part.attribute, element_of_spec(part.spec))


def _element_of(
    part: Placeholder, declared: FieldType | None, source: str | bytes, *, is_text: bool, item: str
) -> Element[Any]:
    if part.spec:
        element = element_of_spec(part.spec)
    elif declared is not None and declared.element is not None:
        element = declared.element
    else:
        defaults = _TEXT_DEFAULTS if is_text else _BINARY_DEFAULTS
        make = defaults.get(declared.python_type) if declared is not None else None
        if make is None:
            kind = declared.python_type.__name__ if declared is not None else "nothing"
            raise LayoutError(
                item=item,
                template=source,
                field=part.name,
                problem=f"no codec for {kind}: write {{{part.name}:codec}} or annotate it with an element",
                types_with_a_default=sorted(kind.__name__ for kind in defaults),
            )
        element = make()
    if (
        declared is not None
        and not issubclass(declared.python_type, element.value_type)
        and declared.python_type is not object
    ):
        raise LayoutError(
            item=item,
            template=source,
            field=part.name,
            problem=f"the codec {element.spec} is for {element.value_type.__name__}, not {declared.python_type.__name__}",
        )
    return element
