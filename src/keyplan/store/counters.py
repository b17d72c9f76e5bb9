"""The operations on one counter. The promises stand in keyplan.layout's CounterView."""

from typing import Final

from keyplan.errors import InvalidInputError
from keyplan.layout import BoundCounter, CounterView
from keyplan.store.numbers import check_whole
from keyplan.store.reader import Reader
from keyplan.store.writer import Writer

__all__ = ["CounterNumber"]

_NUMBER_MAX: Final = 2**64 - 1
"""Why: a binary counter is stored in eight bytes; text counters keep to the same bound, so that the form can change."""


class CounterNumber(CounterView):
    """A counter on a reader and a writer."""

    def __init__(self, counter: BoundCounter, reader: Reader, writer: Writer) -> None:
        self._counter = counter
        self._reader = reader
        self._writer = writer

    def next(self, count: int = 1) -> int:
        check_whole(count, "count")
        if count < 1:
            raise InvalidInputError(source="count", problem=f"a counter hands out at least one number, not {count}")
        before, _ = self._writer.move_counter(self._counter, lambda number: self._checked(number + count))
        return before

    def peek(self) -> int:
        entry = self._reader.get(self._counter.raw_key)
        return self._counter.start if entry is None else self._counter.decode(entry.value)

    def advance_to(self, number: int) -> int:
        check_whole(number, "number")
        self._checked(number)
        _, after = self._writer.move_counter(self._counter, lambda now: max(now, number))
        return after

    def _checked(self, number: int) -> int:
        if number > _NUMBER_MAX:
            raise InvalidInputError(
                source="counter", counter=self._counter.name, problem=f"a counter ends at {_NUMBER_MAX}"
            )
        return number
