"""The command `keyplan explain`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from keyplan.cli.failures import print_hint
from keyplan.cli.options import (
    ConfigOption,
    JsonOption,
    LayoutOption,
    ParameterOption,
    StoreOption,
    installed_layouts,
    is_layout_named,
    is_store_named,
    layout_of_option,
    root_parameters,
    store_of_option,
)
from keyplan.cli.output import print_json, print_text, printable
from keyplan.cli.plain import line_of_value, text_of_value
from keyplan.cli.stored import stored_facts
from keyplan.engine import Engine
from keyplan.errors import InvalidInputError, InvalidKeyError
from keyplan.layout import BoundLayout, Kind, Meaning, raw_key_of, shown_key

__all__ = ["run"]


def run(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="A raw key: text, with \\xNN for other bytes.", show_default=False)
    ],
    *,
    store: StoreOption = None,
    layout: LayoutOption = None,
    parameter: ParameterOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
    is_hex: Annotated[bool, typer.Option("--hex", help="KEY is in hexadecimal digits.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Do not look into the store.")] = False,
) -> None:
    """Say what a raw key is: its template and fields; and, from the store, its record and the index entries that belong to it.

    Without a layout all installed ones are tried: each that knows the key is printed, else the nearest. Without a store nothing
    is looked up. With --json one object; without a layout, an array of them.
    """
    raw_key = _raw_key(key, is_hex=is_hex)
    is_one = is_layout_named(layout, config)
    if is_one:
        kind = layout_of_option(layout, config)
        bound = kind.bound(**root_parameters(kind, parameter, config))
        meanings = [(bound, bound.meaning(raw_key))]
    else:
        if parameter:
            raise InvalidInputError(source="--parameter", problem="name the layout whose parameter this is: --layout")
        meanings = _best(raw_key)
    is_looked_up = not offline and is_store_named(store, config)
    with _state(store, config, is_looked_up=is_looked_up) as engine:
        found = [_facts(bound, meaning, engine) for bound, meaning in meanings]
    if json:
        print_json(found[0] if is_one else found)
        return
    for (_, meaning), facts in zip(meanings, found, strict=True):
        head = str(meaning) if is_one else f"{meaning.layout}: {meaning}"
        print_text("\n".join(map(printable, [head, *_lines(facts)])))
    if not offline and not is_looked_up:
        print_hint("no store was looked at: none is named")


def _raw_key(key: str, *, is_hex: bool) -> bytes:
    try:
        return bytes.fromhex(key) if is_hex else raw_key_of(key)
    except ValueError as error:
        raise InvalidInputError(source="KEY", problem=str(error)) from error


@contextmanager
def _state(store: str | None, config: Path | None, *, is_looked_up: bool) -> Iterator[Engine | None]:
    if not is_looked_up:
        yield None
        return
    with store_of_option(store, config, readonly=True) as opened:
        yield opened.engine


def _best(raw_key: bytes) -> list[tuple[BoundLayout, Meaning]]:
    """What the installed layouts make of a key: every record, index entry and counter, the longest root first.

    When only layouts without a root know it, to which all bytes of the right length are keys, or none does: the nearest too.
    """
    found = []
    for name in installed_layouts():
        try:
            bound = layout_of_option(name).bound()
        except InvalidKeyError:
            continue  # Why: its root has a parameter without a default; nobody knows where it lies.
        found.append((bound, bound.meaning(raw_key)))
    known = [pair for pair in found if pair[1].kind not in (Kind.UNKNOWN, Kind.NAMESPACE)]
    known.sort(key=lambda pair: -len(pair[0].root))
    if known and known[0][0].root:
        return known
    others = [pair for pair in found if pair not in known and (not known or pair[1].item is not None)]
    nearest = max(others, key=_nearness, default=None)
    return known if nearest is None else [nearest, *known]


def _nearness(pair: tuple[BoundLayout, Meaning]) -> tuple[bool, bool, int]:
    bound, meaning = pair
    is_below_root = bool(bound.root) and meaning.item is not None
    return meaning.kind is Kind.NAMESPACE, is_below_root, meaning.position


def _facts(bound: BoundLayout, meaning: Meaning, engine: Engine | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "layout": meaning.layout,
        "key": shown_key(meaning.raw_key),
        "hex": meaning.raw_key.hex(),
        "kind": meaning.kind.value,
        "item": meaning.item,
        "template": meaning.template,
        "fields": {name: text_of_value(value) for name, value in meaning.fields.items()},
    }
    if not meaning.is_known:
        facts["departs_at_byte"] = meaning.position
    if engine is not None:
        facts["stored"] = stored_facts(bound, meaning.raw_key, engine)
    return facts


def _lines(facts: dict[str, Any]) -> list[str]:
    lines = [_line("template", facts["template"])] if facts["template"] else []
    lines += [_line(name, value) for name, value in facts["fields"].items()]
    if "stored" not in facts:
        return lines
    stored = facts["stored"]
    if stored is None:
        return [*lines, _line("stored", "nothing")]
    lease = f", lease {stored['lease']}" if stored["lease"] else ""
    lease += f" of {stored['lease_ttl_seconds']:g} s" if "lease_ttl_seconds" in stored else ""
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
