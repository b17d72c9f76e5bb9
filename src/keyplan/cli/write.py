"""The commands that write: `keyplan put|delete` by a layout, `keyplan raw ...` key by key."""

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from uuid import UUID

import msgspec
import typer

from keyplan.cli.failures import agreed, print_hint
from keyplan.cli.items import FieldsArgument, ItemArgument, LayoutOptions, table_named
from keyplan.cli.options import (
    DryRunOption,
    HexOption,
    JsonOption,
    KeyArgument,
    Unfinished,
    WriteUnfinishedOption,
    YesOption,
    command_group,
    raw_key_of_option,
    read_bytes,
    spread,
    store_of_option,
)
from keyplan.cli.output import print_answer, print_json, print_lines, print_text
from keyplan.codec import MASK, Secret, SecretPath, ValueForm, change_at, pydantic_problem, secret_of_plain, shown_path
from keyplan.engine import Engine
from keyplan.errors import InvalidInputError, NotFoundError
from keyplan.layout import (
    BoundLayout,
    BoundTable,
    Layout,
    key_of_words,
    kind_in_words,
    raw_key_of,
    scalar_of_text,
    shown_key,
)
from keyplan.maintenance import (
    RawChange,
    carry_out_change,
    list_quarantined,
    plan_delete,
    plan_put,
    plan_quarantine,
    plan_release,
)
from keyplan.store import Explanation

__all__ = ["delete_command", "has_value", "put_command", "raw_app", "record_of_json", "record_of_word"]

# ---- put -----------------------------------------------------------------------------------------------------------------


ExplainOption = Annotated[
    bool, typer.Option("--explain", help="Print the commit that this would make, and write nothing.")
]


def put_command(
    item: ItemArgument,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FIELD... VALUE", help="The key's fields, then the record as JSON; - reads it from stdin."
        ),
    ] = None,
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    insert: Annotated[bool, typer.Option("--insert", help="Fail when there is a record already.")] = False,
    expected_revision: Annotated[
        int | None,
        typer.Option("--expected-revision", min=0, help="Fail unless the record is at this revision (0: absent)."),
    ] = None,
    lease: Annotated[int, typer.Option("--lease", metavar="ID", min=0, help="The record's lease.")] = 0,
    unfinished: WriteUnfinishedOption = False,
    explain: ExplainOption = False,
) -> None:
    """Write one record and its index entries, in one commit. A missing store is made.

    A record is JSON with the fields of its class; in a table of texts, truth values, numbers or UUIDs, the bare word. Standard
    input holds JSON for all of them, as `keyplan get` prints it. A value that begins with a minus sign follows --.
    """
    if insert and expected_revision is not None:
        problem = "it means --expected-revision 0: pass one of them"
        raise InvalidInputError(source="--insert", problem=problem)
    # Why before the store is opened: a mistake in the words must not make one.
    key, record = _key_and_record(table_named(at.bound(), item), words or [])
    allowed = Unfinished.TOLD if unfinished else None
    write = _writing(item, key, record, insert=insert, expected_revision=expected_revision, lease=lease)
    with at.opened(create=None if explain else write, readonly=explain, unfinished=allowed) as open_layout:
        if explain:
            open_layout.print_commit(write, json=json)
            return
        revision = write(open_layout.layout)
    print_answer({"revision": revision}, f"revision {revision}", json=json)


def _writing(
    item: str, key: Any, record: Any, *, insert: bool, expected_revision: int | None, lease: int
) -> Callable[[Layout], int]:
    def write(layout: Layout) -> int:
        view = layout.view(item)
        revision: int = (
            view.insert(key, record, lease=lease)
            if insert
            else view.put(key, record, expected_revision=expected_revision, lease=lease)
        )
        return revision

    return write


