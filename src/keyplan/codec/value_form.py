"""What every value form publishes, and the checks that forms make alike. The forms stand in the modules beside this one."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar, Generic, NoReturn, TypeVar, get_origin

from keyplan.codec.secret_paths import SecretPath, secret_paths
from keyplan.codec.secrets import SecretSyntax
from keyplan.errors import InvalidRecordError, LayoutError

__all__ = ["ValueForm", "check_type", "require", "type_name"]

V = TypeVar("V")


class ValueForm(ABC, Generic[V]):
    """How the values of one table are stored.

    For every value v that `encode` takes, `decode(encode(v))` equals it. Forms are stateless and shared by threads.
    """

    code: ClassVar[str]
    """The form's name in layout descriptions. Never changes its meaning: it stands in stored layouts."""

    @property
    @abstractmethod
    def value_type(self) -> Any:
        """The type of the values, as the table declares it; None for no value."""

    @abstractmethod
    def encode(self, value: V) -> bytes:
        """Return the bytes of `value`.

        Raises InvalidRecordError when it is of the wrong type or holds what cannot be read back, before anything is written.
        """

    @abstractmethod
    def decode(self, raw: bytes) -> V:
        """Return the value. Raises CorruptionError(problem=...), without any content of the value, when `raw` spells none."""

    @cached_property
    def secrets(self) -> tuple[SecretPath, ...]:
        """Where secrets stand in what is stored. Raises LayoutError where they cannot stand."""
        return secret_paths(self.value_type)

    @property
    def secret_syntax(self) -> SecretSyntax | None:
        """How what is stored spells secrets, so that they can be sealed there; None where they cannot."""
        return None

    def describe(self) -> dict[str, Any]:
        """The form as JSON data, for the layout's description; "form" is its `code`. Where secrets stand is added there."""
        return {"form": self.code}

    def refuse(self, problem: str, **facts: object) -> NoReturn:
        """Raise InvalidRecordError. `facts` name types and limits, never content."""
        raise InvalidRecordError(form=self.code, problem=problem, **facts)


def require(form: ValueForm[Any], fits: bool, value_type: Any) -> None:  # noqa: FBT001  # Why: it is what is required.
    """Raise LayoutError unless the form can store values of this type."""
    if not fits:
        raise LayoutError(
            problem=f"values of this type cannot be stored as {form.code}", value_type=type_name(value_type)
        )


def check_type(form: ValueForm[Any], value: object, expected: Any) -> None:
    """Raise InvalidRecordError unless `value` is an instance of the class `expected`."""
    kind = get_origin(expected) or expected
    if not isinstance(value, kind):
        form.refuse("a value of the wrong type", type_expected=type_name(expected), type_found=type(value).__name__)


def type_name(value_type: Any) -> str:
    """The type as descriptions and errors print it."""
    return value_type.__name__ if isinstance(value_type, type) and get_origin(value_type) is None else str(value_type)
