"""Records of other libraries, pydantic and protobuf, known by their methods: neither library is imported here."""

import sys
from typing import Any

from keyplan.codec.message_description import described_messages
from keyplan.codec.secrets import STORED, SecretSyntax
from keyplan.codec.survival import difference
from keyplan.codec.value_form import ValueForm, check_type, require, type_name
from keyplan.errors import CorruptionError, InvalidRecordError

__all__ = ["ProtobufForm", "PydanticForm", "is_protobuf", "is_pydantic", "pydantic_problem"]


class PydanticForm(ValueForm[Any]):
    """JSON by a pydantic model's own methods, aliases included; pydantic itself is not imported.

    As with `JsonForm`, the output is read back before it is returned, since models may be changed without validation.
    """

    code = "json"

    def __init__(self, model: Any) -> None:
        self._model = model

    @property
    def value_type(self) -> Any:
        return self._model

    @property
    def secret_syntax(self) -> SecretSyntax:
        return SecretSyntax.JSON

    def encode(self, value: Any) -> bytes:
        check_type(self, value, self._model)
        if type(value) is not self._model:
            self.refuse("a subclass, whose own fields would not be stored", type_found=type(value).__name__)
        raw = b""
        try:
            # Why: warnings off, since what they warn of, a field of the wrong type, is refused by reading back.
            raw = value.model_dump_json(by_alias=True, warnings=False, context=STORED).encode()
            problem = difference(value, self._model.model_validate_json(raw))
        except (TypeError, ValueError, RecursionError) as error:
            problem = pydantic_problem(error)
        # Why behind it, and without a cause: pydantic's words quote what they refuse, and tracebacks show causes.
        if problem is not None:
            self.refuse(problem)
        return raw

    def decode(self, raw: bytes) -> Any:
        try:
            return self._model.model_validate_json(raw)
        except ValueError as error:
            problem = pydantic_problem(error)
        except MemoryError:
            raise  # Why: that says nothing of the record.
        except Exception as error:  # noqa: BLE001  # Why: validators are the application's, and raise what they like.
            problem = f"the value does not fit its type: its class raised {type(error).__name__}"
            raise CorruptionError(problem=problem) from None
        raise CorruptionError(problem=problem)

    def describe(self) -> dict[str, Any]:
        return {"form": self.code, "type": type_name(self._model), "schema": self._model.model_json_schema()}


class ProtobufForm(ValueForm[Any]):
    """A protobuf message in its deterministic binary encoding; protobuf itself is not imported. Messages check their fields."""

    code = "protobuf"

    def __init__(self, message: Any) -> None:
        require(self, is_protobuf(message), message)
        self._message = message

    @property
    def value_type(self) -> Any:
        return self._message

    def encode(self, value: Any) -> bytes:
        check_type(self, value, self._message)
        try:
            raw: bytes = value.SerializeToString(deterministic=True)
        except (_protobuf_error(), ValueError) as error:
            raise InvalidRecordError(form=self.code, problem="the message cannot be serialized") from error
        return raw

    def decode(self, raw: bytes) -> Any:
        try:
            return self._message.FromString(raw)
        except (_protobuf_error(), ValueError) as error:
            raise CorruptionError(problem=f"the value is no {self._message.__name__} message") from error

    def describe(self) -> dict[str, Any]:
        descriptor = self._message.DESCRIPTOR
        return {"form": self.code, "type": descriptor.full_name} | described_messages(descriptor)


def is_protobuf(value_type: Any) -> bool:
    """Tell whether this is a protobuf message class."""
    return (
        isinstance(value_type, type) and hasattr(value_type, "SerializeToString") and hasattr(value_type, "FromString")
    )


def is_pydantic(value_type: Any) -> bool:
    """Tell whether this is a pydantic model class."""
    return hasattr(value_type, "model_validate_json") and hasattr(value_type, "model_dump_json")


def _protobuf_error() -> type[Exception]:
    # Why: a message class exists, so the application imported protobuf; keyplan itself does not.
    error = getattr(sys.modules.get("google.protobuf.message"), "Error", ValueError)
    return error if isinstance(error, type) and issubclass(error, Exception) else ValueError


def pydantic_problem(error: BaseException) -> str:
    """The places and kinds of pydantic's findings, without the input that its messages quote."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return "the model cannot be serialized"
    found = [(".".join(map(str, one["loc"])), one["type"]) for one in errors(include_input=False, include_url=False)]
    return "the value does not fit its model: " + ", ".join(f"{kind} at {place or 'top'}" for place, kind in found)
