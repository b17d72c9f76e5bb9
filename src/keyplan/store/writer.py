"""Where views write: a store (each write one commit), a transaction (collected), or a snapshot (refused)."""

from collections.abc import Callable
from typing import NoReturn, Protocol

from keyplan.engine import Engine
from keyplan.errors import UnsupportedByEngineError
from keyplan.layout import BoundCounter, BoundTable, ExpectedRevision

__all__ = ["NoWriter", "Writer"]


class Writer(Protocol):
    """The writes of `TableView` and `CounterView`, with the table or counter named; see there for what each promises."""

    def insert(self, table: BoundTable, key: object, record: object, *, lease: int) -> int: ...

    def put(
        self,
        table: BoundTable,
        key: object,
        record: object,
        *,
        expected_revision: ExpectedRevision | None,
        lease: int,
        damaged_ok: bool,
    ) -> int: ...

    def update(
        self,
        table: BoundTable,
        key: object,
        record: object,
        *,
        expected_revision: ExpectedRevision | None,
        damaged_ok: bool,
    ) -> int: ...

    def modify(self, table: BoundTable, key: object, change: Callable[[object], object]) -> int: ...

    def delete(
        self,
        table: BoundTable,
        key: object,
        *,
        expected_revision: ExpectedRevision | None,
        missing_ok: bool,
        damaged_ok: bool,
    ) -> int: ...

    def rename(self, table: BoundTable, key: object, new_key: object) -> int: ...

    def move_counter(self, counter: BoundCounter, choose: Callable[[int], int]) -> tuple[int, int]:
        """Let `choose(next number)` be the counter's next number; return the number before and after."""
        ...


class NoWriter:
    """Refuses every write: a snapshot is one state of the store, and stays it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def refuse(self) -> NoReturn:
        """Raise UnsupportedByEngineError."""
        raise UnsupportedByEngineError(engine=self._engine.profile.name, capability="writing to a snapshot")

    def insert(self, table: BoundTable, key: object, record: object, *, lease: int) -> int:
        self.refuse()

    def put(
        self,
        table: BoundTable,
        key: object,
        record: object,
        *,
        expected_revision: ExpectedRevision | None,
        lease: int,
        damaged_ok: bool,
    ) -> int:
        self.refuse()

    def update(
        self,
        table: BoundTable,
        key: object,
        record: object,
        *,
        expected_revision: ExpectedRevision | None,
        damaged_ok: bool,
    ) -> int:
        self.refuse()

    def modify(self, table: BoundTable, key: object, change: Callable[[object], object]) -> int:
        self.refuse()

    def delete(
        self,
        table: BoundTable,
        key: object,
        *,
        expected_revision: ExpectedRevision | None,
        missing_ok: bool,
        damaged_ok: bool,
    ) -> int:
        self.refuse()

    def rename(self, table: BoundTable, key: object, new_key: object) -> int:
        self.refuse()

    def move_counter(self, counter: BoundCounter, choose: Callable[[int], int]) -> tuple[int, int]:
        self.refuse()
