"""`keyplan patroni events`: what happened to clusters, and what happens to them."""

import sys
from datetime import UTC, datetime
from threading import Event as Flag
from typing import Annotated, Any, Final

import typer

from keyplan.apps.patroni.events import EVENTS_KEPT, NotedEvent, newest_events
from keyplan.apps.patroni.layout import Broker
from keyplan.apps.patroni.logs import LOGGER
from keyplan.cli import (
    ConfigOption,
    JsonOption,
    StoreOption,
    ends_with_reader,
    print_grid,
    print_hint,
    print_json,
    print_text,
    printable,
    store_of_option,
)
from keyplan.errors import CorruptionError
from keyplan.layout import Changes
from keyplan.signals import told_by_signals
from keyplan.store import Store

__all__ = ["show_events"]

_COLUMNS: Final = ["time", "cluster", "what", "member", "operation", "text"]
_POLL_SECONDS: Final = 0.25
_LAST_MAX: Final = 100_000


def show_events(
    cluster: Annotated[str, typer.Argument(help="One cluster; all without it.", show_default=False)] = "",
    last: Annotated[
        int, typer.Option("--last", metavar="N", min=0, max=_LAST_MAX, help="How many of the newest.")
    ] = EVENTS_KEPT,
    is_following: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what happens from now on, until Ctrl-C.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """List what happened to clusters: operations begun and ended, changes of leaders, members astray, ports given.

    The newest hundred of each cluster are kept. With --json each event is a line of its own.
    """
    with store_of_option(store, config) as opened:
        if is_following:
            _follow(opened, cluster, last, as_json=as_json)
        else:
            with opened.snapshot() as state:
                found = newest_events(Broker(state), cluster, count=last)
            _print(found, as_json=as_json)
            if cluster and not found and not as_json and last:
                print_hint(f"nothing was noted of a cluster {cluster}")


def _follow(store: Store, cluster: str, last: int, *, as_json: bool) -> None:
    ends_with_reader()
    stop = Flag()
    with store.snapshot() as state:
        found, revision = newest_events(Broker(state), cluster, count=last), state.revision
    # Why after that revision: what happens between the list and the watch is shown, once.
    with (
        told_by_signals(stop, logger=LOGGER),
        Broker(store).events.watch(*([cluster] if cluster else []), after=revision) as changes,
    ):
        while not stop.is_set():
            for noted in found:
                _print_line(noted, as_json=as_json)
            sys.stdout.flush()
            found = _come(changes)
    raise KeyboardInterrupt


def _come(changes: Changes[Any, Any]) -> list[NotedEvent]:
    """Return the events that have come since; deletions of old ones are none."""
    try:
        come = changes.poll(_POLL_SECONDS)
    except CorruptionError as error:
        LOGGER.error("an event cannot be read and is passed over: %s", error)
        return []
    return sorted(
        NotedEvent(change.key, change.new) for change in come if change.new is not None and change.old is None
    )


def _print(events: list[NotedEvent], *, as_json: bool) -> None:
    if as_json:
        for noted in events:
            _print_line(noted, as_json=True)
    else:
        print_grid(_COLUMNS, [_row(noted) for noted in events])


def _print_line(noted: NotedEvent, *, as_json: bool) -> None:
    row = _row(noted)
    if as_json:
        print_json(dict(zip(_COLUMNS, row, strict=True)))
    else:
        cells = map(printable, row)
        print_text("  ".join(filter(None, cells)) if sys.stdout.isatty() else "\t".join(cells))


def _row(noted: NotedEvent) -> list[str]:
    at = datetime.fromtimestamp(noted.seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    event = noted.event
    return [at, noted.key.cluster, event.kind, event.member, event.cause, event.text]