def _key_and_record(table: BoundTable, words: list[str]) -> tuple[Any, Any]:
    """Read the words. The key first: a wrong number of words is the likelier mistake than a wrong record."""
    if not has_value(table.form):
        return key_of_words(table.keys, words), None
    if len(words) == len(table.keys.template.fields):
        raise InvalidInputError(source="VALUE", problem="the record is missing: pass it after the key, or - for stdin")
    key = key_of_words(table.keys, words[:-1])
    if words[-1] == "-":
        return key, record_of_json(table.form, _standard_input())
    return key, record_of_word(table.form, words[-1])


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(source="standard input", problem="not text in UTF-8") from error


# ---- delete --------------------------------------------------------------------------------------------------------------


def delete_command(
    item: ItemArgument,
    fields: FieldsArgument = None,
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    expected_revision: Annotated[
        int | None, typer.Option("--expected-revision", min=0, help="Fail unless the record is at this revision.")
    ] = None,
    missing_ok: Annotated[bool, typer.Option("--missing-ok", help="An absent record is no error.")] = False,
    unfinished: WriteUnfinishedOption = False,
    explain: ExplainOption = False,
) -> None:
    """Delete one record and its index entries, in one commit. The key must be whole: nothing is deleted by prefix."""
    with at.opened(readonly=explain, unfinished=Unfinished.TOLD if unfinished else None) as open_layout:
        table, view = open_layout.table(item)
        key = key_of_words(table.keys, fields or [])
        if explain:
            open_layout.print_commit(
                lambda layout: layout.view(item).delete(
                    key, expected_revision=expected_revision, missing_ok=missing_ok
                ),
                json=json,
            )
            return
        revision = view.delete(key, expected_revision=expected_revision, missing_ok=missing_ok)
    print_answer({"revision": revision}, f"revision {revision}", json=json)


# ---- a record that a person wrote ----------------------------------------------------------------------------------------


_SOURCE: Final = "VALUE"
_NOT_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")
"""The texts that `keyplan get` prints for numbers that JSON lacks."""


def has_value(form: ValueForm[Any]) -> bool:
    """Return whether records of this form have a value."""
    return form.value_type not in (None, type(None))


def record_of_word(form: ValueForm[Any], word: str) -> Any:
    r"""Read a record off the command line: the bare word for a text, truth value, number or UUID, text with \xNN for bytes.

    Any other record is JSON. Raises InvalidInputError, see `record_of_json`.
    """
    secret, kind = _unwrapped(form.value_type)
    _refuse_mask(word, form.secrets if secret is not None else ())
    try:
        if kind is bytes:
            record: Any = raw_key_of(word)
        elif isinstance(kind, type) and issubclass(kind, str):
            record = kind(word)
        elif isinstance(kind, type) and issubclass(kind, bool | int | float | UUID):
            record = scalar_of_text(kind, word)
        else:
            return record_of_json(form, word)
    except ValueError as error:
        raise InvalidInputError(source=_SOURCE, problem=f"the record must be {kind_in_words(kind)}") from error
    return record if secret is None else secret(record)


def record_of_json(form: ValueForm[Any], text: str) -> Any:
    r"""Read a record as `keyplan get` prints it: JSON of any record; of a record of bytes, a text with \xNN.

    Raises InvalidInputError that names the field, also for a field that the record lacks: its value would be lost.
    """
    secret, kind = _unwrapped(form.value_type)
    name = getattr(kind, "__name__", str(kind))
    try:
        plain = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidInputError(source=_SOURCE, problem=f"not JSON, of which a {name} is made: {error}") from error
    _refuse_mask(plain, form.secrets)
    try:
        record = _record_of_plain(kind, plain)
    except (ValueError, RecursionError) as error:
        # Why not pydantic's own words: they quote what they refuse, which may be a secret.
        words = pydantic_problem(error) if hasattr(error, "errors") else error
        raise InvalidInputError(source=_SOURCE, problem=f"not a {name}: {words}") from error
    for place in _unknown_fields(plain, record, "$"):
        raise InvalidInputError(source=_SOURCE, problem=f"a {name} has no field {place}")
    return record if secret is None else secret(record)


