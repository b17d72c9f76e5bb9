"""A folder of migration files: `0003_split_orders.py` and its like in the order of their numbers, and the layouts between them.

    migrations/0001_noted.py
    migrations/0002_by_owner.py
    migrations/layouts/3f2a9c1b7d40.json     a layout's description, by its fingerprint

Each file goes on from the layout at which the one before ends. The descriptions stand for classes that are not there any more.
"""

import json
import re
import sys
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

from keyplan.errors import InvalidInputError, KeyplanError
from keyplan.layout import Layout, LayoutSpec, layout_class_of, layout_fingerprint, layout_of_file
from keyplan.maintenance.migration_files.declared import KeptLayout, Migration, is_unwritten
from keyplan.store import layout_named

__all__ = ["LAYOUTS", "MigrationFile", "MigrationFolder", "read_migrations"]

LAYOUTS: Final = "layouts"
"""The folder of descriptions within the folder of files."""

_NAME: Final = re.compile(r"(?P<number>\d{4})_[a-z0-9_]+")


class MigrationFile(NamedTuple):
    """A migration file, read: its path, and what it declares."""

    path: Path
    migration: Migration

    @property
    def name(self) -> str:
        """The name without `.py`: what plans and histories call the migration."""
        return self.path.stem

    def require_written(self) -> None:
        """Raise InvalidInputError, with the line, when a function of it is only drafted."""
        for function in self.migration.functions:
            if is_unwritten(function):
                line = function.__code__.co_firstlineno
                problem = (
                    f"the function {function.__name__} is not written: write it, and take the line @unwritten away"
                )
                raise InvalidInputError(source=f"{self.path}:{line}", problem=problem)

    @property
    def number(self) -> int:
        """Its place in the order."""
        return int(self.path.stem[:4])


@dataclass(frozen=True)
class MigrationFolder:
    """The migration files of a folder, in their order, each of which goes on from the layout at which the one before ends."""

    path: Path
    files: tuple[MigrationFile, ...]

    @property
    def layouts(self) -> tuple[KeptLayout, ...]:
        """The layouts between the files: one more than there are files; none without files."""
        return (
            *(self.files[0].migration.old for _ in self.files[:1]),
            *(file.migration.new for file in self.files),
        )

    def named(self, name: str) -> int:
        """Return the place of the file of a name, or of a number. Raises InvalidInputError."""
        for place, file in enumerate(self.files):
            if name in (file.name, file.path.name) or (
                name.isdecimal() and len(name) <= 4 and int(name) == file.number
            ):
                return place
        known = ", ".join(file.name for file in self.files) or "none"
        raise InvalidInputError(source=str(self.path), problem=f"there is no migration {name!r}; there are: {known}")

    def description(self, layout: KeptLayout) -> LayoutSpec:
        """Return the layout's description. Raises InvalidInputError when it is not there, or is another one."""
        path = self.path / LAYOUTS / f"{layout.fingerprint}.json"
        try:
            found = layout_of_file(json.loads(path.read_bytes()), source=str(path))
        except OSError as error:
            problem = f"the description of {layout} cannot be read: {error.strerror}: bring the file back"
            raise InvalidInputError(source=str(path), problem=problem) from error
        except (ValueError, RecursionError, AttributeError, KeyplanError) as error:
            reason = error.facts.get("problem", error.summary) if isinstance(error, KeyplanError) else error
            problem = f"it is no description of a layout: {reason}: bring the file back"
            raise InvalidInputError(source=str(path), problem=problem) from error
        if (fingerprint := layout_fingerprint(found)) != layout.fingerprint:
            problem = f"the description was changed: its fingerprint is {fingerprint}, and its name says another one"
            raise InvalidInputError(source=str(path), problem=f"{problem}: bring the file back")
        return found

    def end(self) -> tuple[type[Layout], str]:
        """Return the layout at which the last file ends, and the name of its class; empty where that is not as it was.

        Raises InvalidInputError where there are no files.
        """
        if not self.files:
            raise InvalidInputError(source=str(self.path), problem="it has no migration files")
        layout = self.files[-1].migration.new
        kind, _ = _class_of(layout)
        return (layout_class_of(self.description(layout)), "") if kind is None else (kind, layout.name)

    def old_layout(self, file: MigrationFile) -> type[Layout]:
        """Return the layout at which a file begins: its class where it is as it was, else its description.

        Raises InvalidInputError when functions were written for records of a class that has changed since.
        """
        layout, functions = file.migration.old, file.migration.functions
        kind, why = _class_of(layout)
        if kind is None and why and functions:
            remedy = "keep the class as it was, under another name if need be, and let the file name that"
            raise InvalidInputError(
                source=str(file.path), problem=f"its functions take records of it, and {why}: {remedy}"
            )
        return kind or layout_class_of(self.description(layout))

    def new_layout(self, file: MigrationFile) -> type[Layout]:
        """Return the layout at which a file ends: its class, or its description where a later file goes on from it.

        Raises InvalidInputError when the class has changed since the file was written.
        """
        layout, functions = file.migration.new, file.migration.functions
        kind, why = _class_of(layout)
        if kind is None and why and (file is self.files[-1] or functions):
            remedy = "its functions make records of it: run it with the program of that time"
            if file is self.files[-1]:
                remedy = "bring it back as it was, or go on from there: `keyplan migrate new NAME` drafts the next file"
            raise InvalidInputError(source=str(file.path), problem=f"{why}: {remedy}")
        return kind or layout_class_of(self.description(layout))


