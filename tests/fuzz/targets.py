"""What is fuzzed: functions from bytes to nothing. One that raises anything but a KeyplanError has found a defect.

A target refuses nothing by itself: it gives the bytes to keyplan, takes the errors that are promised, and asserts what else
must hold of an answer. `seeds` are inputs that say something, to be mutated.
"""

import copy
import hashlib
import io
import json
import re
import tempfile
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from keyplan.apps.cloudchamber import CloudChamber, CloudChamberGo, definition_problems, parse_definition
from keyplan.apps.hepnos import HEPnOSDataSets, HEPnOSEvents, HEPnOSProducts, HEPnOSRuns, HEPnOSSubRuns
from keyplan.apps.patroni import Broker
from keyplan.apps.runm import Runm, RunmRegistry
from keyplan.codec import Element, element_of_spec
from keyplan.engine import Commit, EngineUrl, Put, open_engine
from keyplan.errors import CorruptionError, InvalidKeyError, InvalidPageTokenError, KeyplanError
from keyplan.keyspace import KeySpaceRegistry, KeySpaces
from keyplan.layout import (
    BoundIndex,
    BoundLayout,
    BoundTable,
    Kind,
    Layout,
    Literal,
    bind_layout,
    describe,
    layout_of_description,
    raw_key_of,
    read_template,
    shown_key,
    template_of_source,
)
from keyplan.maintenance import (
    BlockKind,
    BlockReader,
    BlockWriter,
    back_up_key_spaces,
    back_up_store,
    restore_key_spaces,
    restore_store,
)
from keyplan.store import open_store
from tests.codec.registry import specs, vectors
from tests.store.layouts import Blade, BladeKey, Events, Rack, Site

__all__ = ["INPUT_BYTES_MAX", "TARGETS", "Target"]

ROOT: Final = Path(__file__).resolve().parents[2]
INPUT_BYTES_MAX: Final = 1 << 13
"""Why: what breaks on 8 KiB breaks on less; the bound of a YAML file and of a key are tested where they are made."""

LAYOUTS: Final[tuple[type[Layout], ...]] = (
    CloudChamber,
    CloudChamberGo,
    Broker,
    Runm,
    RunmRegistry,
    HEPnOSDataSets,
    HEPnOSRuns,
    HEPnOSSubRuns,
    HEPnOSEvents,
    HEPnOSProducts,
    KeySpaceRegistry,
    Site,
    Events,
)


@dataclass(frozen=True)
class Target:
    """A function to be fuzzed, and inputs to begin with."""

    run: Callable[[bytes], None]
    make_seeds: Callable[[], Iterator[bytes]]

    @cached_property
    def seeds(self) -> tuple[bytes, ...]:
        return tuple(self.make_seeds())


@cache
def bound_layouts() -> tuple[BoundLayout, ...]:
    """The shipped layouts under their usual roots, and those of the store's tests."""
    return tuple(kind.bound() for kind in LAYOUTS)


# ---- keys -----------------------------------------------------------------------------------------------------------------


