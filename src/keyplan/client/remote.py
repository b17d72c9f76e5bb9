"""Declared operations, performed by a server: each becomes a method that sends its request and reads its answer."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

from keyplan.client.conversation import Conversation
from keyplan.errors import CommitOutcomeUnknownError, InvalidInputError
from keyplan.operations import Operation, ask, operations_of, read_answer

__all__ = ["Remote", "read_done"]

T = TypeVar("T")


class Remote:
    """A base class before an interface of operations: its subclasses have a server perform those that they do not define.

    Every method raises what the same method raises where it is performed, and EngineUnavailableError, CommitOutcomeUnknownError
    or UnauthorizedError for what can go wrong on the way. Nothing is sent twice.
    """

    conversation: Conversation

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        for name, operation in operations_of(cls).items():
            if name not in vars(cls):
                setattr(cls, name, _method(operation))

    def perform(self, operation: Operation, arguments: Mapping[str, Any]) -> Any:
        """Have an operation performed, and return what it returns.

        Raises CommitOutcomeUnknownError when the answer says that a change was made, and cannot be read.
        """
        _, found = self.send(operation, arguments)
        return read_done(operation, lambda: read_answer(operation, found), engine=self.conversation.engine)

    def send(self, operation: Operation, arguments: Mapping[str, Any]) -> tuple[int, Any]:
        """Send the request of an operation, and return the status and the JSON of its success."""
        return self.conversation.ask(ask(operation, arguments), timeout_seconds=operation.seconds)


def _method(operation: Operation) -> Callable[..., Any]:
    signature = inspect.signature(operation.function)

    @wraps(operation.function)
    def method(self: Remote, *positional: Any, **named: Any) -> Any:
        arguments = signature.bind(self, *positional, **named).arguments
        del arguments["self"]
        return self.perform(operation, arguments)

    return cast("Callable[..., Any]", method)


def read_done(operation: Operation, read: Callable[[], T], *, engine: str) -> T:
    """Return what is read of an answer. Raises CommitOutcomeUnknownError when it cannot be and the operation changes things."""
    try:
        return read()
    except InvalidInputError as error:
        if operation.changes:
            raise CommitOutcomeUnknownError(engine=engine, mutations=1) from error
        raise
