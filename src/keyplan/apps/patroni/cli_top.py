"""`keyplan patroni top`: clusters as they are, again whenever the store says that something about them has changed."""

import sys
from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING, Annotated, Final, Self

import msgspec
import typer

from keyplan.apps.patroni.clusters import ClusterView, clusters
from keyplan.apps.patroni.layout import Broker
from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.top_view import Line, lines_of
from keyplan.cli import ConfigOption, JsonOption, StoreOption, print_hint, print_json, print_text, store_of_option
from keyplan.engine import SYSTEM_CLOCK, KeyRange, Watch
from keyplan.errors import EngineError, KeyplanError
from keyplan.signals import told_by_signals
from keyplan.store import Store

if TYPE_CHECKING:
    from rich.console import Group

__all__ = ["ClusterChanges", "show_top"]

_POLL_SECONDS: Final = 0.25
_SHOWN_AGAIN_SECONDS: Final = 10.0
"""Why also without a change: the view shows the time, and whoever looks sees that it goes on."""
_LEAST_SECONDS: Final = 1.0
"""Why: members of many clusters report all the time, and nobody reads faster."""
_LOOKS: Final = {"head": "bold", "good": "green", "bad": "red", "busy": "yellow"}


def show_top(
    instance: Annotated[str, typer.Argument(help="One cluster; all without it.", show_default=False)] = "",
    store: StoreOption = None,
    is_once: Annotated[bool, typer.Option("--once", help="Show it once, on a terminal too.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Show clusters with members, roles, timelines, lag, ports, cells and operations, as they change, until Ctrl-C.

    In a pipe, with --once and with --json it is shown once.
    """
    with store_of_option(store, config) as opened:
        if as_json:
            print_json({"clusters": msgspec.to_builtins(_read(opened, instance))})
        elif is_once or not sys.stdout.isatty():
            views = _read(opened, instance)
            for line in lines_of(views, now=SYSTEM_CLOCK.wall()):
                print_text(line.text)
            if instance and not views:
                print_hint(f"there is no cluster {instance}")
        else:
            _show_live(opened, instance)


def _read(store: Store, instance: str) -> list[ClusterView]:
    with store.snapshot() as state:
        return [view for view in clusters(Broker(state)) if instance in {"", view.instance}]


class ClusterChanges:
    """Waits for changes of anything that the broker's store holds. Close it when done."""

    def __init__(self, store: Store) -> None:
        self._engine = store.engine
        self._range = KeyRange.of_prefix(Broker.bound().root)
        self._watch: Watch | None = None

    def come(self, stop: Event, seconds: float) -> bool:
        """Wait until something has changed, at most so long, or until `stop` is set; return whether it has.

        From the first call on nothing is missed. History that is gone counts as a change. Raises EngineError.
        """
        if self._watch is None:
            with self._engine.snapshot() as state:
                self._watch = self._engine.watch(self._range, after=state.revision)
            return True
        give_up = SYSTEM_CLOCK.monotonic() + seconds
        try:
            while not stop.is_set() and (left := give_up - SYSTEM_CLOCK.monotonic()) > 0:
                if self._watch.poll(min(left, _POLL_SECONDS)):
                    return True
        except EngineError:
            self.close()
            raise
        return False

    def close(self) -> None:
        """End the watch."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()


def _show_live(store: Store, instance: str) -> None:
    # Why here: rich takes a fifth of a second to import, which the other commands do without.
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    console, stop = Console(highlight=False), Event()

    def view() -> "Group":
        try:
            views, problem = _read(store, instance), ""
        except KeyplanError as error:
            views, problem = [], str(error)
        height = console.height - bool(problem)
        lines = lines_of(views, now=SYSTEM_CLOCK.wall(), width=console.width, height=height)
        return _drawn([*lines, Line(f"the store cannot be read: {problem}", "bad")] if problem else lines)

    # Why a flag: an interrupt that falls into a finalizer is printed by Python and forgotten, and the view would go on.
    with (
        told_by_signals(stop, logger=LOGGER),
        ClusterChanges(store) as changes,
        Live(view(), console=console, screen=True, auto_refresh=False) as live,
    ):
        while not stop.is_set():
            _until_changed(changes, stop, lambda: (console.width, console.height))
            live.update(view(), refresh=True)
    raise KeyboardInterrupt


def _until_changed(changes: ClusterChanges, stop: Event, size: Callable[[], tuple[int, int]]) -> None:
    """Return when something has changed, the terminal has another size, or it is time to show the time."""
    shown_at, before = SYSTEM_CLOCK.monotonic(), size()
    has_changed = False
    while not stop.is_set() and size() == before:
        age = SYSTEM_CLOCK.monotonic() - shown_at
        if age >= _SHOWN_AGAIN_SECONDS or (has_changed and age >= _LEAST_SECONDS):
            return
        try:
            has_changed = changes.come(stop, _POLL_SECONDS) or has_changed
        except EngineError:
            # Why a wait: the view says what is wrong, and the next look tries again.
            stop.wait(_LEAST_SECONDS)
            return


def _drawn(lines: list[Line]) -> "Group":
    from rich.console import Group  # noqa: PLC0415  # Why: as above.
    from rich.text import Text  # noqa: PLC0415

    return Group(*(Text(text, style=_LOOKS.get(look, ""), no_wrap=True, overflow="ellipsis") for text, look in lines))
