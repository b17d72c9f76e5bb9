"""Where secrets stand in what is stored of a type: ways by stored names, and what is done in their places."""

from collections.abc import Callable, Mapping
from types import UnionType
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin

from msgspec import inspect

from keyplan.codec.secrets import is_secret_kind
from keyplan.errors import LayoutError

__all__ = ["SecretPath", "change_at", "has_exact_paths", "secret_paths", "shown_path"]

SECRETS_MAX: Final = 100
"""Why: each place is looked at for each record that is read by a description; nobody keeps as many."""

SecretPath: TypeAlias = tuple[str | int | None, ...]
"""The way to a secret in a stored value: names as they are stored, places in arrays, None for each item; () is all of it."""


def secret_paths(value_type: Any) -> tuple[SecretPath, ...]:
    """Return the ways to the secrets in stored values of a type, of JSON or msgpack. Raises LayoutError.

    In a record that holds records of its own kind, and in another secret, there can be none.
    """
    try:
        described = inspect.type_info(value_type)
    except TypeError:
        # Why none: such a type is read by hooks of its own, which are not ours, and make no secret.
        return ()
    search = _Search()
    search.walk(described, ())
    return tuple(search.found)


class _Search:
    """A walk through a type. What holds no secret is not entered: types may share others at many levels."""

    def __init__(self) -> None:
        self.found: dict[SecretPath, None] = {}
        self._above: list[type] = []
        self._holding: dict[type, bool] = {}

    def walk(self, kind: Any, path: SecretPath) -> None:
        if is_secret_kind(getattr(kind, "cls", None)):
            if secret_paths(kind.cls.kind):
                raise LayoutError(problem="a secret holds another secret", value_type=kind.cls.__name__)
            self.found[path] = None
            if len(self.found) > SECRETS_MAX:
                raise LayoutError(problem="secrets stand in too many places of a record", places_max=SECRETS_MAX)
            return
        record = getattr(kind, "cls", None)
        if record is None:
            for step, inner in _steps_into(kind):
                self.walk(inner, path + step)
        elif self._holds_secrets(record, kind):
            if record in self._above:
                problem = "a secret stands in a record that holds records of its own kind"
                raise LayoutError(problem=problem, value_type=record.__name__)
            self._above.append(record)
            for step, inner in _steps_into(kind):
                self.walk(inner, path + step)
            self._above.pop()

    def _holds_secrets(self, record: type, kind: Any) -> bool:
        if record not in self._holding:
            self._holding[record] = _is_any_secret(kind)
        return self._holding[record]


def has_exact_paths(value_type: Any) -> bool:
    """Tell whether secrets alone stand where the ways to them lead: no clear field of another member of a union."""
    try:
        described = inspect.type_info(value_type)
    except TypeError:
        return False
    return all(
        is_secret_kind(getattr(kind, "cls", None)) or isinstance(kind, inspect.NoneType)
        for path in secret_paths(value_type)
        for kind in _kinds_at(described, path)
    )


def _kinds_at(kind: Any, path: SecretPath) -> list[Any]:
    """The types that can stand where a way leads."""
    inner = [] if is_secret_kind(getattr(kind, "cls", None)) else _steps_into(kind)
    through = [found for step, below in inner if not step for found in _kinds_at(below, path)]
    if through or not path:
        return through or [kind]
    return [
        found
        for step, below in inner
        if step and len(step) <= len(path) and all(map(_meets, step, path))
        for found in _kinds_at(below, path[len(step) :])
    ]


def _meets(step: str | int | None, asked: str | int | None) -> bool:
    """Tell whether a step of a type leads where a step of a way does; None is each item."""
    return step == asked or step is None or asked is None


def _is_any_secret(described: Any) -> bool:
    """Tell whether a secret stands anywhere within a type."""
    seen: set[type] = set()
    pending = [described]
    while pending:
        kind = pending.pop()
        record = getattr(kind, "cls", None)
        if is_secret_kind(record):
            return True
        if record is None or record not in seen:
            seen |= set() if record is None else {record}
            pending += [inner for _, inner in _steps_into(kind)]
    return False


def _steps_into(kind: Any) -> list[tuple[SecretPath, Any]]:
    """The types within a type, one level down, and the steps to them in what is stored."""
    match kind:
        case inspect.CustomType(cls=cls) if hasattr(cls, "model_fields"):  # pydantic's
            # Why a root apart: it is stored as what it holds, without its name.
            is_root = getattr(cls, "__pydantic_root_model__", False)
            return [
                (path, inner)
                for name, field in cls.model_fields.items()
                for path, inner in _described(
                    field.annotation, () if is_root else (field.serialization_alias or field.alias or name,)
                )
            ]
        case inspect.StructType(array_like=True):
            first = 0 if kind.tag_field is None else 1
            return [((place,), field.type) for place, field in enumerate(kind.fields, first)]
        case inspect.NamedTupleType():
            return [((place,), field.type) for place, field in enumerate(kind.fields)]
        case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType():
            return [((field.encode_name,), field.type) for field in kind.fields]
        case inspect.TupleType():
            return [((place,), item) for place, item in enumerate(kind.item_types)]
        case inspect.CollectionType():
            return [((None,), kind.item_type)]
        case inspect.DictType():
            return [((None,), kind.value_type)]
        case inspect.UnionType():
            return [((), option) for option in kind.types]
        case inspect.Metadata():
            return [((), kind.type)]
        case _:
            return []


def _described(annotation: Any, path: SecretPath) -> list[tuple[SecretPath, Any]]:
    """The types of a pydantic field, and the ways to them. Why by hand: msgspec describes no union of several classes."""
    try:
        return [(path, inspect.type_info(annotation))]
    except TypeError:
        origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _described(arguments[0], path)
    if origin in {Union, UnionType}:
        return [found for option in arguments for found in _described(option, path)]
    if origin is tuple and Ellipsis not in arguments:
        return [found for place, item in enumerate(arguments) for found in _described(item, (*path, place))]
    # Of a mapping the values: no secret is a key.
    values = arguments[1:] if isinstance(origin, type) and issubclass(origin, Mapping) else arguments
    return [found for item in values if item is not Ellipsis for found in _described(item, (*path, None))]


def shown_path(path: SecretPath) -> str:
    """Return a way for people: `credentials[].password`; `$` for all of the value."""
    steps = ["[]" if step is None else f"[{step}]" if isinstance(step, int) else f".{step}" for step in path]
    return "".join(steps).removeprefix(".") or "$"


def change_at(tree: Any, path: SecretPath, change: Callable[[Any], Any]) -> Any:
    """Return a value of dicts and lists with another one in each place that a path leads to; None stays."""
    if not path:
        return tree if tree is None else change(tree)
    step, rest = path[0], path[1:]
    if isinstance(tree, dict):
        steps = list(tree) if step is None else [step] if step in tree else []
        return {**tree, **{name: change_at(tree[name], rest, change) for name in steps}}
    if isinstance(tree, list):
        places = range(len(tree)) if step is None else [step] if isinstance(step, int) and step < len(tree) else []
        return [change_at(item, rest, change) if place in places else item for place, item in enumerate(tree)]
    return tree