def _unwrapped(kind: Any) -> tuple[Any, Any]:
    """Return the class of a record that is secret as a whole, and the type of what it holds; None and the type of another."""
    is_secret = isinstance(kind, type) and issubclass(kind, Secret)
    return (kind, kind.kind) if is_secret else (None, kind)


def _refuse_mask(plain: Any, paths: Iterable[SecretPath]) -> None:
    """Refuse a record as it was shown, with its secrets masked: the mask would be written over them."""
    for path in paths:

        def refuse_mask(value: Any, path: SecretPath = path) -> Any:
            if value == MASK:
                problem = f"{shown_path(path)} is a mask, not the secret: write the secret itself"
                raise InvalidInputError(source=_SOURCE, problem=problem)
            return value

        change_at(plain, path, refuse_mask)


def _record_of_plain(kind: Any, plain: Any) -> Any:
    if kind is bytes and isinstance(plain, str):
        return raw_key_of(plain)
    if kind is float and plain in _NOT_NUMBERS:
        return float(plain)
    read_json = getattr(kind, "model_validate_json", None)
    if read_json is not None:  # a pydantic model
        return read_json(msgspec.json.encode(plain))
    return msgspec.convert(plain, kind, str_keys=True, dec_hook=secret_of_plain)


def _unknown_fields(plain: Any, record: Any, place: str) -> Iterator[str]:
    """Yield the places in `plain` for which `record`, which was made of it, has no field."""
    if isinstance(plain, dict):
        fields = _fields(record)
        for name, value in plain.items():
            if fields is not None and name not in fields:
                yield f"{place}.{name}"
            elif fields is not None:
                yield from _unknown_fields(value, fields[name], f"{place}.{name}")
    elif isinstance(plain, list) and isinstance(record, list | tuple):
        for number, (value, made) in enumerate(zip(plain, record, strict=False)):
            yield from _unknown_fields(value, made, f"{place}[{number}]")


def _fields(record: Any) -> Mapping[str, Any] | None:
    """Return the values of a record's fields by their names in JSON; None for a value without fields."""
    if isinstance(record, msgspec.Struct):
        tag = record.__struct_config__.tag_field
        named = {field.encode_name: getattr(record, field.name) for field in msgspec.structs.fields(record)}
        return named if tag is None else {tag: record.__struct_config__.tag, **named}
    if dataclasses.is_dataclass(record):
        return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    if isinstance(record, Mapping):
        return {str(name): value for name, value in record.items()}
    if hasattr(record, "model_dump"):
        extra: Mapping[str, Any] | None = getattr(record, "model_extra", None)
        names = type(record).model_fields
        return {(names[name].alias or name): getattr(record, name) for name in names} | dict(extra or {})
    return None


# ---- raw ---------------------------------------------------------------------------------------------------------------


raw_app: Final = command_group("Read, write, delete and set aside single keys, by hand.")


class WriteOptions(NamedTuple):
    """The options of every writing command: a record, for `spread`."""

    yes: YesOption = False
    dry_run: DryRunOption = False
    past_fence: Annotated[
        bool, typer.Option("--past-fence", help="Also a key of a registered key space, or keyplan's own.")
    ] = False
    json: JsonOption = False


INSTEAD: Final = ", or --dry-run"


@raw_app.command("get")
@spread
def raw_get_command(
    key: KeyArgument,
    *,
    at: LayoutOptions,
    is_hex: HexOption = False,
    json: JsonOption = False,
) -> None:
    """Print the bytes at a key. `keyplan explain` prints their meaning."""
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
        Path | None, typer.Option("--file", metavar="FILE", help="The value is the content of this file.")
    ] = None,
    lease: Annotated[
        int | None,
        typer.Option("--lease", metavar="ID", min=0, help="The entry's lease; 0: none.", show_default=False),
    ] = None,
) -> None:
    """Write exactly these bytes at a key; with a layout, a record's index entries too, in one commit."""
    if (value is None) == (file is None):
        raise InvalidInputError(source="VALUE", problem="pass the value, - for standard input, or --file FILE")
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
    """Delete a key; with a layout, the index entries that point at it too, also those of a damaged record."""
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
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason, kept with it.")] = "",
) -> None:
    """Set an entry aside: its key becomes free, and `keyplan raw release` puts it back."""
    raw_key = raw_key_of_option(key, is_hex=is_hex)
    _require_text(reason, "--reason")

    def plan(engine: Engine, bound: BoundLayout | None) -> RawChange:
        return plan_quarantine(engine, raw_key, layout=bound, reason=reason, past_fence=options.past_fence)

    _change(at, options, plan)


