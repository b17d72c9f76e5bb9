"""The command `keyplan extract`."""

from typing import Annotated

import typer

from keyplan.cli.backup import FileArgument
from keyplan.cli.items import LayoutOptions
from keyplan.cli.options import store_of_option
from keyplan.cli.output import print_json, print_text, printable
from keyplan.cli.raw import WriteOptions, agreed, key_of_argument, layout_where_named, print_change
from keyplan.errors import InvalidInputError, NotFoundError
from keyplan.layout import BoundLayout, shown_key
from keyplan.maintenance import RawChange, Selection, carry_out_change, extract, plan_put

__all__ = ["run"]


def run(
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
        None if key is None else key_of_argument(key, is_hex=False, source="--key"),
        key_of_argument(prefix, is_hex=False, source="--prefix"),
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