def read_migrations(path: Path) -> MigrationFolder:
    """Read a folder of migration files. A folder that is not there has none.

    Raises InvalidInputError, which names the file and its line, for a file that cannot be imported or declares no `migration`,
    for two files of one number, and for one that does not go on from the layout at which the one before ends.
    """
    paths = sorted(path.glob("[0-9]*.py"))
    for one in paths:
        if not _NAME.fullmatch(one.stem):
            problem = "a migration file is called by four digits and its name, as in 0003_split_orders.py"
            raise InvalidInputError(source=str(one), problem=problem)
    files: list[MigrationFile] = []
    for one in paths:
        file = MigrationFile(one, _declared(one))
        if files:
            _require_next(files[-1], file)
        files.append(file)
    return MigrationFolder(path, tuple(files))


def _require_next(before: MigrationFile, file: MigrationFile) -> None:
    if before.number == file.number:
        problem = f"it has the number of {before.name}: two branches met; draft the later one anew, on top of the other"
        raise InvalidInputError(source=str(file.path), problem=problem)
    end, start = before.migration.new, file.migration.old
    if end.fingerprint != start.fingerprint:
        problem = f"it begins at {start}, and {before.name} ends at {end}: draft it anew, on top of that"
        raise InvalidInputError(source=str(file.path), problem=problem)


def _class_of(layout: KeptLayout) -> tuple[type[Layout] | None, str]:
    """Return the class of a kept layout; None where it is not as it was, with the reason, or where there was none."""
    if not layout.name:
        return None, ""
    try:
        kind = layout_named(layout.name, source=layout.name)
    except KeyplanError as error:
        return None, f"{layout.name} is not there any more ({error.facts.get('problem', error.summary)})"
    fingerprint = layout_fingerprint(kind.spec)
    if fingerprint != layout.fingerprint:
        return None, f"{layout.name} has changed since: its fingerprint is {fingerprint}, and was {layout.fingerprint}"
    return kind, ""


# ---- one file ------------------------------------------------------------------------------------------------------------


def _declared(path: Path) -> Migration:
    module = _imported(path)
    found = getattr(module, "migration", None)
    if not isinstance(found, Migration):
        problem = "it declares no `migration = Migration(...)`"
        raise InvalidInputError(source=f"{path}:1", problem=problem)
    return found


def _imported(path: Path) -> ModuleType:
    """Import a file anew. Raises InvalidInputError with the line at which it fails."""
    # Why: a console script's path holds its own folder; files name modules of the folder that people are in.
    if "" not in sys.path:
        sys.path.insert(0, "")
    loader = SourceFileLoader(f"keyplan_migrations_{path.stem}", str(path))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    try:
        loader.exec_module(module)
    except SyntaxError as error:
        place = f"{error.filename or path}:{error.lineno or 1}"
        raise InvalidInputError(source=place, problem=f"it cannot be read: {error.msg}") from error
    except (Exception, SystemExit) as error:
        raise InvalidInputError(source=f"{path}:{_line(path, error)}", problem=_words(error)) from error
    return module


def _line(path: Path, error: BaseException) -> int:
    """The last line of the file that the error went through."""
    lines = [1]
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return lines[-1]


def _words(error: BaseException) -> str:
    if isinstance(error, KeyplanError):
        return str(error.facts.get("problem", error.summary))
    return f"it raised {type(error).__name__}: {error}"
