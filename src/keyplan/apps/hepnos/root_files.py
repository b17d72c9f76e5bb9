"""Loading ROOT files: NanoAOD, and other trees or RNTuples that have columns of run, subrun and event. Reads through uproot.

An entry with lists is an event; several entries of single numbers may be of one. `entries.py` says what becomes of columns.
"""

import lzma
import struct
import zlib
from collections.abc import Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import uproot
from cramjam import DecompressionError
from uproot.deserialization import DeserializationError
from uproot.interpretation.identify import UnknownInterpretation

from keyplan.apps.hepnos.entries import chosen_columns, number_columns, plan_of
from keyplan.apps.hepnos.loading import Loaded, Progress, Rows, Source, load_source, reading
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


def load_root(
    dataset: "DataSet",
    path: "str | PathLike[str]",
    *,
    tree: str | None = None,
    columns: Sequence[str] = (),
    run: str | None = None,
    subrun: str | int | None = None,
    event: str | None = None,
    label: str | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> Loaded:
    """Load a tree of a ROOT file: events, and products of each event. Memory does not grow with the file's columns.

    `tree` is Events, or the only one, unless given; `columns` are patterns, as in Muon_*; `run`, `subrun` and `event` name the
    columns of numbers where they are not called as usual (`subrun` may be a number for all); `label` is for single numbers, the
    tree's name without it. `replace` as of `load_source`. Raises InvalidInputError, InvalidNumberError.
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
            source = _Tree(name, key, file[key], columns, (run, subrun, event), label)
        return load_source(dataset, source, replace=replace, progress=progress)


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
        columns: Sequence[str],
        numbers: tuple[str | None, str | int | None, str | None],
        label: str | None,
    ) -> None:
        self.name = f"{name}:{key}"
        self._tree = tree
        known = list(tree.keys(recursive=False))
        self._numbers = number_columns(self.name, known, *numbers)
        chosen = chosen_columns(self.name, known, columns, self._numbers)
        readable = [field for field in chosen if _is_plain(tree[field])]
        self._plan = plan_of(self.name, label or key.rpartition("/")[2], self._arrays(readable, 0, 0), readable, known)
        self._fields = [field for field in readable if field not in self._plan.skipped]
        self.skipped = tuple(field for field in chosen if field not in self._fields)
        self.tables = self._plan.tables
        self.entries = int(tree.num_entries)
        self.entry_bytes = _bytes_of(tree, self._fields) // max(1, self.entries)
        self.has_lists = any(part.form != "numbers" for part in self._plan.parts.values())

    def numbers(self) -> tuple[Any, Any, Any]:
        with reading(self.name, _DAMAGE):
            found = [
                np.full(self.entries, name, np.uint64) if isinstance(name, int) else _column(self._tree, name)
                for name in self._numbers
            ]
        return found[0], found[1], found[2]

    def read(self, begin: int, end: int) -> dict[str, Rows]:
        return self._plan.rows(end - begin, self._arrays(self._fields, begin, end))

    def _arrays(self, fields: Sequence[str], begin: int, end: int) -> Any:
        if not fields:
            return {}
        with reading(self.name, _DAMAGE):
            return self._tree.arrays(list(fields), entry_start=begin, entry_stop=end, library="ak")


def _is_plain(branch: Any) -> bool:
    """True for a branch or field that can be read on its own, and is no object with branches of its own."""
    kind = getattr(branch, "interpretation", None)
    return not isinstance(kind, UnknownInterpretation) and not getattr(branch, "branches", ())


def _bytes_of(tree: Any, fields: Sequence[str]) -> int:
    """Return how many bytes the fields have in all, uncompressed; for a file that does not say, an upper guess."""
    return sum(int(getattr(tree[field], "uncompressed_bytes", 0) or 8 * tree.num_entries) for field in fields)


def _column(tree: Any, name: str) -> Any:
    return np.asarray(tree[name].array(library="np"))
