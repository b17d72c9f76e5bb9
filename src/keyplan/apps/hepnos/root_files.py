"""Loading ROOT files: NanoAOD, and other trees or RNTuples that have columns of run, subrun and event. Reads through uproot.

An entry with lists is an event; several entries of single numbers may be of one. `entries.py` says what becomes of columns.
"""

import lzma
import struct
import zlib
from collections.abc import Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final

import awkward as ak
import uproot
from cramjam import DecompressionError
from uproot.deserialization import DeserializationError
from uproot.interpretation.identify import UnknownInterpretation
from uproot.interpretation.jagged import AsJagged
from uproot.interpretation.numerical import AsDtype

from keyplan.apps.hepnos.column_types import ColumnType, NothingType, wider
from keyplan.apps.hepnos.entries import (
    ENTRY,
    Collection,
    collection_of,
    number_columns,
    numbers_of,
    plan_of,
    type_of_entries,
    type_of_form,
    whole_numbers,
)
from keyplan.apps.hepnos.entry_files import entry_file
from keyplan.apps.hepnos.loading import GROUP_BYTES, Loaded, Progress, Rows, Source, load_source, reading
from keyplan.apps.hepnos.table_notes import chosen_columns, lacking_patterns
from keyplan.errors import InvalidInputError

if TYPE_CHECKING:  # Why: for its type alone.
    from keyplan.apps.hepnos.datasets import DataSet

__all__ = ["load_root"]

_TREES: Final = frozenset({"TTree", "TNtuple", "TNtupleD", "ROOT::RNTuple"})

_DAMAGE: Final = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError),
    *(NotImplementedError, RuntimeError, struct.error, zlib.error, lzma.LZMAError, DeserializationError),
    *(DecompressionError, MemoryError),
)
"""What uproot and its decompressors raise for a file that is damaged; it checks little before it goes by what it reads."""

_UNREADABLE: Final = (OSError, EOFError, zlib.error, lzma.LZMAError, DecompressionError)
"""Of these, what says that the file is damaged, and not that uproot cannot read an object."""


def load_root(
    dataset: "DataSet",
    path: "str | PathLike[str]",
    *,
    tree: str | None = None,
    columns: Sequence[str] = (),
    exclude: Sequence[str] = (),
    run: str | int | None = None,
    subrun: str | int | None = None,
    event: str | None = None,
    label: str | None = None,
    replace: bool = False,
    may_lack: bool = False,
    same_events: bool = False,
    progress: Progress | None = None,
) -> Loaded:
    """Load a tree of a ROOT file: events, and products of each event. Memory does not grow with the file's columns.

    `tree` is Events, or the only one, unless given; `columns` and `exclude` are patterns, as in Muon_*; `run`, `subrun` and
    `event` name the columns of numbers where they are not called as usual, at any depth, as EventHeader/EventHeader.runNumber
    (`run` and `subrun` may be a number for all, `event` "Entry$": the number of the entry in this file, from 0); `label` is for
    single values, the tree's name without it. What no column holds is left out, and named in the answer. `replace` as of
    `load_source`, and `same_events`. With `may_lack` a pattern may match no column of this file, one of many, and is named in
    the answer. Raises InvalidInputError, InvalidNumberError.
    """
    name = fspath(path)
    try:
        # Why a dict: of a plain text uproot takes what follows a colon for a tree.
        whole_file: Any = {name: None}
        opened: Any = uproot.open(whole_file)
    except _DAMAGE as error:
        raise InvalidInputError(source=name, problem="it is not there, or no ROOT file") from error
    with opened as file:
        with reading(name, _DAMAGE):
            key = _tree_name(name, file, tree)
            source = _Tree(name, key, file[key], (columns, exclude, may_lack), (run, subrun, event), label)
        return load_source(dataset, source, replace=replace, same_events=same_events, progress=progress)


def _tree_name(name: str, file: Any, tree: str | None) -> str:
    """Return the tree that is meant, without the number of its version."""
    classes = file.classnames(cycle=False)
    trees = sorted(key for key, kind in classes.items() if kind in _TREES)
    if tree is not None and tree not in trees:
        raise InvalidInputError(source=name, problem=f"it has no tree {tree}; it has {', '.join(trees) or 'none'}")
    chosen = tree or ("Events" if "Events" in trees else trees[0] if len(trees) == 1 else None)
    if chosen is None:
        raise InvalidInputError(source=name, problem=f"name one of its trees: {', '.join(trees) or 'it has none'}")
    return chosen


