"""The commands that load files and export them. The packages that read files are imported when a command needs them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Protocol

import typer

from keyplan.apps.hepnos.cli_store import dataset_named, opened
from keyplan.apps.hepnos.databases import read_counts
from keyplan.apps.hepnos.datasets import DataSet
from keyplan.apps.hepnos.loading import Loaded, Progress
from keyplan.cli import ConfigOption, Faults, JsonOption, StoreOption, print_json, print_text, progress_bar
from keyplan.errors import EngineLimitError, InvalidInputError, InvalidKeyError, InvalidRecordError

__all__ = ["export", "load_h5", "load_parquet", "load_root", "show_tables"]

_OF_ONE_FILE: Final = (InvalidInputError, InvalidKeyError, InvalidRecordError, EngineLimitError)
"""What a file is refused with for what is in it. Why no others: they are the store's, and the next file's, too."""

_DIGITS_MAX: Final = 18
"""Why: Python reads no number of thousands of digits."""

FilesArgument = Annotated[list[Path], typer.Argument(help="The files.", show_default=False)]
IntoOption = Annotated[str, typer.Option("--into", "-d", metavar="PATH", help="The data set; made if it is not there.")]
DatabasesOption = Annotated[
    list[str] | None,
    typer.Option("--databases", metavar="KIND=NUMBER", help="For a new store, how many of a kind; repeated."),
]
ColumnsOption = Annotated[
    list[str] | None, typer.Option("--columns", "-c", metavar="PATTERN", help="Only such columns, as Muon_*; repeated.")
]
ExcludeOption = Annotated[
    list[str] | None, typer.Option("--exclude", "-x", metavar="PATTERN", help="No such columns; repeated.")
]
RunOption = Annotated[
    str | None, typer.Option("--run", metavar="COLUMN", help="The column of run numbers, or one number for all.")
]
SubRunOption = Annotated[
    str | None, typer.Option("--subrun", metavar="COLUMN", help="The column of subrun numbers, or one number for all.")
]
EventOption = Annotated[
    str | None,
    typer.Option(
        "--event", metavar="COLUMN", help="The column of event numbers, or Entry$: number them by entry, from 0."
    ),
]
LabelOption = Annotated[str | None, typer.Option("--label", metavar="LABEL", help="What products are labelled.")]
ReplaceOption = Annotated[
    bool, typer.Option("--replace", help="Replace products that have other rows, instead of refusing them.")
]
SameEventsOption = Annotated[
    bool,
    typer.Option("--same-events", help="Events of these numbers are those of the file that numbered them by entry."),
]


def load_root(
    files: FilesArgument,
    into: IntoOption,
    store: StoreOption = None,
    tree: Annotated[str | None, typer.Option("--tree", metavar="NAME", help="Events, or the only one.")] = None,
    columns: ColumnsOption = None,
    exclude: ExcludeOption = None,
    run: RunOption = None,
    subrun: SubRunOption = None,
    event: EventOption = None,
    label: LabelOption = None,
    replace: ReplaceOption = False,
    same_events: SameEventsOption = False,
    databases: DatabasesOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Load ROOT files: NanoAOD, and other trees with columns of run, subrun and event.

    A column nMuon makes Muon_pt, Muon_eta, ... the table Muon; single numbers make a table with the tree's name, or --label.
    Loading again, after a crash for one, ends in the same.
    """
    # Why here: uproot and awkward take longer to import than other commands need.
    from keyplan.apps.hepnos.root_files import load_root as load  # noqa: PLC0415

    def load_one(dataset: DataSet, file: Path, progress: Progress, *, may_lack: bool) -> list[Loaded]:
        found = load(
            dataset, file, tree=tree, columns=columns or (), exclude=exclude or (), run=_column(run), subrun=_column(subrun),
            event=event, label=label, replace=replace, same_events=same_events, may_lack=may_lack, progress=progress,
        )  # fmt: skip
        return [found]

    _present(files)
    with opened(store, config, create=True, databases=read_counts(databases or [])) as data:
        _load(data.root.ensure(into), files, load_one, [*(columns or ()), *(exclude or ())], as_json=as_json)


