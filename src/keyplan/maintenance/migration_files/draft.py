"""A migration file drafted from two layouts: what changes, the steps, what is to be decided, and the functions to write."""

import json
import keyword
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from keyplan.engine import Engine, KeyRange, MemoryEngine
from keyplan.errors import InvalidInputError
from keyplan.files import make_folder, write_whole
from keyplan.layout import (
    CHANGE_CODES,
    BoundIndex,
    BoundLayout,
    BoundTable,
    Impact,
    LayoutChange,
    LayoutPairs,
    differences,
    layout_fingerprint,
    lock_text,
    pair_items,
)
from keyplan.maintenance.migration import Conversion, Keyed, MigrationPhase, MigrationPlan, Transform, plan_migration
from keyplan.maintenance.migration.survey import survey_index
from keyplan.maintenance.migration_files.declared import KeptLayout
from keyplan.maintenance.migration_files.folder import LAYOUTS, MigrationFolder

__all__ = ["draft_migration"]

_WIDTH: Final = 110
_FILE_MODE: Final = 0o644
"""Why: the files are source code, and are read by whoever builds the program."""
_FOLDER_MODE: Final = 0o755
_NUMBER_MAX: Final = 9999
_NAME: Final = re.compile(r"[a-z0-9_]{1,60}")

_CONSENTS: Final = {
    "from": "records that another migration has converted are in the old layout all the same",
    "gone": "programs of the new layout have deleted the copies that are not there any more, and the old records go as well",
    "none": "the function makes nothing of some records, and they are lost",
    "keys": "values go on to hold keys of records that move",
    "lease": "joined records on different leases become one on that of the first",
    "lose": "a rollback loses what programs of the new layout have written",
    "old": "the old record holds where both sides have changed one",
    "new": "the new record holds where both sides have changed one",
}
_BY_FUNCTION: Final = {"E23", "E9", "E11"}
_BEYOND_READERS: Final = {Impact.REWRITE, Impact.BREAKING}
_MOVED: Final = "E23"


def draft_migration(
    folder: MigrationFolder,
    name: str,
    old: tuple[str, BoundLayout],
    new: tuple[str, BoundLayout],
    *,
    renames: Mapping[str, str] | None = None,
    drops: Collection[str] = (),
    accepts: Collection[str] = (),
    engine: Engine | None = None,
) -> Path:
    """Write the next file of a folder, and the descriptions of its layouts; return its path. The folder is made.

    name: of letters, digits and underscores; the number comes before it.
    old, new: the layouts, each with the name of its class; an empty one where there is none that will be kept.
    renames, drops, accepts: as for `plan_migration`, as far as they are known.
    engine: the store whose records are counted.

    Raises InvalidInputError when the layouts are the same, the old one is not that at which the folder ends, or NAME is none.
    """
    if not _NAME.fullmatch(name):
        problem = (
            f"{name!r} is no name of a migration: small letters, digits and underscores, 60 at most, as in split_orders"
        )
        raise InvalidInputError(source="NAME", problem=problem)
    number = folder.files[-1].number + 1 if folder.files else 1
    if number > _NUMBER_MAX:
        raise InvalidInputError(
            source=str(folder.path), problem=f"it has {_NUMBER_MAX} migrations: begin another folder"
        )
    path = folder.path / f"{number:04}_{name}.py"
    before, after = (KeptLayout(known, layout_fingerprint(bound.spec)) for known, bound in (old, new))
    _require_apart(folder, before, after)
    draft = _Draft(path.stem, before, after, old[1], new[1], dict(renames or {}), tuple(drops), tuple(accepts), engine)
    text = draft.text()
    for kept, bound in ((before, old[1]), (after, new[1])):
        _keep(folder.path / LAYOUTS / f"{kept.fingerprint}.json", bound)
    try:
        write_whole(path, text, mode=_FILE_MODE, replace=False)
    except FileExistsError as error:
        raise InvalidInputError(source=str(path), problem="the file is there already") from error
    return path


def _require_apart(folder: MigrationFolder, old: KeptLayout, new: KeptLayout) -> None:
    if old.fingerprint == new.fingerprint:
        problem = f"both layouts store the same in the same way ({old.fingerprint}): there is nothing to migrate"
        raise InvalidInputError(source=new.name or "--to", problem=problem)
    if folder.layouts and folder.layouts[-1].fingerprint != old.fingerprint:
        problem = f"it is {old}, and {folder.files[-1].name} ends at {folder.layouts[-1]}: leave --from out to go on from there"
        raise InvalidInputError(source="--from", problem=problem)


