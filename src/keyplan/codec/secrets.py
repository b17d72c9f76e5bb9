"""A value that is shown to nobody who does not ask for it by name; and where such values stand in records.

Masking is a property of the value, not of what prints it: wherever a record ends up, its secrets are `***`.
"""

from collections.abc import Callable, Mapping
from functools import cache
from hmac import compare_digest
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    NoReturn,
    Self,
    TypeAlias,
    TypeGuard,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import msgspec
from msgspec import inspect

from keyplan.errors import LayoutError

__all__ = [
    "MASK",
    "STORED",
    "Secret",
    "SecretPath",
    "change_at",
    "plain_of_secret",
    "secret_of_plain",
    "secret_paths",
    "shown_path",
]

T = TypeVar("T")

MASK: Final = "***"
"""What is shown of every secret, whatever it is and however long."""

STORED: Final = object()
"""The context in which pydantic serializes a model to be stored; in every other one secrets are masked."""

SECRETS_MAX: Final = 100
"""Why: each place is looked at for each record that is read by a description; nobody keeps as many."""

SecretPath: TypeAlias = tuple[str | int | None, ...]
"""The way to a secret in a stored value: names as they are stored, places in arrays, None for each item; () is all of it."""


class Secret(Generic[T]):
    """A value that is not to be seen: a password, a hash, a token. A field of a record is declared `password: Secret[str]`.

    Text, `repr`, formats and JSON of it are `***`; `reveal` alone returns the value. Two secrets are equal when their values
    are, of texts and bytes in a time that does not tell where they differ. It cannot be hashed, ordered, pickled or tested for
    truth: each would tell of the value, or decide by what nobody meant. Copies are the secret itself.
    """

    kind: ClassVar[Any] = Any
    """The type of the value: T."""

    __slots__ = ("__value",)
    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # Why: a hash is kept in tables and tells of the value.

    def __init__(self, value: T) -> None:
        self.__value = value

    def reveal(self) -> T:
        """Return the value."""
        return self.__value

    def __str__(self) -> str:
        return MASK

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
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

        made = core_schema.no_info_after_validator_function(cls, handler(cls.kind))
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


def _pydantic_plain(secret: Secret[Any], info: Any) -> Any:
    return secret.reveal() if info.context is STORED else MASK


# ---- where they stand ----------------------------------------------------------------------------------------------------


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
        if _is_secret(getattr(kind, "cls", None)):
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


def _is_any_secret(described: Any) -> bool:
    """Tell whether a secret stands anywhere within a type."""
    seen: set[type] = set()
    pending = [described]
    while pending:
        kind = pending.pop()
        record = getattr(kind, "cls", None)
        if _is_secret(record):
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


def _is_secret(kind: object) -> "TypeGuard[type[Secret[Any]]]":
    return isinstance(kind, type) and issubclass(kind, Secret)


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


# ---- to and from what is stored --------------------------------------------------------------------------------------------


def plain_of_secret(value: object) -> Any:
    """Return what is stored of a secret: msgspec's hook for encoders that write records. Raises TypeError for anything else."""
    if isinstance(value, Secret):
        return value.reveal()
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def secret_of_plain(kind: Any, plain: Any) -> Any:
    """Return the secret of what is stored of it: msgspec's hook for decoders that read records."""
    if get_origin(kind) is Secret:
        kind = _class_of(get_args(kind)[0])  # Why: a generic record's, whose type was not known when it was declared.
    if not _is_secret(kind):
        raise TypeError(f"Expected `{getattr(kind, '__name__', kind)}`, got `{type(plain).__name__}`")
    try:
        return kind(plain.reveal() if isinstance(plain, Secret) else msgspec.convert(plain, kind.kind, str_keys=True))
    except msgspec.ValidationError:
        # Why not its words, and no cause: they may quote the value.
        name = getattr(kind.kind, "__name__", kind.kind)
        problem = f"Expected `{name}`, got `{type(plain).__name__}`"
    raise ValueError(problem)  # Why not msgspec's own error: to this one it adds the place.
