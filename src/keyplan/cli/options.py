"""The options that commands share (store, layout, file, how to print), and what they name, opened or imported."""

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from enum import Enum, auto
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import quote

import typer

from keyplan.cli.failures import print_hint
from keyplan.engine import Engine, EngineUrl, KeyRange, open_engine
from keyplan.errors import InvalidInputError, SourceUnfinishedError
from keyplan.layout import BoundLayout, Layout, raw_key_of
from keyplan.secret_keys import SECRETS_VARIABLE, KeysOnDemand
from keyplan.settings import DeclaredSetting, Source, declared_settings, of_options, shown_default
from keyplan.store import TRANSFER_AREA, Store, installed_layouts, layout_named, root_values

__all__ = [
    "SETTINGS_FILE",
    "STORE_VARIABLE",
    "BesideOption",
    "ConfigOption",
    "DryRunOption",
    "HexOption",
    "JsonOption",
    "KeyArgument",
    "KeySpaceOption",
    "LayoutOption",
    "LimitOption",
    "OutputOption",
    "ParameterOption",
    "PrefixOption",
    "SecretsOption",
    "Settings",
    "StoreOption",
    "Unfinished",
    "WriteUnfinishedOption",
    "YesOption",
    "absolute_url",
    "bound_of_options",
    "bound_where_named",
    "command_group",
    "count_below",
    "file_or_output",
    "installed_layouts",
    "is_store_named",
    "json_of",
    "layout_of_option",
    "look_for_unfinished",
    "named_file",
    "raw_key_of_option",
    "read_bytes",
    "read_settings",
    "read_text",
    "root_parameters",
    "secrets_of_option",
    "spread",
    "store_of_option",
    "store_url_of_option",
]

# ---- files ---------------------------------------------------------------------------------------------------------------


def file_or_output(path: Path | None) -> Path | None:
    """Return the file of an option for text; None for standard output, which is written `-`."""
    return None if path == Path("-") else path


def named_file(path: Path | None) -> Path | None:
    """Return the file of an option. Raises InvalidInputError for `-`: hardly anybody means a file of that name."""
    if path == Path("-"):
        problem = "it must be a file, not standard input or output; ./- is a file called -"
        raise InvalidInputError(source="-", problem=problem)
    return path


OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write to a file; - is standard output.", callback=file_or_output
    ),
]


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file. Raises InvalidInputError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=error.strerror or "cannot be read") from error


def read_text(path: Path) -> str:
    """Return the text of a file. Raises InvalidInputError, also for bytes that are not UTF-8."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(source=str(path), problem="not text in UTF-8") from error


def json_of(content: str | bytes, *, source: str) -> Any:
    """Return the JSON value that was read from `source`. Raises InvalidInputError."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(source=source, problem=f"not JSON: {error}") from error


# ---- the settings file ---------------------------------------------------------------------------------------------------


SETTINGS_FILE: Final = "keyplan.toml"


@dataclass(frozen=True)
class Settings:
    """The settings of a file, by the names of the fields: texts, and tables of texts. Empty where the file has none."""

    store: str = ""
    layout: str = ""
    secrets: str = ""
    layout_check: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def read_settings(path: Path | None) -> Settings:
    """Return the settings of a file, or of keyplan.toml in the working directory if there is one.

    Raises InvalidInputError for a file that cannot be read, and for a setting that is unknown or of the wrong type.
    """
    source = path or Path(SETTINGS_FILE)
    if path is None and not source.exists():
        return Settings()
    try:
        found = tomllib.loads(read_text(source))
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(source=str(source), problem=f"not TOML: {error}") from error
    readers = {each.name: _text if each.type is str else _texts for each in fields(Settings)}
    unknown = sorted(found.keys() - readers.keys())
    if unknown:
        *names, last = readers
        problem = f"there is no setting {unknown[0]!r}; the settings are {', '.join(names)} and {last}"
        raise InvalidInputError(source=str(source), problem=problem)
    given: dict[str, Any] = {name: readers[name](source, name, value) for name, value in found.items()}
    return Settings(**given)


