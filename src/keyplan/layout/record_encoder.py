"""Everything that one record is in a store, as bytes: its key, its value, its index entries. Compiled for each table.

It says what `keys.encode`, `form.encode` and each index's `entries` say one by one, and tests hold it against these. Why once
more, in one function: a write asks for all of them. Here a field is read once and checked once, however many keys it stands in,
and no call stands between them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from keyplan.codec import ValueForm
from keyplan.layout.compile import CompiledKeys
from keyplan.layout.components import item_class
from keyplan.layout.entries import NOT_OF_CODE, EntryMaker, members, picker, read_expression, reader_of, refused_by_code
from keyplan.layout.generated import REFUSALS, KeyExpression, generated_function, key_expression
from keyplan.layout.sealing import TableSeal
from keyplan.layout.spec import Component, IndexSpec, Origin, TableSpec

__all__ = ["EncodedRecord", "RecordEncoder", "compile_record_encoder"]

IndexT = TypeVar("IndexT", bound="CompiledIndex")
IndexEntryT = TypeVar("IndexEntryT")

EncodedRecord: TypeAlias = tuple[bytes, bytes, dict[bytes, IndexEntryT], dict[bytes, IndexEntryT]]
"""Raw key and value of a record; its index entries by raw key; and of these the ones of unique indexes."""

RecordEncoder: TypeAlias = Callable[..., EncodedRecord[IndexEntryT]]
"""`(key, record)`, or `(key, record, raw_value)` for a record that is stored already, and need not be encoded again."""


class CompiledIndex(Protocol):
    """What is read of an index."""

    @property
    def spec(self) -> IndexSpec: ...

    @property
    def keys(self) -> CompiledKeys: ...

    @property
    def entries(self) -> EntryMaker: ...


def compile_record_encoder(
    table: TableSpec,
    keys: CompiledKeys,
    form: ValueForm[Any],
    indexes: Sequence[IndexT],
    pointed: slice,
    make_entry: Callable[[IndexT, bytes], IndexEntryT],
    seal: TableSeal | None = None,
) -> RecordEncoder[IndexEntryT]:
    """Return the function that gives a record, encoded. It raises InvalidKeyError and InvalidRecordError.

    `pointed` is the part of the raw primary key that unique entries hold; `make_entry` is given an index and a raw value;
    `seal` writes the values of a table with secrets.
    """
    scope: dict[str, object] = {
        "encode_key": keys.encode,
        "encode_value": form.encode if seal is None else seal.encode,
        "items": members,
        "plain": frozenset({list, tuple}),
        "refusals": REFUSALS,
        "pointed": pointed,
        "make_entry": make_entry,
    }
    if indexes:
        scope["read"] = reader_of(table)
    for number, index in enumerate(indexes):
        # Why made once: the entries of a plain index are all empty, and so one and the same.
        scope |= {
            f"index{number}": index,
            f"encode{number}": index.keys.encode,
            f"plain{number}": make_entry(index, b""),
        }
    # Why the key too: a sealed secret is bound to its record.
    value = "encode_value(record)" if seal is None else "encode_value(key, record)"
    return _Writing(table, keys, indexes, scope).function(value)


class _Writing:
    """The lines of one function, as they are written. v0, v1, ... are values; c0, c1, ... say whether a check holds of one.

    A check is done when its value is read, and asked for by each key; s0, s1, ... are values spelled otherwise than they are,
    a UUID for one, for all keys that they stand in. What only some records have, because an index has a condition, is read and
    checked under that condition.
    """

    def __init__(
        self, table: TableSpec, keys: CompiledKeys, indexes: Sequence[CompiledIndex], scope: dict[str, object]
    ) -> None:
        self._table, self._keys, self._indexes, self._scope = table, keys, indexes, scope
        self._lines: list[str] = []
        self._values: dict[str, str] = {}  # by the expression that reads it
        self._checks: dict[str, str] = {}  # by the check
        self._spellings: dict[tuple[str, str], str] = {}  # by what an f-string has between its braces, and its check

    def function(self, value: str) -> RecordEncoder[Any]:
        self._write_key()
        self._write(0, f"if raw_value is None: raw_value = {value}", "index_entries = {}", "unique = {}")
        for number, index in enumerate(self._indexes):
            self._write_index(number, index)
        self._write(0, "return raw_key, raw_value, index_entries, unique")
        # Why around it all: a property, an iterator, a comparison is the application's code, and raises what it likes.
        body = "\n".join("    " + line for line in self._lines)
        ends = "    except ours: raise\n    except Exception as error: raise refused(error, key) from error\n"
        source = f"def encoded_record(key, record, raw_value=None):\n    try:\n{body}\n{ends}"
        self._scope |= {"ours": NOT_OF_CODE, "refused": partial(refused_by_code, self._table.name, None)}
        return generated_function("encoded_record", source, self._scope)

    def _write(self, depth: int, *lines: str) -> None:
        self._lines += ["    " * (depth + 1) + line for line in lines]

    # ---- the record's own key --------------------------------------------------------------------------------------------

    def _write_key(self) -> None:
        names = self._keys.template.field_names
        variables = {name: f"v{number}" for number, name in enumerate(names)}
        self._values = {self._key_part(name): variable for name, variable in variables.items()}
        unpacked = "v0 = key" if self._table.key.is_scalar else "".join(f"{v}, " for v in variables.values()) + "= key"
        template = self._keys.template
        expression = (
            key_expression(template, variables.__getitem__, tag="_key", spelling=self._spelling) if names else None
        )
        if expression is None:
            self._forget_spellings(0)
            self._write(0, "raw_key = encode_key(key)", *([unpacked] if names else []))
            return
        self._scope.update(expression.names)
        self._checks = {check: f"c{number}" for number, check in enumerate(dict.fromkeys(expression.checks))}
        self._write(0, "try:")
        if not self._table.key.is_scalar:
            self._write(1, "if not isinstance(key, tuple): raise TypeError")
        self._write(1, unpacked, *(f"{held} = {check}" for check, held in self._checks.items()))
        self._write_spellings(1, 0)
        self._write(1, f"raw_key = {expression.raw} if {self._held(expression)} else None")
        self._write(0, "except refusals:")
        self._write(1, "raw_key = None", *(f"{held} = False" for held in self._checks.values()))
        self._write(1, *(f"{held} = None" for held in self._spellings.values()))
        self._write(0, "if raw_key is None:")
        self._write(1, "raw_key = encode_key(key)", unpacked)

    def _key_part(self, name: str) -> str:
        return "key" if self._table.key.is_scalar else f"key[{self._keys.template.field_names.index(name)}]"

    # ---- index entries ---------------------------------------------------------------------------------------------------

    def _write_index(self, number: int, index: CompiledIndex) -> None:
        spec = index.spec
        kept = f"index_entries[raw] = plain{number}"
        if spec.is_unique:
            kept = f"unique[raw] = index_entries[raw] = make_entry(index{number}, raw_key[pointed])"
        if spec.function is not None or any(component.origin is Origin.FUNCTION for component in spec.components):
            self._scope[f"entries{number}"] = index.entries
            self._write(0, f"for raw, _ in entries{number}(key, record):", f"    {kept}")
            return
        depth = 0
        if spec.when:
            self._write(0, f"if {self._condition(number, spec)}:")
            depth = 1
        components = dict(zip(index.keys.template.field_names, spec.components, strict=True))
        variables = {
            name: self._variable(component, name, number, depth)
            for name, component in components.items()
            if component.origin is not Origin.EACH
        }
        fanned = {name: component for name, component in components.items() if component.origin is Origin.EACH}
        variables |= {name: f"i{number}_{name}" for name in fanned}
        known = len(self._spellings)
        spelling = self._known_spelling if spec.when else self._spelling
        expression = key_expression(index.keys.template, variables.__getitem__, tag=str(number), spelling=spelling)
        if expression is not None:
            self._scope.update(expression.names)
            if not spec.when:
                self._write_checks([check for check in expression.checks if f"i{number}_" not in check])
                self._write_spellings(0, known)
        else:
            self._forget_spellings(known)
        from_record = [variables[name] for name, component in components.items() if component.origin is Origin.RECORD]
        if from_record:
            self._write(depth, f"if {' and '.join(f'{variable} is not None' for variable in from_record)}:")
            depth += 1
        if fanned:
            depth = self._write_loop(number, fanned, depth)
        self._write_entry(number, index, [variables[name] for name in components], expression, depth)
        self._write(depth, kept)

    def _condition(self, number: int, spec: IndexSpec) -> str:
        tests = []
        for place, condition in enumerate(spec.when):
            self._scope[f"constant{number}_{place}"] = condition.constant
            holds = "==" if condition.is_equal else "!="
            tests.append(f"{read_expression(self._table, condition.path)} {holds} constant{number}_{place}")
        return " and ".join(tests)

    def _variable(self, component: Component, name: str, number: int, depth: int) -> str:
        """The variable that holds a field's value; written where it is not read yet."""
        is_of_key = component.origin is Origin.KEY
        reading = self._key_part(component.path) if is_of_key else read_expression(self._table, component.path)
        if reading not in self._values:
            variable = f"v{len(self._values)}" if depth == 0 else f"w{number}_{name}"
            self._write(depth, f"{variable} = {reading}")
            if depth:
                return variable  # Why not kept: other indexes are not under this condition.
            self._values[reading] = variable
        return self._values[reading]

    def _write_checks(self, checks: Sequence[str]) -> None:
        for check in checks:
            if check not in self._checks:
                held = self._checks[check] = f"c{len(self._checks)}"
                self._write(0, f"try: {held} = {check}", f"except refusals: {held} = False")

    def _spelling(self, field: str, check: str) -> str:
        """Return the variable of a spelling, where it is of a value that is read once; else the spelling itself."""
        if not field.startswith("v"):
            return field  # Why not kept: it is of an item.
        return self._spellings.setdefault((field, check), f"s{len(self._spellings)}")

    def _known_spelling(self, field: str, check: str) -> str:
        return self._spellings.get((field, check), field)

    def _forget_spellings(self, known: int) -> None:
        """Forget those that have come since there were so many: they are not written."""
        for spelling in list(self._spellings)[known:]:
            del self._spellings[spelling]

    def _write_spellings(self, depth: int, known: int) -> None:
        """Write those that have come since there were so many. Where its check does not hold, one is asked for by no key."""
        for (field, check), held in list(self._spellings.items())[known:]:
            self._write(depth, f'{held} = f"{{{field}}}" if {self._checks[check]} else None')

    def _held(self, expression: KeyExpression) -> str:
        """The expression's checks, by the variables of those that were done."""
        return " and ".join(self._checks.get(check, check) for check in expression.checks) or "True"

    def _write_loop(self, number: int, fanned: Mapping[str, Component], depth: int) -> int:
        (path,) = {component.path for component in fanned.values()}  # Invariant: declare.py refuses two collections.
        self._write(depth, f"found = {read_expression(self._table, path)}")
        self._write(depth, "for item in found if found.__class__ in plain else items(found):")
        for name, component in fanned.items():
            self._scope[f"pick{number}_{name}"] = picker(component)
            picked = "item" if component.item is None else f"pick{number}_{name}(item)"
            kind = item_class(component, self._table)
            if kind is not None:
                # Why the class: the picker asks whether an item is a mapping, which takes longer than all else of it.
                self._scope[f"kind{number}_{name}"] = kind
                picked = f"item.{component.item} if item.__class__ is kind{number}_{name} else {picked}"
            self._write(depth + 1, f"i{number}_{name} = {picked}", f"if i{number}_{name} is None: continue")
        return depth + 1

    def _write_entry(
        self, number: int, index: CompiledIndex, variables: Sequence[str], expression: KeyExpression | None, depth: int
    ) -> None:
        fields = ", ".join(variables)
        whole = f"encode{number}({fields if index.spec.key.is_scalar else f'({fields},)' if fields else '()'})"
        if expression is None:
            self._write(depth, f"raw = {whole}")
            return
        self._write(
            depth,
            f"try: raw = {expression.raw} if {self._held(expression)} else None",
            "except refusals: raw = None",
            f"if raw is None: raw = {whole}",
        )
