"""The command `keyplan copy`."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from keyplan.cli.backup import KeepLeasedOption, UnfinishedOption, prefix_of_option
from keyplan.cli.bar import progress_bar
from keyplan.cli.failures import print_hint
from keyplan.cli.options import ConfigOption, JsonOption, store_of_option
from keyplan.cli.output import print_json, print_text
from keyplan.cli.targets import refuse_itself
from keyplan.cli.unfinished import Unfinished
from keyplan.engine import EngineUrl, KeyRange
from keyplan.errors import InvalidInputError
from keyplan.maintenance import CopyProgress, CopyReport, copy_store, refuse_unfinished
from keyplan.store import Store

__all__ = ["run"]


def run(
    *,
    source: Annotated[str, typer.Option("--from", metavar="URL", help="The store to read.", show_default=False)],
    target: Annotated[str, typer.Option("--to", metavar="URL", help="The store to write.", show_default=False)],
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="PREFIX", help="Only keys that begin so; \\xNN for other bytes.")
    ] = "",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is there; keys that the source does not have are removed.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Then apply every change as it comes, until Ctrl-C or SIGTERM.")
    ] = False,
    keep_leased: KeepLeasedOption = False,
    unfinished: UnfinishedOption = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Copy a store, or a prefix of it, into another one, whatever their engines, and verify it by reading it back.

    What the target cannot hold is told before the first write. A copy that was interrupted is finished by the same command:
    only what differs is written.
    """
    names = [EngineUrl.parse(url).text for url in (source, target)]
    if names[0] == names[1]:
        raise InvalidInputError(source="--to", problem="a store is not copied into itself")
    raw_prefix = prefix_of_option(prefix)
    refuse_itself(source, target)
    with (
        _source(source, config, raw_prefix, takes_unfinished=unfinished) as source_store,
        store_of_option(target, config, create=True, unfinished=Unfinished.PASSED) as target_store,
        _stop(is_followed=follow) as stop,
    ):

        def total() -> int:
            with source_store.engine.snapshot() as snapshot:
                return snapshot.count(KeyRange.of_prefix(raw_prefix))

        with progress_bar("copy", total) as told:
            following = Event()

            def progress(now: CopyProgress) -> None:
                if now.stage == "copying":
                    told(now.pairs)
                elif now.stage == "following" and not following.is_set():
                    following.set()
                    print_hint("copied and verified; following changes until Ctrl-C")

            report = copy_store(
                source_store.engine,
                target_store.engine,
                source_name=names[0],
                prefix=raw_prefix,
                is_overwriting=overwrite,
                keeps_leased=keep_leased,
                takes_unfinished=unfinished,
                follow_until=stop,
                progress=progress,
            )
    _print_copied(report, json=json)


def _source(url: str, config: Path | None, prefix: bytes, *, takes_unfinished: bool) -> Store:
    """Open the store that is read. Why it is looked at here: a copy that is refused must not have made its target."""
    store = store_of_option(url, config, readonly=True, unfinished=Unfinished.PASSED)
    try:
        if not takes_unfinished:
            with store.engine.snapshot() as snapshot:
                refuse_unfinished(snapshot, [prefix])
    except BaseException:
        store.close()
        raise
    return store


def _print_copied(report: CopyReport, *, json: bool) -> None:
    if json:
        print_json(
            {
                "revision": report.revision,
                "count": report.tally.count,
                "bytes": report.tally.bytes,
                "sha256": report.tally.sha256,
                "written": report.written.puts,
                "removed": report.written.deletes,
                "unchanged": report.written.unchanged,
                "leased": report.leased,
                "followed": report.followed,
                "is_resumed": report.is_resumed,
            }
        )
        return
    print_text(f"{report.tally.count} pairs  {report.tally.bytes} bytes  sha256 {report.tally.sha256}")
    counts = f"{report.written.puts} written, {report.written.deletes} removed, {report.written.unchanged} as they were"
    print_text(f"verified as of revision {report.revision} of the source: {counts}")
    if report.followed:
        print_text(f"{report.followed} revisions were followed")
    if report.leased:
        print_hint(f"{report.leased} entries hang on leases and were left out; --keep-leased takes them along")


@contextmanager
def _stop(*, is_followed: bool) -> Iterator[Event | None]:
    """An event that the first Ctrl-C or SIGTERM sets; the second ends the command as ever. None when nothing is followed."""
    if not is_followed:
        yield None
        return
    stop = Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def end(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, end)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