def load_h5(
    files: FilesArgument,
    into: IntoOption,
    store: StoreOption = None,
    tables: Annotated[
        list[str] | None, typer.Option("--table", "-t", metavar="GROUP", help="Only this table; repeated.")
    ] = None,
    columns: ColumnsOption = None,
    exclude: ExcludeOption = None,
    event: Annotated[str, typer.Option("--event", metavar="COLUMN", help="The column of event numbers.")] = "evt",
    run_offset: Annotated[int, typer.Option("--run-offset", help="Added to run numbers.")] = 0,
    label: LabelOption = None,
    replace: ReplaceOption = False,
    same_events: SameEventsOption = False,
    databases: DatabasesOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Load HDF5 files whose groups are tables with columns run, subrun and evt, as HEPnOS's dataloader takes them.

    A table without run and subrun has them from the file's name, as in x_r00012096_s07.h5. Rows of an event need not stand
    together. Loading again ends in the same.
    """
    from keyplan.apps.hepnos.hdf5_files import load_hdf5  # noqa: PLC0415  # Why here: as above, of h5py.

    def load_one(dataset: DataSet, file: Path, progress: Progress, *, may_lack: bool) -> list[Loaded]:
        return load_hdf5(
            dataset, file, tables=tables or (), columns=columns or (), exclude=exclude or (), event=event,
            run_offset=run_offset, label=label, replace=replace, same_events=same_events, may_lack=may_lack, progress=progress,
        )  # fmt: skip

    _present(files)
    with opened(store, config, create=True, databases=read_counts(databases or [])) as data:
        _load(data.root.ensure(into), files, load_one, [*(columns or ()), *(exclude or ())], as_json=as_json)


def load_parquet(
    files: FilesArgument,
    into: IntoOption,
    store: StoreOption = None,
    columns: ColumnsOption = None,
    exclude: ExcludeOption = None,
    run: RunOption = None,
    subrun: SubRunOption = None,
    event: EventOption = None,
    label: LabelOption = None,
    replace: ReplaceOption = False,
    same_events: SameEventsOption = False,
    databases: DatabasesOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Load Parquet files with columns of run, subrun and event; what `export` wrote comes back as it was."""
    from keyplan.apps.hepnos.parquet_files import load_parquet as load  # noqa: PLC0415  # Why here: as above, of pyarrow.

    def load_one(dataset: DataSet, file: Path, progress: Progress, *, may_lack: bool) -> list[Loaded]:
        found = load(
            dataset, file, columns=columns or (), exclude=exclude or (), run=_column(run), subrun=_column(subrun),
            event=event, label=label, replace=replace, same_events=same_events, may_lack=may_lack, progress=progress,
        )  # fmt: skip
        return [found]

    _present(files)
    with opened(store, config, create=True, databases=read_counts(databases or [])) as data:
        _load(data.root.ensure(into), files, load_one, [*(columns or ()), *(exclude or ())], as_json=as_json)


def _present(files: Iterable[Path]) -> None:
    """Refuse files that are not there, before a store or a data set is made for them."""
    for file in files:
        if not file.is_file():
            raise InvalidInputError(source=str(file), problem="there is no such file")


def _column(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) <= _DIGITS_MAX else text


class _LoadOne(Protocol):
    def __call__(self, dataset: DataSet, file: Path, progress: Progress, *, may_lack: bool) -> list[Loaded]: ...


def _load(
    dataset: DataSet, files: Sequence[Path], load_one: _LoadOne, patterns: Sequence[str], *, as_json: bool
) -> None:
    """Load each file; one that cannot be loaded is told, keeps no other from being loaded, and decides the exit code.

    One of several files may lack what matches a pattern. It is loaded when another has had it, which is known at the end; else
    the pattern is taken for a mistake, and the file is refused.
    """
    faults = Faults(is_json=as_json)
    matched: set[str] = set()
    waiting: list[tuple[int, InvalidInputError]] = []

    def load(number: int, *, may_lack: bool) -> None:
        file = files[number]
        title = file.name if len(files) == 1 else f"{number + 1:,} of {len(files):,}: {file.name}"
        try:
            with progress_bar(title) as report:
                found = load_one(dataset, file, report, may_lack=may_lack)
        except _OF_ONE_FILE as error:
            if len(files) > 1 and isinstance(error, InvalidInputError) and "patterns" in error.facts:
                waiting.append((number, error))
                matched.update(set(patterns) - _patterns(error))
            else:
                faults.add(error)
            return
        matched.update(*(set(patterns) - set(loaded.lacking) for loaded in found))
        for loaded in found:
            if as_json:
                print_json(loaded._asdict())
            else:
                print_text(_line(loaded))

    for number in range(len(files)):
        load(number, may_lack=False)
    for number, error in waiting:
        if _patterns(error) <= matched:
            load(number, may_lack=True)
        else:
            faults.add(error)
    faults.end()


def _patterns(error: InvalidInputError) -> set[str]:
    """Return the patterns that a file was refused for."""
    given: Any = error.facts["patterns"]
    return set(given)


def _line(loaded: Loaded) -> str:
    tables = ", ".join(loaded.labels[:4]) + (f" and {len(loaded.labels) - 4:,} more" if len(loaded.labels) > 4 else "")
    line = (
        f"{loaded.source}: {loaded.entries:,} rows, {loaded.events:,} events, {loaded.created:,} of them new; {tables}"
    )
    if loaded.skipped:
        names = ", ".join(loaded.skipped[:3]) + (", ..." if len(loaded.skipped) > 3 else "")
        line += f"\n  left out, because no column or label can hold them: {len(loaded.skipped):,} columns ({names})"
    if loaded.lacking:
        line += f"\n  it has no column {', '.join(loaded.lacking)}, as others of the files have"
    return line


MissingOption = Annotated[
    str,
    typer.Option("--missing", metavar="WORD", help="null, refuse, or the number of columns that a version lacks."),
]


def export(
    path: Annotated[str, typer.Argument(help="The data set.")],
    file: Annotated[Path, typer.Argument(help="The Parquet file to write.")],
    store: StoreOption = None,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", metavar="LABEL", help="Only this table or Collection; repeated."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", "-c", metavar="LABEL.PATTERN", help="Only such columns of a table; repeated."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", "-x", metavar="LABEL.PATTERN", help="No such columns of a table; repeated."),
    ] = None,
    missing: MissingOption = "null",
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Write the events of a data set, with its tables, to a Parquet file: a row for each event, sorted by its numbers.

    A table that was loaded in several versions is written as their union; a Collection is written as its tables.
    """
    from keyplan.apps.hepnos.export import export_parquet  # noqa: PLC0415  # Why here: as above, of pyarrow.

    with opened(store, config) as data, progress_bar("export") as report:
        dataset = dataset_named(data, path)
        known = [*dataset.tables, *(tables or ())]
        events = export_parquet(
            dataset,
            file,
            tables or (),
            columns=_by_label(known, columns or ()),
            exclude=_by_label(known, exclude or ()),
            missing=_missing(missing),
            progress=report,
        )
    written: dict[str, Any] = {"file": str(file), "events": events}
    if as_json:
        print_json(written)
    else:
        print_text(f"{file}: {events:,} events")


def _by_label(known: Iterable[str], given: Iterable[str]) -> dict[str, list[str]]:
    """Return the patterns by label; of labels with points in them, the longest that fits."""
    found: dict[str, list[str]] = {}
    for text in given:
        label = max((label for label in known if text.startswith(f"{label}.")), key=len, default=None)
        if label is None:
            raise InvalidInputError(source="columns", problem=f"{text} names no table of the data set before a point")
        found.setdefault(label, []).append(text[len(label) + 1 :])
    return found


def _missing(text: str) -> str | float:
    if text in {"null", "refuse"}:
        return text
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInputError(source="missing", problem=f"{text} is neither null, refuse nor a number") from error


def show_tables(
    path: Annotated[str, typer.Argument(help="The data set.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """List the tables of a data set, with the columns of all versions of each."""
    with opened(store, config) as data:
        for table in dataset_named(data, path).tables.values():
            if as_json:
                versions = [{"type": each.type.name, "columns": each.columns} for each in table.versions]
                print_json({"table": table.key, "schema": table.schema, "versions": versions})
                continue
            print_text(f"{table.key}: {len(table.versions):,} version{'s' if len(table.versions) > 1 else ''}")
            for name, kind in table.schema.items():
                print_text(f"  {name}{' ' if name else ''}{kind}")
