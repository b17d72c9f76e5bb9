"""The commands about keys as they stand in a store or a backup: `keyplan explain|dump|extract`."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TextIO

import typer

from keyplan.cli.failures import agreed, print_hint
from keyplan.cli.items import LayoutOptions
from keyplan.cli.options import (
    HexOption,
    JsonOption,
    KeyArgument,
    PrefixOption,
    file_or_output,
    installed_layouts,
    is_store_named,
    layout_of_option,
    raw_key_of_option,
    store_of_option,
)
from keyplan.cli.output import (
    ends_with_reader,
    json_line,
    print_answer,
    print_json,
    print_lines,
    with_progress,
)
from keyplan.cli.transfer import FileArgument
from keyplan.cli.write import INSTEAD, WriteOptions, print_change
from keyplan.codec import MASK
from keyplan.engine import ALL_KEYS, Engine, Entry, KeyRange
from keyplan.errors import InvalidInputError, InvalidKeyError, KeyplanError, NotFoundError
from keyplan.files import new_file
from keyplan.layout import (
    BoundLayout,
    Kind,
    Meaning,
    holds_secrets,
    line_of_value,
    plain_field,
    plain_value,
    readings_of,
    shown_key,
    text_of_value,
)
from keyplan.maintenance import (
    KeyExplanation,
    RawChange,
    Selection,
    carry_out_change,
    explain_key,
    extract,
    plan_put,
)

__all__ = ["dump_command", "explain_command", "extract_command", "stored_facts"]

# ---- explain -------------------------------------------------------------------------------------------------------------


REGISTRY_HEADER: Final = b"\x00kp\x00header"
"""The first key of a registry of key spaces. Why spelled here: to ask its layout, a command would import keyplan.keyspace, for
a store without a registry too. A test compares the two."""


def explain_command(
    key: KeyArgument,
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    is_hex: HexOption = False,
    offline: Annotated[bool, typer.Option("--offline", help="Do not read the store.")] = False,
) -> None:
    """Explain a raw key: its template and fields; and, from the store, its record and the index entries that belong to it.

    Without a layout all installed ones are tried; those that know the key are printed, else the nearest. Without a store
    nothing is read. --json prints one object; without a layout, an array of them.
    """
    raw_key = raw_key_of_option(key, is_hex=is_hex)
    one = at.bound_where_named()
    if one is None and at.parameter:
        raise InvalidInputError(source="--parameter", problem="a parameter belongs to a layout: pass --layout too")
    is_looked_up = not offline and is_store_named(at.store, at.config)
    with _state(at, is_looked_up=is_looked_up) as engine:
        place = _place(one, raw_key, engine, is_within=at.keyspace is not None)
        found = [_facts(bound, meaning, place) for bound, meaning in place.meanings]
    if json:
        print_json(found[0] if one is not None else found)
        return
    for (_, meaning), facts in zip(place.meanings, found, strict=True):
        head = str(meaning) if one is not None else f"{meaning.layout}: {meaning}"
        print_lines(head, *_lines(facts))
    if not offline and not is_looked_up:
        print_hint("no store was read: pass --store URL to see the record")


class _Place(NamedTuple):
    """The place of a key: its meanings there; and, where there is a registry, its owner: kind and key space."""

    meanings: list[tuple[BoundLayout, Meaning]]
    engine: Engine | None
    owner: tuple[str, str | None] | None = None


def _place(one: BoundLayout | None, raw_key: bytes, engine: Engine | None, *, is_within: bool) -> _Place:
    """Return the meaning of the key as it stands; or, where no layout knows it so, within the key space that owns it."""

    def meanings_of(key: bytes) -> list[tuple[BoundLayout, Meaning]]:
        return _best(key) if one is None else [(one, one.meaning(key))]

    meanings = meanings_of(raw_key)
    if engine is None or is_within or not _has_registry(engine):
        return _Place(meanings, engine)
    # Why here: most stores have no key spaces, and are explained sooner without these modules.
    from keyplan.keyspace import KeySpaceRegistry, KeySpaces, OwnerKind, share_for_care  # noqa: PLC0415

    owner = KeySpaces(engine).owner_of(raw_key)
    if owner.kind is OwnerKind.SYSTEM:
        registry = KeySpaceRegistry.bound()
        return _Place([(registry, registry.meaning(raw_key))], engine, (str(owner.kind), None))
    if owner.keyspace is None:
        return _Place(meanings, engine, (str(owner.kind), None))
    whose = (str(owner.kind), owner.keyspace.name)
    if any(meaning.is_known for _, meaning in meanings) and one is not None:
        return _Place(meanings, engine, whose)
    inner = meanings_of(raw_key[len(owner.keyspace.raw_prefix) :])
    if one is None and not any(meaning.is_known for _, meaning in inner):
        return _Place(meanings, engine, whose)
    return _Place(inner, share_for_care(engine, owner.keyspace, closes_engine=False), whose)


def _has_registry(engine: Engine) -> bool:
    return engine.value(REGISTRY_HEADER) is not None


@contextmanager
def _state(at: LayoutOptions, *, is_looked_up: bool) -> Iterator[Engine | None]:
    if not is_looked_up:
        yield None
        return
    with store_of_option(at.store, at.config, readonly=True, keyspace=at.keyspace) as opened:
        yield opened.engine


def _best(raw_key: bytes) -> list[tuple[BoundLayout, Meaning]]:
    """Return the meanings of a key by the installed layouts."""
    bounds = []
    for name in installed_layouts():
        try:
            bounds.append(layout_of_option(name).bound())
        except InvalidKeyError:
            continue  # Why: its root has a parameter without a default, so its place is unknown.
    return readings_of(bounds, raw_key)


def _facts(bound: BoundLayout, meaning: Meaning, place: _Place) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "layout": meaning.layout,
        "key": shown_key(meaning.raw_key),
        "hex": meaning.raw_key.hex(),
        "kind": meaning.kind.value,
        "item": meaning.item,
        "template": meaning.template,
        "fields": {name: plain_field(value) for name, value in meaning.fields.items()},
    }
    if not meaning.is_known:
        facts["departs_at_byte"] = meaning.position
    if place.owner is not None:
        facts["owner"], facts["keyspace"] = place.owner
    if place.engine is not None:
        facts["stored"] = stored_facts(bound, meaning.raw_key, place.engine)
    return facts


def _lines(facts: dict[str, Any]) -> list[str]:
    lines = [_line("template", facts["template"])] if facts["template"] else []
    lines += [_line(name, text_of_value(value)) for name, value in facts["fields"].items()]
    lines += [_line("key space", facts["keyspace"] or f"none: {facts['owner']}")] if "owner" in facts else []
    if "stored" not in facts:
        return lines
    stored = facts["stored"]
    if stored is None:
        return [*lines, _line("stored", "nothing")]
    lease = f", lease {stored['lease']}" if stored["lease"] else ""
    if "lease_ttl_seconds" in stored:
        lease += f" of {stored['lease_ttl_seconds']:g} s, {stored['lease_seconds_left']:.0f} left"
    lines.append(
        _line("stored", f"{stored['bytes']} bytes, revision {stored['revision']}, version {stored['version']}{lease}")
    )
    if "record" in stored:
        lines.append(_line("record", line_of_value(stored["record"])))
    for pointer in stored.get("index_entries", []):
        lines.append(_line("entry", f"{pointer['key']} ({pointer['index']}): {pointer['state']}"))
    if "points_at" in stored:
        lines.append(_line("points at", f"{stored['points_at']}: {stored['record_state']}"))
    lines += [_line(name, stored[name]) for name in ("next", "damaged") if name in stored]
    return lines + [_line("finding", finding) for finding in stored.get("findings", [])]


def _line(name: str, value: object) -> str:
    return f"  {name:<10} {value}"


def stored_facts(bound: BoundLayout, raw_key: bytes, engine: Engine) -> dict[str, Any] | None:
    """Return the stored facts of a key as JSON values; None where nothing is stored. Damage is a fact, not an error."""
    explanation = explain_key(engine, bound, raw_key)
    entry = explanation.entry
    if entry is None:
        return None
    stored: dict[str, Any] = {
        "revision": entry.mod_revision,
        "create_revision": entry.create_revision,
        "version": entry.version,
        "lease": entry.lease,
        "bytes": len(entry.value),
    }
    if explanation.lease_ttl_seconds is not None:
        stored["lease_ttl_seconds"] = explanation.lease_ttl_seconds
        stored["lease_seconds_left"] = explanation.lease_seconds_left
    return stored | _contents(explanation)


def _contents(explanation: KeyExplanation) -> dict[str, Any]:
    contents: dict[str, Any] = {}
    if explanation.has_record:
        contents["record"] = plain_value(explanation.record)
        contents["index_entries"] = [
            {"index": due.index, "key": shown_key(due.raw_key), "state": due.state.value} for due in explanation.entries
        ]
    if explanation.points_at is not None:
        contents["points_at"] = shown_key(explanation.points_at)
    if explanation.pointed_at is not None:
        contents["record_state"] = explanation.pointed_at.value
    if explanation.next_number is not None:
        contents["next"] = explanation.next_number
    if explanation.problem:
        contents["damaged"] = explanation.problem
    # Why only these: the findings of a record's entries stand beside each entry.
    findings = [finding for finding in explanation.findings if finding.raw_key == explanation.meaning.raw_key]
    if findings:
        contents["findings"] = [str(finding) for finding in findings]
    return contents


# ---- dump ----------------------------------------------------------------------------------------------------------------


def dump_command(
    prefix: Annotated[
        str, typer.Argument(metavar="PREFIX", help="Only keys that begin so; \\xNN for other bytes.")
    ] = "",
    *,
    at: LayoutOptions,
    raw: Annotated[bool, typer.Option("--raw", help="Keys and values in hexadecimal, without a layout.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write a new file instead of standard output.",
            callback=file_or_output,
        ),
    ] = None,
) -> None:
    """Print every key and value, from one snapshot, as JSON lines with revisions, version and lease.

    With a layout, each line has the meaning of its key. Keys that the layout does not know are printed too; values that do not
    decode are printed in hexadecimal.
    """
    ends_with_reader()
    bound = None if raw else at.bound()
    key_range = KeyRange.of_prefix(raw_key_of_option(prefix, source="PREFIX")) if prefix else ALL_KEYS
    with ExitStack() as stack:
        opened = stack.enter_context(store_of_option(at.store, at.config, readonly=True, keyspace=at.keyspace))
        snapshot = stack.enter_context(opened.engine.snapshot())
        target: TextIO = sys.stdout if output is None else stack.enter_context(_created(output))
        entries: Iterator[Entry] = snapshot.scan(key_range)
        if output is not None and sys.stderr.isatty():
            entries = with_progress(entries, total=snapshot.count(key_range), title="dump")
        for entry in entries:
            line = _raw_line(entry) if bound is None else _dump_line(bound, entry)
            target.write(json_line(line, encoding=target.encoding))


@contextmanager
def _created(path: Path) -> Iterator[TextIO]:
    """Yield a new file, which gets its name when it has been written to its end."""
    with new_file(path) as file:
        text = TextIOWrapper(file, encoding="utf-8")
        try:
            yield text
        finally:
            text.detach()  # Why not closed: `new_file` syncs the file and names it.


def _raw_line(entry: Entry) -> dict[str, Any]:
    return {"key": entry.key.hex(), "value": entry.value.hex(), **_history(entry)}


def _dump_line(bound: BoundLayout, entry: Entry) -> dict[str, Any]:
    meaning = bound.meaning(entry.key)
    line: dict[str, Any] = {"key": shown_key(entry.key), "kind": meaning.kind.value, "item": meaning.item}
    if meaning.kind in (Kind.UNKNOWN, Kind.NAMESPACE):
        return line | {"item": None, "value": entry.value.hex(), **_history(entry)}
    line["fields"] = {name: plain_field(value) for name, value in meaning.fields.items()}
    if meaning.kind is Kind.RECORD:
        try:
            line["record"] = plain_value(bound.tables[str(meaning.item)].form.decode(entry.value))
        except KeyplanError as error:
            is_masked = holds_secrets([bound], entry.key)
            line |= {"damaged": str(error), "value": MASK if is_masked else entry.value.hex()}
    elif entry.value:
        line["value"] = text_of_value(entry.value)
    return line | _history(entry)


def _history(entry: Entry) -> dict[str, int]:
    return {
        "create_revision": entry.create_revision,
        "mod_revision": entry.mod_revision,
        "version": entry.version,
        "lease": entry.lease,
    }


# ---- extract -------------------------------------------------------------------------------------------------------------


def extract_command(
    file: FileArgument,
    *,
    at: LayoutOptions,
    options: WriteOptions,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="This raw key alone; \\xNN for other bytes.")
    ] = None,
    prefix: PrefixOption = "",
    table: Annotated[
        str | None, typer.Option("--table", metavar="TABLE", help="The records of this table of the layout.")
    ] = None,
    into_store: Annotated[
        bool, typer.Option("--into-store", help="Write the records found into the store, one by one.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="With --into-store: also replace records that are there.")
    ] = False,
) -> None:
    """Take one record, a table or the keys below a prefix out of a backup, and print them; with --into-store put them back.

    The whole file is verified first. Each record is written with its index entries in one guarded commit.
    """
    bound = at.bound_where_named()
    if table is not None:
        if bound is None:
            raise InvalidInputError(source="--table", problem="a table belongs to a layout: pass --layout too")
        bound.table(table)
    selection = Selection(
        None if key is None else raw_key_of_option(key, source="--key"),
        raw_key_of_option(prefix, source="--prefix"),
        bound,
        table,
    )
    found = extract(file, selection, keyspace=at.keyspace)
    if not found:
        raise NotFoundError(source=str(file), problem="the backup has no such key")
    if into_store:
        _put_back(at, options, bound, found, is_overwriting=overwrite)
        return
    for raw_key, value in found:
        key_text = shown_key(raw_key)
        is_masked = bound is not None and holds_secrets([bound], raw_key)
        shown = MASK if is_masked else value.decode(errors="backslashreplace")
        words = f"{key_text}  {len(value)} bytes  {shown}"
        plain = {"key": key_text, "hex": raw_key.hex(), "value": MASK if is_masked else value.hex()}
        print_answer(plain, words, json=options.json)


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

        # Why without those that are there: the same command finishes a run that was stopped.
        missing = [pair for pair in found if is_overwriting or store.engine.value(pair[0]) != pair[1]]
        for raw_key, value in missing:
            print_change(planned(raw_key, value), bound, json=options.json)
        if options.dry_run or not agreed(f"Write {len(missing)} entries?", is_agreed=options.yes, instead=INSTEAD):
            return
        for raw_key, value in missing:
            carry_out_change(store.engine, planned(raw_key, value))
    kept = len(found) - len(missing)
    words = f"{len(missing)} entries written, {kept} were there already"
    print_answer({"written": len(missing), "there_already": kept}, words, json=options.json)
