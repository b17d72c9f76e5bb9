"""The commands `keyplan raw ...` and `keyplan extract`: single keys, by hand, guarded and shown first."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from keyplan.cli.failures import print_hint
from keyplan.cli.items import LayoutOptions
from keyplan.cli.options import (
    JsonOption,
    is_layout_named,
    layout_of_option,
    raw_key_of_option,
    read_bytes,
    root_parameters,
    spread,
    store_of_option,
)
from keyplan.cli.output import print_json, print_text, printable
from keyplan.cli.transfer import FileArgument
from keyplan.engine import Engine
from keyplan.errors import InvalidInputError, NotFoundError
from keyplan.layout import BoundLayout, shown_key
from keyplan.maintenance import (
    RawChange,
    Selection,
    carry_out_change,
    extract,
    list_quarantined,
    plan_delete,
    plan_put,
    plan_quarantine,
    plan_release,
)
from keyplan.store import Explanation, Store

__all__ = [
    "WriteOptions",
    "agreed",
    "extract_command",
    "layout_where_named",
    "print_change",
    "raw_app",
]


raw_app: Final = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="Read, write, delete and set aside single keys, by hand."
)

KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="A raw key: text, with \\xNN for other bytes.", show_default=False)
]
HexOption = Annotated[bool, typer.Option("--hex", help="KEY is in hexadecimal digits.")]


class WriteOptions(NamedTuple):
    """What every writing command asks: a record of options, for `spread`."""

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and write nothing.")] = False
    past_fence: Annotated[
        bool, typer.Option("--past-fence", help="Also a key of a registered key space, or keyplan's own.")
    ] = False
    json: JsonOption = False


@raw_app.command("get")
@spread
def raw_get_command(
    key: KeyArgument,
    *,
    at: LayoutOptions,
    is_hex: HexOption = False,
    json: JsonOption = False,
) -> None:
    """Print the bytes that stand at a key. `keyplan explain` says what they mean."""
    raw_key = raw_key_of_option(key, is_hex=is_hex)
    with (
        store_of_option(at.store, at.config, readonly=True, keyspace=at.keyspace) as store,
        store.engine.snapshot() as read,
    ):
        entry = read.get(raw_key)
    if entry is None:
        raise NotFoundError(raw_key=raw_key.hex())
    if json:
        facts = {"key": shown_key(raw_key), "hex": raw_key.hex(), "value": entry.value.hex()}
        print_json({**facts, "revision": entry.mod_revision, "lease": entry.lease})
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(entry.value)
    if sys.stdout.isatty():
        print_text("")


@raw_app.command("put")
@spread
def raw_put_command(
    key: KeyArgument,
    value: Annotated[
        str | None, typer.Argument(metavar="VALUE", help="The value as text; - reads bytes from standard input.")
    ] = None,
    *,
    at: LayoutOptions,
    options: WriteOptions,
    is_hex: HexOption = False,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="The value is what this file holds.")
    ] = None,
    lease: Annotated[
        int | None,
        typer.Option("--lease", metavar="ID", min=0, help="The lease to hang on; 0: none.", show_default=False),
    ] = None,
) -> None:
    """Write exactly these bytes at a key; with a layout, a record's index entries too, in one commit."""
    if (value is None) == (file is None):
        raise InvalidInputError(source="VALUE", problem="give the value, - for standard input, or --file FILE")
    raw_key = raw_key_of_option(key, is_hex=is_hex)
    raw = read_bytes(file) if file is not None else _bytes_of(value or "")

    def plan(engine: Engine, bound: BoundLayout | None) -> RawChange:
        return plan_put(engine, raw_key, raw, layout=bound, lease=lease, past_fence=options.past_fence)

    _change(at, options, plan)


@raw_app.command("delete")
@spread
def raw_delete_command(
    key: KeyArgument,
    *,
    at: LayoutOptions,
    options: WriteOptions,
    is_hex: HexOption = False,
) -> None:
    """Delete a key; with a layout, the index entries that point at it too, also those of a record that cannot be read."""
    raw_key = raw_key_of_option(key, is_hex=is_hex)
    _change(
        at, options, lambda engine, bound: plan_delete(engine, raw_key, layout=bound, past_fence=options.past_fence)
    )


@raw_app.command("quarantine")
@spread
def quarantine_command(
    key: KeyArgument,
    *,
    at: LayoutOptions,
    options: WriteOptions,
    is_hex: HexOption = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for who finds it there.")] = "",
) -> None:
    """Set an entry aside: its key is free, and `keyplan raw release` puts it back."""
    raw_key = raw_key_of_option(key, is_hex=is_hex)

    def plan(engine: Engine, bound: BoundLayout | None) -> RawChange:
        return plan_quarantine(engine, raw_key, layout=bound, reason=reason, past_fence=options.past_fence)

    _change(at, options, plan)


@raw_app.command("quarantined")
@spread
def quarantined_command(
    *,
    at: LayoutOptions,
    json: JsonOption = False,
) -> None:
    """Print what was set aside: the key, when, how many bytes, why."""
    with store_of_option(at.store, at.config, readonly=True, keyspace=at.keyspace) as store:
        found = list_quarantined(store.engine)
    for kept in found:
        if json:
            facts = {"key": shown_key(kept.raw_key), "hex": kept.raw_key.hex(), "value": kept.value.hex()}
            print_json({**facts, "set_aside_at": kept.set_aside_at, "reason": kept.reason})
        else:
            line = f"{shown_key(kept.raw_key)}  {kept.set_aside_at}  {len(kept.value)} bytes  {kept.reason}"
            print_text(printable(line.rstrip()))