@raw_app.command("quarantined")
@spread
def quarantined_command(
    *,
    at: LayoutOptions,
    reveal: Annotated[bool, typer.Option("--reveal", help="With their values, which may hold secrets.")] = False,
    json: JsonOption = False,
) -> None:
    """Print the entries that were set aside: key, time, number of bytes, reason; with --json and --reveal their values, too."""
    with store_of_option(at.store, at.config, readonly=True, keyspace=at.keyspace) as store:
        found = list_quarantined(store.engine)
    for kept in found:
        value = kept.value.reveal()
        facts = {"key": shown_key(kept.raw_key), "hex": kept.raw_key.hex(), "value": value.hex() if reveal else MASK}
        line = f"{shown_key(kept.raw_key)}  {kept.set_aside_at}  {len(value)} bytes  {kept.reason}"
        print_answer(
            {**facts, "bytes": len(value), "set_aside_at": kept.set_aside_at, "reason": kept.reason},
            line.rstrip(),
            json=json,
        )


@raw_app.command("release")
@spread
def release_command(
    key: KeyArgument,
    *,
    at: LayoutOptions,
    options: WriteOptions,
    is_hex: HexOption = False,
) -> None:
    """Put an entry back that was set aside, without a lease. Its key must be free."""
    raw_key = raw_key_of_option(key, is_hex=is_hex)

    def plan(engine: Engine, bound: BoundLayout | None) -> RawChange:
        kept = next((kept for kept in list_quarantined(engine) if kept.raw_key == raw_key), None)
        if kept is None:
            raise NotFoundError(raw_key=raw_key.hex(), problem="no entry of this key was set aside")
        return plan_release(engine, kept, layout=bound, past_fence=options.past_fence)

    _change(at, options, plan)


# ---- pieces ----------------------------------------------------------------------------------------------------------------


def _bytes_of(value: str) -> bytes:
    if value == "-":
        return sys.stdin.buffer.read()
    return _require_text(value, "VALUE", ": pass --file FILE, or - for standard input")


def _require_text(text: str, source: str, remedy: str = "") -> bytes:
    """Return a text in UTF-8. Raises InvalidInputError for bytes of the command line that are none."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(source=source, problem=f"not text in UTF-8{remedy}") from error


def _change(at: LayoutOptions, options: WriteOptions, plan: Callable[[Engine, BoundLayout | None], RawChange]) -> None:
    bound = at.bound_where_named()
    with store_of_option(at.store, at.config, readonly=options.dry_run, keyspace=at.keyspace) as store:
        change = plan(store.engine, bound)
        print_change(change, bound, json=options.json)
        if options.dry_run or not agreed("Do this?", is_agreed=options.yes, instead=INSTEAD):
            return
        revision = carry_out_change(store.engine, change)
    print_answer({"revision": revision}, f"revision {revision}", json=options.json)


def print_change(change: RawChange, bound: BoundLayout | None, *, json: bool) -> None:
    """Print a change before it is made: the key's meaning, the commit, notes."""
    layouts = () if bound is None else (bound,)
    lines = Explanation(change.commit, layouts).lines()
    before = None if change.before is None else len(change.before.value)
    if json:
        print_json({"key": shown_key(change.raw_key), "bytes_before": before, "notes": change.notes, "commit": lines})
        return
    if bound is not None:
        print_lines(str(bound.meaning(change.raw_key)))
    print_lines(*lines)
    for note in change.notes:
        print_hint(note)