def _keep(path: Path, layout: BoundLayout) -> None:
    """Write a layout's lock, unless it is there. Why a lock: one that somebody changes is found by its digest."""
    make_folder(path.parent.parent, mode=_FOLDER_MODE)
    make_folder(path.parent, mode=_FOLDER_MODE)
    if not path.exists():
        write_whole(path, lock_text(layout.spec), mode=_FILE_MODE)


@dataclass
class _Function:
    """A function to write: for the new table of one old one, with the changes that it is about. `is_keyed`: keys included."""

    name: str
    old: BoundTable
    new: BoundTable
    is_keyed: bool
    changes: Sequence[LayoutChange]


@dataclass
class _Resolver:
    """A function to write for a new unique index, where records of the store claim one entry; `claims` names some of them."""

    name: str
    index: BoundIndex
    claims: Sequence[str]


@dataclass
class _Draft:
    stem: str
    before: KeptLayout
    after: KeptLayout
    old: BoundLayout
    new: BoundLayout
    renames: dict[str, str]
    drops: tuple[str, ...]
    accepts: tuple[str, ...]
    engine: Engine | None
    imports: set[str] = field(default_factory=set)
    is_any_used: bool = False

    def text(self) -> str:
        """The file."""
        pairs = pair_items(self.old.spec, self.new.spec, self.renames)
        changes = differences(self.old.spec, self.new.spec, renames=self.renames, drops=self.drops)
        functions = list(self._functions(pairs, changes))
        plan = self._plan(functions)
        resolvers = list(self._resolvers(plan, functions))
        drafted = "".join(self._stub(function) for function in functions)
        drafted += "".join(self._resolver_stub(one) for one in resolvers if one.claims)
        declared = "\n".join(self._declaration(changes, functions, resolvers))
        head = f"{self._docstring(plan, changes)}\n{self._imported(functions, resolvers)}"
        return f"{head}\n{drafted}\n{declared}\n"

    # ---- what is to be written by somebody ---------------------------------------------------------------------------------

    def _functions(self, pairs: LayoutPairs, changes: Sequence[LayoutChange]) -> Iterator[_Function]:
        taken: set[str] = set()
        for name, table in self.new.tables.items():
            own = [change for change in changes if change.item == name and name in pairs.names]
            asked = [change for change in own if change.code in _BY_FUNCTION and change.impact in _BEYOND_READERS]
            lost = [change for change in own if change.loses_values]
            if not asked and not any(change.renamed_to for change in lost):
                continue
            called = _identifier(name, taken)
            taken.add(called)
            is_keyed = any(change.code == _MOVED for change in asked)
            about = [change for change in own if change in asked or change in lost]
            yield _Function(called, self.old.tables[pairs.names[name]], table, is_keyed, about)

    def _stub(self, function: _Function) -> str:
        old, new = function.old, function.new
        record, made = self._type(old.form.value_type), self._type(new.form.value_type)
        if function.is_keyed:
            head = f"def {function.name}(key: {self._key_type(old)}, record: {record}) -> Keyed:"
            what = f"Make of a record of {old.name} one of {new.name}: Keyed(key, record); several in a list; None for none."
            key = f"key: {self._key_type(new)} of {', '.join(new.keys.template.field_names) or 'no fields'}; record: {made}"
        else:
            head, key = f"def {function.name}(record: {record}) -> {made}:", ""
            what = f"Make of a record of {old.name} one of {new.name}."
        notes = [key] if key else []
        notes += [f"{change.code} {change.subject}: {change.message}" for change in function.changes]
        return self._drafted(head, what, notes)

    @staticmethod
    def _drafted(head: str, what: str, notes: Iterable[str]) -> str:
        """A function that somebody has to write."""
        lines = ["@unwritten  # take this line away when the function is written", head, f'    """{_prose(what)}', ""]
        lines += [line for note in notes for line in _wrapped(note, "    ")]
        lines += ['    """', "    raise NotImplementedError"]
        return "\n" + "\n".join(lines) + "\n\n"

    def _resolvers(self, plan: MigrationPlan, functions: Sequence[_Function]) -> Iterator[_Resolver]:
        """The unique indexes that are built over records which may claim one entry; with an engine, those that do."""
        taken = {function.name for function in functions}
        for name in plan.indexes_to_build:
            index = self.new.indexes[name]
            if index.spec.is_unique:
                called = _identifier(name, taken)
                taken.add(called)
                claims: Sequence[str] = ()
                if self.engine is not None:
                    claims = survey_index(self.engine, index, hides=self.old.has_secrets).claims
                yield _Resolver(called, index, claims)

    def _resolver_stub(self, one: _Resolver) -> str:
        table = one.index.table
        record = self._type(table.form.value_type)
        what = (
            f"Return a record of {table.name} as it shall be that claims what an earlier one has in {one.index.name}."
        )
        notes = ["It keeps its key; None: the record is removed.", *one.claims]
        return self._drafted(
            f"def {one.name}(key: {self._key_type(table)}, record: {record}) -> {record} | None:", what, notes
        )

    # ---- the declaration ---------------------------------------------------------------------------------------------------

    def _declaration(
        self, changes: Sequence[LayoutChange], functions: Sequence[_Function], resolvers: Sequence[_Resolver]
    ) -> Iterator[str]:
        yield "migration = Migration("
        yield f"    old=KeptLayout({_quoted(self.before.name)}, {_quoted(self.before.fingerprint)}),"
        yield f"    new=KeptLayout({_quoted(self.after.name)}, {_quoted(self.after.fingerprint)}),"
        if self.renames:
            yield "    # the same under another name"
            yield "    renames={"
            yield from (f"        {_quoted(old)}: {_quoted(new)}," for old, new in self.renames.items())
            yield "    },"
        yield from self._dropped(changes, functions)
        plain = [function for function in functions if not function.is_keyed]
        if plain:
            yield "    conversions={"
            for one in plain:
                yield f"        {_quoted(one.new.name)}: Conversion({one.name}, {_quoted(self._function(one))}),"
            yield "    },"
        keyed = [function for function in functions if function.is_keyed]
        if keyed:
            yield "    transforms=("
            for one in keyed:
                names = f"of=({_quoted(one.old.name)},), into=({_quoted(one.new.name)},)"
                yield f"        Transform({one.name}, {_quoted(self._function(one))}, {names}),"
            yield "    ),"
        yield from self._resolved(resolvers)
        if self.accepts:
            yield "    accepts=("
            for name in self.accepts:
                kind, colon, _ = name.partition(":")
                meaning = _CONSENTS.get(kind, "") if colon else CHANGE_CODES.get(name, "")
                yield from _comment(meaning or "no consent that keyplan knows", "        ")
                yield f"        {_quoted(name)},"
            yield "    ),"
        yield ")"

    def _resolved(self, resolvers: Sequence[_Resolver]) -> Iterator[str]:
        """What becomes of records that claim one entry: by functions where there are such, else as a comment."""
        known = [one for one in resolvers if one.claims]
        if known:
            yield "    resolutions={"
            yield from (f"        {self._resolution(one)}," for one in known)
            yield "    },"
        for one in resolvers:
            if not one.claims:
                what = f"{one.index.name} is unique and new. Where two records claim one entry, a function of key and record"
                yield from _comment(
                    f"{what} returns the later one as it shall be, or None: it is removed. Then:", "    "
                )
                yield f"    # resolutions={{{_prose(self._resolution(one))}}},"

    def _resolution(self, one: _Resolver) -> str:
        return f"{_quoted(one.index.name)}: Resolution({one.name}, {_quoted(f'{self.stem}:{one.name}')})"

    def _dropped(self, changes: Sequence[LayoutChange], functions: Sequence[_Function]) -> Iterator[str]:
        """What is lost, each by name: what was consented to, and what somebody has to decide."""
        handled = {id(change) for function in functions for change in function.changes}
        own = {self._drop(change): change for change in changes if change.code in ("E5", "E16", "E10", "E11")}
        open_ones = {
            name: change
            for name, change in own.items()
            if change.impact is Impact.BREAKING and id(change) not in handled and name not in self.drops
            if change.loses_values or change.code in ("E5", "E16")
        }
        if not self.drops and not open_ones:
            return
        yield "    drops=("
        for name in self.drops:
            yield from _comment(own[name].message if name in own else "nothing of this name is lost", "        ")
            yield f"        {_quoted(name)},"
        for name, change in open_ones.items():
            yield from _comment(f"To decide: {change.message}. With the next line it is consented to.", "        ")
            yield f"        # {_prose(_quoted(name))},"
        yield "    ),"

    @staticmethod
    def _drop(change: LayoutChange) -> str:
        return f"{change.item}.{change.field}" if change.field else change.item

    def _function(self, function: _Function) -> str:
        return f"{self.stem}:{function.name}"

    # ---- above it ----------------------------------------------------------------------------------------------------------

    def _docstring(self, plan: MigrationPlan, changes: Sequence[LayoutChange]) -> str:
        lines = [f'"""Migration {self.stem}: from {_prose(str(self.before))} to {_prose(str(self.after))}.', ""]
        lines.append("What changes, as `keyplan diff` says it:")
        lines.append("")
        for change in changes:
            about = change.subject or "layout"
            lines += _wrapped(f"{change.code} {change.impact.value} {about}: {change.message}", "  ")
        for phase in MigrationPhase:
            steps = [step for step in plan.steps if step.phase is phase]
            if steps:
                lines += ["", f"{_COMMANDS[phase]}, {phase.value}:", ""]
            for step in steps:
                lines += _wrapped(f"{step.item}: {step.what}", "  ")
        counted = self._counted(plan)
        if counted:
            lines += ["", "Records in the store when this was written:", "", *counted]
        if plan.obstacles:
            lines += ["", "To decide before it is run:", ""]
            lines += [line for obstacle in plan.obstacles for line in _wrapped(obstacle, "  ")]
        lines.append('"""')
        # Why raw: a key is shown with escapes where it is no text.
        return ("r" if any("\\" in line for line in lines) else "") + "\n".join(lines) + "\n"

    def _plan(self, functions: Sequence[_Function]) -> MigrationPlan:
        """The plan for a store in which nothing is stored: the steps, and what the layouts alone have against it."""
        conversions = {
            one.new.name: Conversion(lambda record: record, self._function(one))
            for one in functions
            if not one.is_keyed
        }
        transforms = [
            Transform(Keyed, self._function(one), of=(one.old.name,), into=(one.new.name,))
            for one in functions
            if one.is_keyed
        ]
        return plan_migration(
            MemoryEngine(),
            self.old,
            self.new,
            renames=self.renames,
            drops=self.drops,
            conversions=conversions,
            transforms=transforms,
            accepts=self.accepts,
        )

    def _counted(self, plan: MigrationPlan) -> list[str]:
        if self.engine is None:
            return []
        with self.engine.snapshot() as snapshot:
            counts = {name: snapshot.count(KeyRange(*table.keys.range(()))) for name, table in self.old.tables.items()}
        concerned = {table.name for work in plan.tables for table in work.route.sources} | set(plan.tables_to_remove)
        return [f"  {_prose(name)}: {counts[name]}" for name in self.old.tables if name in concerned]

    def _imported(self, functions: Sequence[_Function], resolvers: Sequence[_Resolver]) -> str:
        names = {"KeptLayout", "Migration"}
        if any(one.claims for one in resolvers):
            names |= {"Resolution", "unwritten"}
        for function in functions:
            names |= {"Keyed", "Transform", "unwritten"} if function.is_keyed else {"Conversion", "unwritten"}
        lines = ["from typing import Any", ""] if self.is_any_used else []
        lines += sorted(f"import {module}" for module in self.imports)
        lines += [""] if self.imports else []
        return (
            "\n".join([*lines, f"from keyplan.maintenance import {', '.join(sorted(names, key=_import_order))}"]) + "\n"
        )

    # ---- types ---------------------------------------------------------------------------------------------------------------

    def _key_type(self, table: BoundTable) -> str:
        shape = table.keys.shape
        if shape.is_scalar:
            return shape.type_name if shape.type_name in _BUILTINS else self._any()
        return self._type(shape.make) if isinstance(shape.make, type) else f"tuple[{self._any()}, ...]"

    def _type(self, kind: Any) -> str:
        """The type as the file spells it; Any where it has no name that can be imported."""
        if kind is None or kind is type(None):
            return "None"
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            return " | ".join(map(self._type, arguments))
        if origin is not None and arguments:
            inner = ", ".join("..." if one is Ellipsis else self._type(one) for one in arguments)
            return f"{self._type(origin)}[{inner}]"
        if not isinstance(kind, type) or "<" in kind.__qualname__:
            return self._any()
        if kind.__module__ == "builtins":
            return kind.__name__
        self.imports.add(kind.__module__)
        return f"{kind.__module__}.{kind.__qualname__}"

    def _any(self) -> str:
        self.is_any_used = True
        return "Any"


_BUILTINS: Final = frozenset({"str", "int", "bytes", "bool", "float"})

_COMMANDS: Final = {
    MigrationPhase.FILL: "`keyplan migrate run`",
    MigrationPhase.SWITCH: "`keyplan migrate switch`",
    MigrationPhase.CONTRACT: "`keyplan migrate finish`",
}


def _import_order(name: str) -> tuple[bool, str]:
    return name.islower(), name


def _identifier(name: str, taken: Collection[str]) -> str:
    """The name of a function for a table, which no other name of the file has."""
    found = re.sub(r"\W", "_", name, flags=re.ASCII) or "table"
    if found[0].isdigit() or keyword.iskeyword(found) or found in ("migration", "unwritten"):
        found = f"make_{found}"
    while found in taken:
        found += "_"
    return found


def _quoted(text: str) -> str:
    return json.dumps(text)


def _prose(text: str) -> str:
    """Text as a comment or a docstring may have it: of one line, and without what would end it."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
    return shown.replace('"""', "'''")


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        _prose(text), _WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        _prose(text), _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}#   ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