def _text(source: Path, name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInputError(source=str(source), problem=f"{name} is not a text")
    return value


def _texts(source: Path, name: str, values: object) -> dict[str, str]:
    if not isinstance(values, dict):
        raise InvalidInputError(source=str(source), problem=f"{name} is not a table of names and texts")
    return {str(key): _text(source, f"{name}.{key}", value) for key, value in values.items()}


# ---- work that has not ended ---------------------------------------------------------------------------------------------


WriteUnfinishedOption = Annotated[
    bool, typer.Option("--unfinished", help="Also into the part of a restore or a copy, which is then not resumed.")
]


class Unfinished(Enum):
    """The reaction of a command to restores and copies below its root that have not ended."""

    PASSED = auto()
    """None: the command is about that work, or names it itself."""
    TOLD = auto()
    """A line for each on standard error."""
    REFUSED = auto()
    """An error: the command would write, and the work is not resumed beside others' writes."""


def look_for_unfinished(engine: Engine, url: str, root: bytes, what: Unfinished) -> None:
    """Print restores and copies above or below `root` that have not ended, a line each, or refuse to go on.

    `url` is the engine's. One short read where there are none. Raises SourceUnfinishedError.
    """
    if what is Unfinished.PASSED:
        return
    with engine.snapshot() as snapshot:
        if not snapshot.count(TRANSFER_AREA):
            return
        # Why here: it takes as long to import as all the rest, and hardly any store has claims.
        from keyplan.maintenance import unfinished_work  # noqa: PLC0415

        found = unfinished_work(snapshot, [root], store=absolute_url(url))
    for prefix, problem in found:
        if what is Unfinished.REFUSED:
            advice = "others' writes would stop it for good; `put` and `delete` write all the same with --unfinished"
            raise SourceUnfinishedError(prefix=prefix, problem=problem, advice=advice)
        print_hint(problem)


# ---- the options ---------------------------------------------------------------------------------------------------------


STORE_VARIABLE: Final = "KEYPLAN_STORE"


def command_group(text: str) -> typer.Typer:
    """Return a group of commands with its line of help."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, help=text)


def _layout_names(incomplete: str) -> list[str]:
    return sorted(name for name in installed_layouts() if name.startswith(incomplete))


StoreOption = Annotated[
    str | None,
    typer.Option("--store", "-s", envvar=STORE_VARIABLE, metavar="URL", help="The store, as in lmdb:./site.kv."),
]
LayoutOption = Annotated[
    str | None,
    typer.Option(
        "--layout",
        "-l",
        envvar="KEYPLAN_LAYOUT",
        metavar="NAME",
        help="The layout: an installed name, module:Class, or FILE.json.",
        autocompletion=_layout_names,
    ),
]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="A parameter of the layout's root; may be repeated."),
]
KeySpaceOption = Annotated[
    str | None,
    typer.Option("--keyspace", "-k", metavar="NAME", help="Within this key space of the store.", show_default=False),
]
SecretsOption = Annotated[
    str | None,
    typer.Option(
        "--secrets",
        envvar=SECRETS_VARIABLE,
        metavar="FILE",
        help="The key file for sealed secrets, or command:WORDS that print it.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON: one document, or a line for each record.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", envvar="KEYPLAN_CONFIG", metavar="FILE", help=f"Settings; {SETTINGS_FILE} by default."),
]
KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="A raw key: text, with \\xNN for other bytes.", show_default=False)
]
HexOption = Annotated[bool, typer.Option("--hex", help="KEY is in hexadecimal digits.")]
PrefixOption = Annotated[
    str,
    typer.Option(
        "--prefix", metavar="PREFIX", help="Only keys that begin so; \\xNN for other bytes.", show_default=False
    ),
]
LimitOption = Annotated[int | None, typer.Option("--limit", "-n", metavar="N", min=0, help="At most so many.")]
BesideOption = Annotated[
    list[str] | None,
    typer.Option("--beside", metavar="LAYOUT", help="Another layout in the same store; may be repeated."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and write nothing.")]

# ---- the store -------------------------------------------------------------------------------------------------------


def is_store_named(url: str | None, config: Path | None) -> bool:
    """Return whether the option or the settings name a store."""
    return bool(url or read_settings(config).store)


def store_of_option(
    url: str | None,
    config: Path | None = None,
    *,
    create: bool = False,
    readonly: bool = False,
    keyspace: str | None = None,
    root: bytes = b"",
    unfinished: Unfinished = Unfinished.TOLD,
    secrets: str | None = None,
    has_secrets: bool = True,
) -> Store:
    """Open the store of `--store`, KEYPLAN_STORE or the settings; close it, or use it in a `with` block.

    Where the engine has these options, a missing store is made only with `create`, and nothing is written with `readonly`.
    With `keyspace`, that key space of it. `unfinished` is the reaction to restores and copies that have not ended and concern
    keys below `root`. `secrets` names the keys of sealed secrets, by default KEYPLAN_SECRETS or the settings; they are read
    when one is sealed or opened. Without `has_secrets` there are no keys: no record has a secret. Raises InvalidInputError when
    no store is named, EngineOpenError, SourceUnfinishedError, and the errors of opening a key space.
    """
    url = store_url_of_option(url, config)
    keys = secrets_of_option(secrets, config) if has_secrets else None
    engine = open_engine(url, create=create and keyspace is None, readonly=readonly)
    try:
        if keyspace is None:
            look_for_unfinished(engine, url, root, unfinished)
            return Store(engine, secrets=keys)
        # Why: most commands are about no key space, and start sooner without these modules.
        from keyplan.keyspace import KeySpaceRegistry, open_for_care  # noqa: PLC0415

        # Why its root: no restore and no copy into a prefix touches a key space, but for one of the whole store.
        look_for_unfinished(engine, url, KeySpaceRegistry.bound().root, unfinished)
        return open_for_care(engine, keyspace, is_reading=readonly, secrets=keys)
    except BaseException:
        engine.close()
        raise


def secrets_of_option(secrets: str | None, config: Path | None = None) -> KeysOnDemand | None:
    """Return the keys of `--secrets`, KEYPLAN_SECRETS or the settings, unread; None where none names any."""
    found = KeysOnDemand(secrets) if secrets else KeysOnDemand.of_environment(os.environ)
    named = "" if found else read_settings(config).secrets
    return KeysOnDemand(named) if named else found


def store_url_of_option(url: str | None, config: Path | None = None) -> str:
    """Return the URL of `--store`, KEYPLAN_STORE or the settings. Raises InvalidInputError when no store is named."""
    url = url or read_settings(config).store
    if not url:
        problem = f"name a store: --store URL, KEYPLAN_STORE, or store in {SETTINGS_FILE}"
        raise InvalidInputError(source="--store", problem=problem)
    return url


_OF_FILES: Final = frozenset({"lmdb", "ring"})
_NO_TEXT: Final = re.compile(r"[\udc80-\udcff]+")
"""Bytes of a file's name that are no UTF-8, as Python has them."""


def absolute_url(url: str) -> str:
    """Return a store's URL as it is from any folder, without its secrets; in text, also where files are not called in text."""
    scheme, colon, rest = EngineUrl.parse(url).text.partition(":")
    if scheme.lower() in _OF_FILES and not rest.startswith("/"):
        rest = f"{quote(bytes(Path.cwd()))}/{rest.removeprefix('./')}"
    return scheme + colon + _NO_TEXT.sub(lambda found: quote(found[0], errors="surrogateescape"), rest)


def count_below(engine: Engine, prefix: bytes) -> int:
    """Return the number of keys below a prefix, for a bar of progress."""
    with engine.snapshot() as snapshot:
        return snapshot.count(KeyRange.of_prefix(prefix))


# ---- a raw key ------------------------------------------------------------------------------------------------------


def raw_key_of_option(key: str, *, is_hex: bool = False, source: str = "KEY") -> bytes:
    """Read a raw key as people write it. Raises InvalidInputError."""
    try:
        return bytes.fromhex(key) if is_hex else raw_key_of(key)
    except ValueError as error:
        raise InvalidInputError(source=source, problem=str(error)) from error


# ---- the layout ------------------------------------------------------------------------------------------------------


def layout_of_option(name: str | None, config: Path | None = None) -> type[Layout]:
    """Return the layout of `--layout`, KEYPLAN_LAYOUT or the settings.

    Raises UnknownNameError for a layout that is not there, InvalidInputError when none is named or it cannot be read.
    """
    name = name or read_settings(config).layout
    if not name:
        problem = f"name a layout: --layout NAME, KEYPLAN_LAYOUT, or layout in {SETTINGS_FILE}"
        raise InvalidInputError(source="--layout", problem=problem, installed=sorted(installed_layouts()))
    return layout_named(name, source="--layout")


def root_parameters(layout: type[Layout], given: list[str] | None, config: Path | None = None) -> dict[str, object]:
    """Read `--parameter NAME=VALUE`, and the settings' parameters, as values of the root's fields.

    The command line comes before the settings, whose parameters may be meant for other layouts. Raises InvalidInputError,
    InvalidKeyError.
    """
    elements = layout.spec.root.field_names
    if not elements and not given and config is None:
        return {}
    texts = {name: text for name, text in read_settings(config).parameters.items() if name in elements}
    for assignment in given or []:
        name, equals, text = assignment.partition("=")
        if not equals or name not in elements:
            known = ", ".join(sorted(elements)) or "none"
            problem = f"{assignment!r} is not NAME=VALUE with a parameter of {layout.spec.name}'s root: {known}"
            raise InvalidInputError(source="--parameter", problem=problem)
        texts[name] = text
    return root_values(layout, texts.items(), source="--parameter")


def bound_of_options(layout: str | None, parameter: list[str] | None, config: Path | None = None) -> BoundLayout:
    """Return the layout of the options or the settings, with the values of its root's parameters.

    Raises the errors of `layout_of_option` and `root_parameters`.
    """
    kind = layout_of_option(layout, config)
    return kind.bound(**root_parameters(kind, parameter, config))


def bound_where_named(
    layout: str | None, parameter: list[str] | None, config: Path | None = None
) -> BoundLayout | None:
    """Return the layout as `bound_of_options` does; None where neither the option nor the settings name one."""
    return bound_of_options(layout, parameter, config) if layout or read_settings(config).layout else None


# ---- records of options --------------------------------------------------------------------------------------------------


R = TypeVar("R")


def spread(command: Callable[..., R]) -> Callable[..., R]:
    """Return a command that takes the fields of its records one by one, as typer wants options to be declared.

    A parameter whose type is a NamedTuple stands for that record's fields, with their types, options and defaults; the command
    itself is called with the record. One of the type `Annotated[Source, Kind]` stands for the flags of the settings that the
    class declares; the command is called with the source of those that are given.
    """
    own = signature(command, eval_str=True)
    groups = {name: group for name, parameter in own.parameters.items() if (group := _group_of(parameter.annotation))}

    @wraps(command)
    def with_groups(**given: Any) -> R:
        for name, (make, parameters) in groups.items():
            given[name] = make({parameter.name: given.pop(parameter.name) for parameter in parameters})
        return command(**given)

    parameters = [
        each
        for parameter in own.parameters.values()
        for each in (
            groups[parameter.name][1] if parameter.name in groups else (parameter.replace(kind=Parameter.KEYWORD_ONLY),)
        )
    ]
    with_groups.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]  # inspect's own protocol
    with_groups.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_groups


