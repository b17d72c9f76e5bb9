"""What layouts take from elsewhere: odd parameters, deep records, large bounds, names that mean something already."""

import json
from typing import Any
from uuid import UUID

import msgspec
import pytest

from keyplan.codec import RawUuid, SingleFloat, Versionstamp, element_of_spec
from keyplan.engine import MemoryEngine
from keyplan.errors import CorruptionError, InvalidKeyError, TemplateError
from keyplan.layout import (
    Counter,
    Index,
    Layout,
    Parameter,
    Table,
    describe,
    differences,
    layout_of_description,
    line_of_value,
    lint,
    plain_value,
    rewrite_embedded_keys,
)
from keyplan.store import Store
from tests.maintenance.inference.foreign_stores import inferred

TENANT = UUID(int=5)


class Node(msgspec.Struct):
    next: str = ""


class Linked(Layout, root="old/"):
    nodes = Table("n/{name}", key=str, value=Node, holds_keys=("next",))


def moved(key: bytes) -> bytes:
    return b"new/" + key.removeprefix(b"old/")


def test_embedded_keys_are_rewritten_by_a_layout_that_came_as_data() -> None:
    described = layout_of_description(describe(Linked.spec))
    raw = b'{"next":"old/n/b"}'
    assert rewrite_embedded_keys(described.tables["nodes"], raw, moved) == b'{"next":"new/n/b"}'


def test_embedded_keys_in_values_of_an_unknown_form_are_refused() -> None:
    description = describe(Linked.spec)
    description["items"][0]["value"] = {"form": "strange"}
    with pytest.raises(CorruptionError, match="strange"):
        rewrite_embedded_keys(layout_of_description(description).tables["nodes"], b"old/n/b", moved)


def test_a_root_parameter_of_any_type_is_described_and_paged() -> None:
    class Tenants(Layout, root=b"{tenant}"):
        tenant = Parameter(TENANT, element=RawUuid())
        rows = Table(b"r{name}", key=str, value=str)

    described = json.loads(json.dumps(describe(Tenants.spec)))
    assert layout_of_description(described).parameters == {"tenant": TENANT}
    tenants = Tenants(Store(MemoryEngine()))
    for name in "abc":
        tenants.rows.insert(name, "x")
    page = tenants.rows.page(limit=2)
    assert [key for key, _ in tenants.rows.page(limit=2, token=page.next_token).records] == ["c"]


def test_a_docstring_changes_no_fingerprint() -> None:
    def made(note: str) -> type[Layout]:
        record = msgspec.defstruct("Note", [("description", str), ("inner", Node)], namespace={"__doc__": note})

        class Notes(Layout, root="n/"):
            notes = Table("{name}", key=str, value=record)

        return Notes

    first, second = made("One."), made("Another.")
    assert first.bound().fingerprint == second.bound().fingerprint
    renamed = msgspec.defstruct("Note", [("text", str), ("inner", Node)])

    class Other(Layout, root="n/"):
        notes = Table("{name}", key=str, value=renamed)

    assert Other.bound().fingerprint != first.bound().fingerprint


def test_a_large_bound_on_a_name_exhausts_nothing() -> None:
    def named(bytes_max: int) -> type[Layout]:
        class Made(Layout, root="b/"):
            rows = Table(f"{{name:text(bytes_max={bytes_max})}}", key=str, value=str)

        return Made

    assert lint(named(1_000_000).spec).of_rule("L1") == ()
    (change,) = [one for one in differences(named(1_000_000), named(999_999)) if one.code == "E6"]
    assert "undecided" in change.message


@pytest.mark.parametrize(
    "spec",
    [
        "text(empty='false')",
        "text(dots='no')",
        "tail(empty='x')",
        "directory(leading='x')",
        "text(bytes_max=4,bytes_max=9)",
    ],
)
def test_a_parameter_of_another_type_or_given_twice_is_refused(spec: str) -> None:
    with pytest.raises(TemplateError):
        element_of_spec(spec)


@pytest.mark.parametrize("make", [lambda: SingleFloat(1e39), lambda: Versionstamp("0123456789")])  # type: ignore[arg-type]  # Why: refused.
def test_a_tuples_item_that_does_not_fit_is_refused_by_name(make: Any) -> None:
    with pytest.raises(InvalidKeyError):
        make()


def test_a_class_that_sets_an_item_to_none_has_it_no_more() -> None:
    class Cities(Layout, root="c/"):
        rows = Table("r/{name}", key=str, value=Node)
        by_next = Index("n/{next}/{name}", of=rows, key=str)

    class Plain(Cities, root="c/"):
        by_next = None  # type: ignore[assignment]  # Why: that is how an item is left out.

    assert [item.name for item in Plain.spec.items] == ["rows"]


def test_a_commit_at_a_counters_key_by_a_table_is_explained() -> None:
    class Colliding(Layout, root="o/"):
        number = Counter("n")
        rows = Table("{name}", key=str, value=str)

    store = Store(MemoryEngine())
    with store.transaction() as transaction:
        Colliding(transaction).rows.put("n", "hello")
        assert "o/n" in str(transaction.explained())


def test_a_deeply_nested_record_is_a_line() -> None:
    deep = json.loads("[" * 700 + "]" * 700)
    assert line_of_value(plain_value(deep)).count("[") == 33
    assert "..." in line_of_value(plain_value({"a": deep}))


def test_a_record_beyond_the_stack_is_a_fault_and_no_crash() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(CorruptionError, match="nested too deeply"):
        plain_value(deep)


@pytest.mark.parametrize("word", ["str", "int", "list", "object", "dict", "bytes", "float", "bool", "Any", "msgspec"])
def test_an_inferred_module_uses_no_name_of_its_own_for_a_field(word: str) -> None:
    keys = {
        f"/{word}/{number}".encode(): json.dumps(
            {word: [number], "other": ["a"], "more": {"a": 1}, "n": number}
        ).encode()
        for number in range(4)
    }
    module: dict[str, Any] = {}
    exec(inferred(keys).python, module)  # Why: that it can be imported is what is tested.