@raw_app.command("release")
@spread
def release_command(
    key: KeyArgument,
    *,
    at: LayoutOptions,
    options: WriteOptions,
    is_hex: HexOption = False,
) -> None:
    """Put an entry back that was set aside, where nothing stands by now; on no lease."""
    raw_key = raw_key_of_option(key, is_hex=is_hex)

    def plan(engine: Engine, bound: BoundLayout | None) -> RawChange:
        kept = next((kept for kept in list_quarantined(engine) if kept.raw_key == raw_key), None)
        if kept is None:
            raise NotFoundError(raw_key=raw_key.hex(), problem="nothing of this key is set aside")
        return plan_release(engine, kept, layout=bound, past_fence=options.past_fence)

    _change(at, options, plan)


# ---- pieces ----------------------------------------------------------------------------------------------------------------


def layout_where_named(at: LayoutOptions) -> BoundLayout | None:
    """Return the layout that the options or the settings name; None where they name none."""
    if not is_layout_named(at.layout, at.config):
        return None
    kind = layout_of_option(at.layout, at.config)
    return kind.bound(**root_parameters(kind, at.parameter, at.config))


def _bytes_of(value: str) -> bytes:
    return sys.stdin.buffer.read() if value == "-" else value.encode()


def _change(at: LayoutOptions, options: WriteOptions, plan: Callable[[Engine, BoundLayout | None], RawChange]) -> None:
    bound = layout_where_named(at)
    with store_of_option(at.store, at.config, readonly=options.dry_run, keyspace=at.keyspace) as store:
        change = plan(store.engine, bound)
        print_change(store, change, bound, json=options.json)
        if options.dry_run or not agreed("Do this?", is_agreed=options.yes):
            return
        revision = carry_out_change(store.engine, change)
    if options.json:
        print_json({"revision": revision})
    else:
        print_text(f"revision {revision}")


def print_change(_store: Store, change: RawChange, bound: BoundLayout | None, *, json: bool) -> None:
    """Print what would be done: what stands there, what belongs to it, the commit."""
    layouts = () if bound is None else (bound,)
    lines = Explanation(change.commit, layouts).lines()
    before = None if change.before is None else len(change.before.value)
    if json:
        print_json({"key": shown_key(change.raw_key), "bytes_before": before, "notes": change.notes, "commit": lines})
        return
    if bound is not None:
        print_text(printable(str(bound.meaning(change.raw_key))))
    print_text("\n".join(map(printable, lines)))
    for note in change.notes:
        print_hint(note)


def agreed(question: str, *, is_agreed: bool) -> bool:
    """Ask, unless that was answered by --yes. Raises InvalidInputError where there is no terminal."""
    if is_agreed:
        return True
    if not sys.stdin.isatty():
        raise InvalidInputError(source="--yes", problem="not a terminal: pass --yes, or --dry-run")
    if typer.confirm(question, err=True):
        return True
    print_hint("nothing was written")
    return False


# ---- extract -------------------------------------------------------------------------------------------------------------


def extract_command(
    file: FileArgument,
    *,
    at: LayoutOptions,
    options: WriteOptions,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="This raw key alone; \\xNN for other bytes.")
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", metavar="PREFIX", help="The keys that begin so.")] = "",
    table: Annotated[
        str | None, typer.Option("--table", metavar="TABLE", help="The records of this table of the layout.")
    ] = None,
    into_store: Annotated[
        bool, typer.Option("--into-store", help="Write what was found into the store, record by record.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="With --into-store: also over what is there.")] = False,
) -> None:
    """Take one record, a table or the keys below a prefix out of a backup, and print them; with --into-store put them back.

    The whole file is verified first. Each record is written with its index entries in one guarded commit.
    """
    bound = layout_where_named(at)
    if table is not None:
        if bound is None:
            raise InvalidInputError(source="--table", problem="name the layout that has the table: --layout")
        bound.table(table)
    selection = Selection(
        None if key is None else raw_key_of_option(key, source="--key"),
        raw_key_of_option(prefix, source="--prefix"),
        bound,
        table,
    )
    found = extract(file, selection, keyspace=at.keyspace)
    if not found:
        raise NotFoundError(source=str(file), problem="the backup holds no such key")
    if into_store:
        _put_back(at, options, bound, found, is_overwriting=overwrite)
        return
    for raw_key, value in found:
        if options.json:
            print_json({"key": shown_key(raw_key), "hex": raw_key.hex(), "value": value.hex()})
        else:
            print_text(
                printable(f"{shown_key(raw_key)}  {len(value)} bytes  {value.decode(errors='backslashreplace')}")
            )


def _put_back(
    at: LayoutOptions,
    options: WriteOptions,
    bound: BoundLayout | None,
    found: list[tuple[bytes, bytes]],
    *,
    is_overwriting: bool,
) -> None:
    """Show every change, ask once, and make them one by one, each planned anew from what stands there then."""
    with store_of_option(at.store, at.config, readonly=options.dry_run, keyspace=at.keyspace) as store:

        def planned(raw_key: bytes, value: bytes) -> RawChange:
            return plan_put(
                store.engine,
                raw_key,
                value,
                layout=bound,
                only_absent=not is_overwriting,
                past_fence=options.past_fence,
            )

        # Why without those that are there: what was stopped in the middle is finished by the same command.
        missing = [pair for pair in found if is_overwriting or store.engine.value(pair[0]) != pair[1]]
        for raw_key, value in missing:
            print_change(store, planned(raw_key, value), bound, json=options.json)
        if options.dry_run or not agreed(f"Write {len(missing)} entries?", is_agreed=options.yes):
            return
        for raw_key, value in missing:
            carry_out_change(store.engine, planned(raw_key, value))
    if options.json:
        print_json({"written": len(missing), "there_already": len(found) - len(missing)})
    else:
        print_text(f"{len(missing)} entries written, {len(found) - len(missing)} were there already")
