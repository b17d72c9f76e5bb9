"""The commands about keys as they stand in the store: `keyplan explain|dump`."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TextIO

import typer

from keyplan.cli.failures import print_hint
from keyplan.cli.options import (
    ConfigOption,
    JsonOption,
    KeySpaceOption,
    LayoutOption,
    ParameterOption,
    StoreOption,
    file_or_output,
    installed_layouts,
    is_layout_named,
    is_store_named,
    layout_of_option,
    raw_key_of_option,
    root_parameters,
    store_of_option,
)
from keyplan.cli.output import ends_with_reader, json_line, print_json, print_text, printable, with_progress
from keyplan.engine import ALL_KEYS, Engine, Entry, KeyRange, PrefixedEngine
from keyplan.errors import InvalidInputError, InvalidKeyError, KeyplanError
from keyplan.files import new_file
from keyplan.layout import (
    BoundLayout,
    Kind,
    Meaning,
    line_of_value,
    plain_field,
    plain_value,
    readings_of,
    shown_key,
    text_of_value,
)
from keyplan.maintenance import KeyExplanation, explain_key

__all__ = ["dump_command", "explain_command", "stored_facts"]

# ---- explain -------------------------------------------------------------------------------------------------------------


REGISTRY_HEADER: Final = b"\x00kp\x00header"
"""The first key of a registry of key spaces, as keyplan.keyspace has it; here so that a store without one costs one read."""


def explain_command(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="A raw key: text, with \\xNN for other bytes.", show_default=False)
    ],
    *,
    store: StoreOption = None,
    layout: LayoutOption = None,
    parameter: ParameterOption = None,
    keyspace: KeySpaceOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
    is_hex: Annotated[bool, typer.Option("--hex", help="KEY is in hexadecimal digits.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Do not look into the store.")] = False,
) -> None:
    """Explain a raw key: its template and fields; and, from the store, its record and the index entries that belong to it.

    Without a layout all installed ones are tried: each that knows the key is printed, else the nearest. Without a store nothing
    is looked up. With --json one object; without a layout, an array of them.
    """
    raw_key = raw_key_of_option(key, is_hex=is_hex)
    one = None
    if is_layout_named(layout, config):
        kind = layout_of_option(layout, config)
        one = kind.bound(**root_parameters(kind, parameter, config))
    elif parameter:
        raise InvalidInputError(source="--parameter", problem="name the layout whose parameter this is: --layout")
    is_looked_up = not offline and is_store_named(store, config)
    with _state(store, config, keyspace, is_looked_up=is_looked_up) as engine:
        place = _place(one, raw_key, engine, is_within=keyspace is not None)
        found = [_facts(bound, meaning, place) for bound, meaning in place.meanings]
    if json:
        print_json(found[0] if one is not None else found)
        return
    for (_, meaning), facts in zip(place.meanings, found, strict=True):
        head = str(meaning) if one is not None else f"{meaning.layout}: {meaning}"
        print_text("\n".join(map(printable, [head, *_lines(facts)])))
    if not offline and not is_looked_up:
        print_hint("no store is named, and none was read: pass --store URL to see the record")


class _Place(NamedTuple):
    """Where a key was found to lie: what it means there, and, where there is a registry, whose it is: kind and key space."""

    meanings: list[tuple[BoundLayout, Meaning]]
    engine: Engine | None
    owner: tuple[str, str | None] | None = None


def _place(one: BoundLayout | None, raw_key: bytes, engine: Engine | None, *, is_within: bool) -> _Place:
    """Return what the key means: as it stands, or, when no layout knows it so, within the key space whose key it is."""

    def meanings_of(key: bytes) -> list[tuple[BoundLayout, Meaning]]:
        return _best(key) if one is None else [(one, one.meaning(key))]

    meanings = meanings_of(raw_key)
    if engine is None or is_within or not _has_registry(engine):
        return _Place(meanings, engine)
    # Why: most stores have no key spaces, and need not wait for what those need.
    from keyplan.keyspace import KeySpaceRegistry, KeySpaces, OwnerKind  # noqa: PLC0415

    owner = KeySpaces(engine).owner_of(raw_key)
    if owner.kind is OwnerKind.SYSTEM:
        registry = KeySpaceRegistry.bound()
        return _Place([(registry, registry.meaning(raw_key))], engine, (str(owner.kind), None))
    if owner.keyspace is None:
        return _Place(meanings, engine, (str(owner.kind), None))
    whose = (str(owner.kind), owner.keyspace.name)
    if any(meaning.is_known for _, meaning in meanings) and one is not None:
        return _Place(meanings, engine, whose)
    prefix = owner.keyspace.raw_prefix
    inner = meanings_of(raw_key[len(prefix) :])
    if one is None and not any(meaning.is_known for _, meaning in inner):
        return _Place(meanings, engine, whose)
    return _Place(inner, PrefixedEngine(engine, prefix, closes_inner=False), whose)


def _has_registry(engine: Engine) -> bool:
    return engine.value(REGISTRY_HEADER) is not None


@contextmanager
def _state(
    store: str | None, config: Path | None, keyspace: str | None, *, is_looked_up: bool
) -> Iterator[Engine | None]:
    if not is_looked_up:
        yield None
        return
    with store_of_option(store, config, readonly=True, keyspace=keyspace) as opened:
        yield opened.engine


def _best(raw_key: bytes) -> list[tuple[BoundLayout, Meaning]]:
    """What the installed layouts make of a key."""
    bounds = []
    for name in installed_layouts():
        try:
            bounds.append(layout_of_option(name).bound())
        except InvalidKeyError:
            continue  # Why: its root has a parameter without a default; nobody knows where it lies.
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
    """Return what is stored at the key, as JSON values; None when nothing is. Damage is a fact, not an error."""
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
    # Why: what is wrong with a record's entries is said at each of them.
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
    store: StoreOption = None,
    layout: LayoutOption = None,
    parameter: ParameterOption = None,
    keyspace: KeySpaceOption = None,
    config: ConfigOption = None,
    raw: Annotated[bool, typer.Option("--raw", help="Keys and values in hexadecimal, without a layout.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A new file to write instead of standard output.",
            callback=file_or_output,
        ),
    ] = None,
) -> None:
    """Print every key and value, from one snapshot, as JSON lines with revisions, version and lease.

    With a layout each line says what its key means; keys that the layout does not know are dumped too, and values that do not
    decode are dumped in hexadecimal.
    """
    ends_with_reader()
    bound = None
    if not raw:
        kind = layout_of_option(layout, config)
        bound = kind.bound(**root_parameters(kind, parameter, config))
    key_range = KeyRange.of_prefix(raw_key_of_option(prefix, source="PREFIX")) if prefix else ALL_KEYS
    with ExitStack() as stack:
        opened = stack.enter_context(store_of_option(store, config, readonly=True, keyspace=keyspace))
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
    """A new file, which has its name when it is written to its end."""
    with new_file(path) as file:
        text = TextIOWrapper(file, encoding="utf-8")
        try:
            yield text
        finally:
            text.detach()  # Why not closed: the file is brought to disk and named by whom it was opened by.


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
            line |= {"damaged": str(error), "value": entry.value.hex()}
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