def keys(data: bytes) -> None:
    """The first byte chooses a layout; the rest is a key, below its root when the byte is odd. Each codec is used by some."""
    if not data:
        return
    layout = bound_layouts()[data[0] // 2 % len(LAYOUTS)]
    raw_key = (layout.root if data[0] % 2 else b"") + data[1:]
    meaning = layout.meaning(raw_key)
    assert 0 <= meaning.position <= len(raw_key)
    assert raw_key_of(shown_key(raw_key)) == raw_key
    str(meaning)
    for table in layout.tables.values():
        key = table.keys.decode(raw_key)
        assert key is None or table.keys.encode(key) == raw_key, "two keys for one record"
    for index in layout.indexes.values():
        if index.keys.decode(raw_key) is not None:
            with suppress(CorruptionError):
                index.primary_key(raw_key, data[1:])
    assert meaning.is_known or meaning.key is None
    assert meaning.kind is not Kind.RECORD or layout.table(str(meaning.item)).keys.decode(raw_key) == meaning.key


def key_seeds() -> Iterator[bytes]:
    raw_members = {vector.spec: vector.raw for vector in vectors()}
    for number, layout in enumerate(bound_layouts()):
        items: list[BoundTable | BoundIndex] = [*layout.tables.values(), *layout.indexes.values()]
        yield from (bytes([2 * number]) + counter.raw_key for counter in layout.counters.values())
        for item in items:
            parts = [
                part.raw if isinstance(part, Literal) else raw_members.get(part.element.spec, b"a")
                for part in item.keys.template.parts
            ]
            yield bytes([2 * number]) + b"".join(parts)


@cache
def elements() -> tuple[Element[Any], ...]:
    return tuple(element_of_spec(spec) for spec in specs())


def element_bytes(data: bytes) -> None:
    """The first byte chooses a codec; the rest is what it shall decode. What it accepts has one spelling."""
    if not data:
        return
    element, raw = elements()[data[0] % len(elements())], data[1:]
    is_member = element.language.accepts(raw)
    try:
        value = element.decode(raw)
    except InvalidKeyError:
        assert not is_member, "the language has a member that does not decode"
        return
    assert is_member, "what decodes is not in the language"
    assert element.encode(value) == raw, "two spellings of one value"


def element_seeds() -> Iterator[bytes]:
    order = {spec: number for number, spec in enumerate(specs())}
    return (bytes([order[vector.spec]]) + vector.raw for vector in vectors())


# ---- values ---------------------------------------------------------------------------------------------------------------


@cache
def forms() -> tuple[Any, ...]:
    tables = [table for layout in bound_layouts() for table in layout.tables.values()]
    described = [layout_of_description(describe(kind.spec)) for kind in LAYOUTS]
    return (
        *(table.form for table in tables),
        *(table.form for spec in described for table in spec.tables.values()),
    )


def values(data: bytes) -> None:
    """Two bytes choose a value form; the rest is a stored value. What was read can be written and read again."""
    if len(data) < 2:
        return
    form = forms()[int.from_bytes(data[:2], "big") % len(forms())]
    try:
        value = form.decode(data[2:])
    except CorruptionError as error:
        str(error)
        return
    with suppress(KeyplanError):
        form.decode(form.encode(value))
    for layout in bound_layouts():
        for counter in layout.counters.values():
            with suppress(CorruptionError):
                assert counter.decode(data[2:]) >= 0


def value_seeds() -> Iterator[bytes]:
    plain = [b"{}", b"[]", b"1", b'"a"', b"\x80", b"\xc0", b"12", b"0" * 32, b"", bytes(8), bytes(16)]
    rack = msgspec.json.encode({"room": "a", "height": 1, "details": {"enabled": True}, "ports": {"0": {"wired": 1}}})
    for number in range(len(forms())):
        yield from (number.to_bytes(2, "big") + raw for raw in (*plain, rack))


# ---- layouts --------------------------------------------------------------------------------------------------------------


def layout_json(data: bytes) -> None:
    """A layout's description, perhaps wrong in some place: it is refused, or is a layout that can be used and described."""
    try:
        described = json.loads(data)
    except (ValueError, RecursionError):
        return
    _judge_description(described)


def _judge_description(described: Any) -> None:
    try:
        spec = layout_of_description(described)
        again = describe(spec)
        layout = bind_layout(spec, dict.fromkeys(spec.root.field_names, "p"))
    except KeyplanError as error:
        str(error)
        return
    # Why: compared as text, in which even what is not a number equals itself.
    assert json.dumps(describe(layout_of_description(json.loads(json.dumps(again))))) == json.dumps(again)
    for raw_key in (b"", layout.root, layout.root + b"racks/r1", bytes(range(256))):
        str(layout.meaning(raw_key))
    assert len(layout.fingerprint) == 12


@cache
def descriptions() -> tuple[str, ...]:
    """The descriptions of the shipped layouts as JSON, without what nobody reads."""
    return tuple(json.dumps(_without_notes(describe(kind.spec)), separators=(",", ":")) for kind in LAYOUTS)


def _without_notes(described: dict[str, Any]) -> dict[str, Any]:
    described["note"], described["waivers"] = "", described["waivers"][:1]
    for item in described["items"]:
        item["note"] = ""
        if "schema" in item.get("value", {}):
            item["value"]["schema"] = {}
    return described


def layout_seeds() -> Iterator[bytes]:
    for text in descriptions():
        yield text.encode()
        described = json.loads(text)
        for item in described["items"]:
            if item["kind"] in ("table", "counter"):
                yield json.dumps({**described, "items": [item]}, separators=(",", ":")).encode()


def layout_edits(data: bytes) -> None:
    """As `layout_json`, but the bytes say what to change in a description: a layout, then for each edit a place and a value."""
    if not data:
        return
    described = json.loads(descriptions()[data[0] % len(descriptions())])
    edits = data[1:]
    while len(edits) >= 3:
        place, what, edits = int.from_bytes(edits[:2], "big"), edits[2], edits[3:]
        holders = list(_holders(described))
        holder, name = holders[place % len(holders)]
        if what % 16 == 0:
            del holder[name]
        elif what % 16 == 1:
            other, its_name = holders[(place // len(holders) + what) % len(holders)]
            holder[name] = json.loads(json.dumps(other.get(its_name) if isinstance(other, dict) else other[its_name]))
        elif what % 16 == 2:
            holder[name], edits = edits[1 : 1 + edits[0]].decode("utf-8", "replace") if edits else "", edits[17:]
        elif what % 16 == 3 and isinstance(holder[name], str):
            at = what % (len(holder[name]) + 1)
            holder[name], edits = holder[name][:at] + edits[:4].decode("latin-1") + holder[name][at:], edits[4:]
        else:
            holder[name] = copy.deepcopy(_ODD_VALUES[what % len(_ODD_VALUES)])
    _judge_description(described)


_ODD_VALUES: Final[tuple[Any, ...]] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        10**30,
        1.5,
        float("nan"),
        "",
        "x",
        "table",
        "index",
        "unique",
        "counter",
        "each",
        "function",
    ),
    *(
        [],
        {},
        [[]],
        [1],
        ["x"],
        {"x": 1},
        "class",
        "a.b.",
        "{a:u64}",
        "{class:text}",
        "{a:text}{b:text}",
        "lit",
        "\\",
        "\ud800",
    ),
    *({"form": "json"}, {"form": "element", "element": "u64"}, {"form": 1}, {"type": "x", "scalar": False}),
)


def _holders(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a description that holds something: a mapping and a key, or a list and a position."""
    for name, value in list(node.items()) if isinstance(node, dict) else list(enumerate(node)):
        yield node, name
        if isinstance(value, dict | list):
            yield from _holders(value)


def edit_seeds() -> Iterator[bytes]:
    yield from (bytes([number, 0, 4 * number, 4 + number, 0, number, number]) for number in range(len(LAYOUTS)))


def templates(data: bytes) -> None:
    """A template as text and as bytes, as people write it and as a description spells it; and as a codec's spec."""
    text = data.decode("utf-8", "surrogateescape" if data[:1] == b"!" else "replace")
    with suppress(KeyplanError):
        read_template(data)
    with suppress(KeyplanError):
        read_template(text)
    for is_text in (True, False):
        with suppress(KeyplanError):
            template = template_of_source(text, is_text=is_text)
            assert template_of_source(template.source, is_text=is_text) == template
            template.language.bytes_min  # noqa: B018  # Why: whatever was read can be asked.
    with suppress(KeyplanError):
        element = element_of_spec(text)
        assert element_of_spec(element.spec) == element
        with suppress(InvalidKeyError):
            element.decode(b"a/b")


def template_seeds() -> Iterator[bytes]:
    for kind in LAYOUTS:
        yield from (item.template.source.encode() for item in kind.spec.items)
    for spec in specs():
        yield spec.encode()
        yield f"a/{{name:{spec}}}".encode()


# ---- what comes from outside: tokens, URLs, files -------------------------------------------------------------------------


@cache
def furnished_site() -> Site:
    site = Site(open_store("memory:"))
    for number in range(9):
        site.racks.insert(f"r{number}", Rack("a"))
        site.blades.insert(BladeKey("r1", str(number)), Blade(f"s{number}"))
    return site


def page_tokens(data: bytes) -> None:
    """A token: as it is; and with the right check sum put before it, so that what is behind the check sum is reached."""
    signed = hashlib.blake2s(data, digest_size=4).digest() + data
    for token in (data.decode("utf-8", "replace"), urlsafe_b64encode(signed).rstrip(b"=").decode()):
        if not token:
            continue
        for prefix in ((), ("r1",)):
            with suppress(InvalidPageTokenError):
                page = furnished_site().blades.page(*prefix, limit=3, token=token)
                assert all(key.rack == "r1" for key, _ in page.records)


def token_seeds() -> Iterator[bytes]:
    for prefix in ((), ("r1",)):
        token = furnished_site().blades.page(*prefix, limit=3).next_token
        yield token.encode()
        yield urlsafe_b64decode(token + "=" * (-len(token) % 4))[4:]


def engine_urls(data: bytes) -> None:
    """A store's URL. Paths are laid below a folder of the test; those that could leave it are not opened."""
    text = data.decode("utf-8", "surrogateescape" if data[:1] == b"!" else "replace")
    try:
        url = EngineUrl.parse(text)
    except KeyplanError as error:
        str(error)
        return
    if url.scheme == "lmdb":
        with tempfile.TemporaryDirectory(prefix="keyplan-fuzz-") as folder, suppress(KeyplanError):
            below = re.sub(r"(?i)\.|%2e", "_", text[len("lmdb:") :])
            open_engine(f"lmdb:{folder}/{below}", create=bool(data[-1] % 2)).close()
    else:
        with suppress(KeyplanError):
            open_engine(text).close()


def url_seeds() -> Iterator[bytes]:
    yield from (
        b"memory:",
        b"memory:name",
        b"lmdb:store?history=off&durability=none",
        b"lmdb:a/b%2Fc?readonly=true&create=no",
        b"lmdb:x?history=12",
        b"etcd://user:password@host:2379/path?token=abc",
        b"lmdb:%00",
    )


def definitions(data: bytes) -> None:
    """An inventory definition file: it is refused with its place, or judged."""
    try:
        definition = parse_definition(data, source="fuzz")
    except KeyplanError as error:
        str(error)
        return
    list(definition_problems(definition))


def definition_seeds() -> Iterator[bytes]:
    whole = (ROOT / "examples/inventory.yaml").read_bytes()
    yield whole[:INPUT_BYTES_MAX]
    yield b"\n".join(line.split(b" #")[0] for line in whole.splitlines() if not line.strip().startswith(b"#"))
    yield b"Racks:\n- Name: r1\n  Blades:\n  - {Index: 1, Arch: x, Cores: 2}\n  Tor: {}\n"
    yield b"a: &a {b: 1}\nRegions: [*a, {<<: [*a, *a]}]\n"


def backups(data: bytes) -> None:
    """A backup file: as it is; and as blocks whose checksums are right, so that what is behind them is reached."""
    for raw in (data, _framed(data)):
        with tempfile.TemporaryDirectory(prefix="keyplan-fuzz-") as folder, open_engine("memory:") as engine:
            path = Path(folder) / "fuzz.kpb"
            path.write_bytes(raw)
            for restore in (restore_store, restore_key_spaces):
                with engine.snapshot() as before:
                    try:
                        restore(engine, path)
                    except KeyplanError as error:
                        str(error)
                        with engine.snapshot() as after:
                            assert after.revision == before.revision, "a backup was refused after something was written"


def _framed(data: bytes) -> bytes:
    """The bytes as blocks: of each its kind, its size in two bytes, its content."""
    file = io.BytesIO()
    writer = BlockWriter(file, is_compressed=bool(data[:1] > b"\x80"))
    position = 0
    while position + 3 <= len(data):
        kind = list(BlockKind)[data[position] % len(BlockKind)]
        size = int.from_bytes(data[position + 1 : position + 3], "big")
        writer.write(kind, data[position + 3 : position + 3 + size])
        position += 3 + size
    return file.getvalue()


def backup_seeds() -> Iterator[bytes]:
    with open_engine("memory:") as engine:
        KeySpaces(engine).create("orders", "shop")
        engine.commit(Commit((), (Put(b"\x01a", b"1"), Put(b"\x01b", bytes(99)))))
        for back_up in (back_up_store, back_up_key_spaces):
            file = io.BytesIO()
            back_up(engine, file, is_compressed=False)
            yield file.getvalue()
            blocks = BlockReader(io.BytesIO(file.getvalue()), source="seed").blocks()
            kinds = list(BlockKind)
            yield b"".join(
                bytes([kinds.index(block.kind)]) + len(block.content).to_bytes(2, "big") + block.content
                for block in blocks
            )


TARGETS: Final[dict[str, Target]] = {
    "backups": Target(backups, backup_seeds),
    "definitions": Target(definitions, definition_seeds),
    "elements": Target(element_bytes, element_seeds),
    "engine-urls": Target(engine_urls, url_seeds),
    "keys": Target(keys, key_seeds),
    "layout-edits": Target(layout_edits, edit_seeds),
    "layouts": Target(layout_json, layout_seeds),
    "page-tokens": Target(page_tokens, token_seeds),
    "templates": Target(templates, template_seeds),
    "values": Target(values, value_seeds),
}