class _Tree(Source):
    def __init__(
        self,
        name: str,
        key: str,
        tree: Any,
        choice: tuple[Sequence[str], Sequence[str], bool],
        numbers: tuple[str | int | None, str | int | None, str | None],
        label: str | None,
    ) -> None:
        self.name = f"{name}:{key}"
        self._tree = tree
        branches = _branches(tree)
        fields = list(branches)
        self._numbers = number_columns(self.name, _with_deeper(tree, fields), *numbers)
        self.entry_file = entry_file(name, key) if ENTRY in self._numbers else None
        known = [field for field in fields if field not in self._numbers]
        patterns, exclude, may_lack = choice
        chosen = chosen_columns(self.name, known, patterns, exclude, may_lack=may_lack)
        self.lacking = lacking_patterns(known, patterns, exclude)
        forms: dict[str, ColumnType | None] = {}
        types = {field: _type_of(branches[field], forms) for field in chosen}
        # Why once: to uproot it is a search.
        counters = {field: _counter(branch) for field, branch in branches.items()}
        collections = frozenset([*fields, *(counter for counter in counters.values() if counter is not None)])

        def collection(field: str) -> Collection:
            above, _, below = field.rpartition("/")
            counter = counters[field]
            if above:
                column = below.removeprefix(f"{above.rpartition('/')[2].removesuffix('.')}.")
                # Why not fBits: a TObject that is referred to has two bytes more there, and uproot takes them for elements.
                return (above, column) if counter is not None and column != "fBits" else None
            found = collection_of(field, collections)
            # Why the counter: what is called Muon_x may have other lists than the muons.
            return None if found is not None and counter not in {None, f"n{found[0]}"} else found

        self._plan = plan_of(self.name, label or key.rpartition("/")[2], types, collection)
        self._fields = [field for field in chosen if field not in self._plan.skipped]
        self.skipped = self._plan.skipped
        self.tables = self._plan.tables
        self.entries = int(tree.num_entries)
        self.entry_bytes = _bytes_of(tree, [branches[field] for field in self._fields]) // max(1, self.entries)
        self.has_lists = any(part.form != "singles" for part in self._plan.parts.values())
        self.singles = self._plan.singles if self.has_lists else frozenset()

    def numbers(self) -> tuple[Any, Any, Any]:
        with reading(self.name, _DAMAGE):
            return numbers_of(self._numbers, self.entries, self._column)

    def read(self, begin: int, end: int) -> dict[str, Rows]:
        with reading(self.name, _DAMAGE):
            entries = self._arrays(begin, end)
        return self._plan.rows(end - begin, entries)

    def _arrays(self, begin: int, end: int) -> dict[str, Any]:
        if not self._fields:
            return {}
        options = {"entry_start": begin, "entry_stop": end, "library": "ak"}
        if not hasattr(self._tree, "branches"):
            found = self._tree.arrays(self._fields, **options)
            return {field: found[field] for field in self._fields}
        return dict(self._tree.arrays(self._fields, how=dict, **options))

    def _column(self, name: str) -> Any:
        return whole_numbers(self.name, name, _read(self._tree[name], 0, self.entries))


def _branches(tree: Any) -> dict[str, Any]:
    """Return the columns of a tree: branches that have values of their own, by their path; the fields of an RNTuple."""
    if not hasattr(tree, "branches"):
        return {name: tree[name] for name in tree.keys(recursive=False)}
    paths = dict.fromkeys(tree.keys(recursive=True, full_paths=True))
    return {path: branch for path in paths if not (branch := tree[path]).branches}


def _with_deeper(tree: Any, fields: Sequence[str]) -> list[str]:
    return list(fields) if hasattr(tree, "branches") else list(dict.fromkeys([*fields, *tree.keys(recursive=True)]))


def _counter(branch: Any) -> str | None:
    counter = getattr(branch, "count_branch", None)
    return None if counter is None else str(counter.name)


def _type_of(branch: Any, known: dict[str, ColumnType | None]) -> ColumnType | None:
    """Return the type of a column, None for what no column holds: an object that uproot or awkward has no form for.

    `known` keeps those of numbers and lists of them, which a file has hundreds of, and uproot takes a while to spell each.

    Why objects are read before: uproot learns only from their bytes whether it can read them, and as what.
    """
    kind = getattr(branch, "interpretation", None)
    if isinstance(kind, UnknownInterpretation):
        return None
    try:
        if kind is None:
            return type_of_entries(_read(branch, 0, 0))
        # Why `type`: objects of a fixed size are read as a kind of numbers, too.
        if type(kind.content if isinstance(kind, AsJagged) else kind) is AsDtype:
            key = kind.cache_key
            if key not in known:
                known[key] = type_of_form(kind.awkward_form(branch.file))
            return known[key]
        return _type_of_objects(branch)
    except _UNREADABLE:
        raise  # Why: bytes that are not there, or do not unpack, are no type that nothing here holds.
    except _DAMAGE:
        return None


def _type_of_objects(branch: Any) -> ColumnType | None:
    found: ColumnType | None = NothingType()
    step = max(1, GROUP_BYTES * branch.num_entries // max(1, branch.uncompressed_bytes))
    for begin in range(0, max(1, branch.num_entries), step):
        entries = _read(branch, begin, begin + step)
        kind = type_of_entries(entries)
        # Why the first as well: lists that are all empty may have other records than those with elements.
        if isinstance(found, NothingType) or ak.count(entries) > 0:
            found = kind if found is None or kind is None else wider(found, kind)
    return found


def _read(branch: Any, begin: int, end: int) -> Any:
    return branch.array(entry_start=begin, entry_stop=end, library="ak")


def _bytes_of(tree: Any, branches: Sequence[Any]) -> int:
    """Return how many bytes columns have in all, uncompressed; of an RNTuple all columns, chosen or not."""
    if hasattr(tree, "branches"):
        return sum(int(branch.uncompressed_bytes) or 8 * tree.num_entries for branch in branches)
    columns = tree.column_records
    bits = sum(
        column.nbits * page.num_elements
        for cluster in tree.page_link_list
        for column, stored in zip(columns, cluster, strict=False)  # Why not strict: some columns are others' aliases.
        for page in stored.pages
    )
    return int(bits // 8)
