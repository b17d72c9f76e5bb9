"""Where views watch: the engine of a store; a snapshot or a transaction refuses, since it is one state of the store."""

from typing import NoReturn, Protocol

from keyplan.engine import Engine
from keyplan.errors import UnsupportedByEngineError
from keyplan.layout import Changes
from keyplan.store.follow import FollowSource
from keyplan.store.selection import Selection, TableSelection
from keyplan.store.watch import ChangeStream, WatchSource, position_after

__all__ = ["EngineWatcher", "NoWatcher", "Watcher"]


class Watcher(Protocol):
    """The watches of `TableView`, `UniqueView` and `IndexView`; see there for what each promises."""

    def watch(self, selection: Selection, after: int | str | None) -> Changes[object, object]: ...

    def follow(self, selection: TableSelection, *, keep_records: bool) -> Changes[object, object]: ...


class EngineWatcher:
    """Watches an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def watch(self, selection: Selection, after: int | str | None) -> Changes[object, object]:
        place = position_after(after, selection, self._engine)
        return ChangeStream(WatchSource(self._engine, selection, place))

    def follow(self, selection: TableSelection, *, keep_records: bool) -> Changes[object, object]:
        return ChangeStream(FollowSource(self._engine, selection, keep_records=keep_records))


class NoWatcher:
    """Refuses every watch. `bound_to` says what the layout is bound to."""

    def __init__(self, engine: Engine, bound_to: str) -> None:
        self._engine = engine
        self._bound_to = bound_to

    def watch(self, selection: Selection, after: int | str | None) -> Changes[object, object]:
        self._refuse()

    def follow(self, selection: TableSelection, *, keep_records: bool) -> Changes[object, object]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UnsupportedByEngineError(
            engine=self._engine.profile.name,
            capability=f"watching {self._bound_to}",
            problem="bind the layout to the store to watch it",
        )