_Group = tuple[Callable[[dict[str, Any]], object], list[Parameter]]
"""What a parameter stands for: the parameters in its place, and what makes the one of their values."""


def _group_of(kind: Any) -> _Group | None:
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return (lambda given: kind(**given)), list(_fields(kind))
    if get_origin(kind) is Annotated and get_args(kind)[0] == Source:
        return _flags_given, [
            _flag(declared) for declared in declared_settings(get_args(kind)[1]) if declared.setting.option
        ]
    return None


def _fields(kind: Any) -> Iterator[Parameter]:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        default = kind._field_defaults.get(name, Parameter.empty)
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _flag(declared: DeclaredSetting) -> Parameter:
    """A flag takes a text, which the setting's form reads, as it reads a variable's."""
    setting = declared.setting
    notes = [
        *([shown_default(declared)] * (declared.default is not None)),
        *([setting.variable] * bool(setting.variable)),
    ]
    text = f"{setting.sentence[0].upper()}{setting.sentence[1:]}." + (f" [{'; '.join(notes)}]" if notes else "")
    kind: Any = bool | None if declared.type is bool else str | None
    option = typer.Option(setting.option, help=text, show_default=False)
    return Parameter(declared.field, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _flags_given(given: dict[str, Any]) -> Source:
    return of_options({name: None if value is None else str(value) for name, value in given.items()})
