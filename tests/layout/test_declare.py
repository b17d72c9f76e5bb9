"""A layout class is checked when it is made, and each mistake is an error that points at it."""

from typing import Annotated, Any, NamedTuple
from uuid import UUID

import msgspec
import pytest

from keyplan.codec import U64, Decimal, HexUuid, Text
from keyplan.errors import InvalidKeyError, KeyplanError, LayoutError, TemplateError, UnknownNameError
from keyplan.layout import Counter, Index, Layout, Only, Parameter, Table, Unique
from keyplan.limits import COMPILED_ROOTS_MAX
from tests.layout.layouts import Blade, Physics, Site


class Thing(msgspec.Struct):
    name: str
    tags: list[str] = []
    others: list[str] = []


class Pair(NamedTuple):
    left: str
    right: Annotated[int, Decimal(width=3)]


def test_items_stand_in_the_order_declared() -> None:
    assert [item.name for item in Site.spec.items] == [
        "racks", "blades", "by_serial", "by_arch", "by_tag", "by_note", "by_label", "port",
    ]  # fmt: skip


def test_the_first_paragraph_of_the_docstring_is_the_layouts_note() -> None:
    assert Site.spec.note == "A small site."


def test_codecs_come_from_the_template_the_annotation_or_the_type() -> None:
    class Mixed(Layout):
        a = Table("a/{left}/{right}", key=Pair, value=str)
        b = Table("b/{id}", key=UUID, value=str)
        c = Table("c/{n:decimal(width=4)}", key=int, value=str)

    sources = [item.template.source for item in Mixed.spec.items]
    assert sources == ["a/{left:text}/{right:decimal(width=3)}", "b/{id:hex_uuid}", "c/{n:decimal(width=4)}"]


def test_a_bytes_template_makes_a_binary_layout() -> None:
    assert not Physics.spec.is_text
    assert Physics.bound().tables["runs"].keys.template.width_of_fields() == (16, 8)


def test_a_layout_inherits_items_and_root() -> None:
    class Larger(Site):
        extra = Table("extra/{name}", key=str, value=str)

    assert Larger.spec.root == Site.spec.root
    assert Larger.spec.version == 3
    assert [item.name for item in Larger.spec.items][-1] == "extra"


def test_a_template_without_fields_has_the_key_only() -> None:
    class Small(Layout):
        bootstrap = Table("bootstrap", key=Only, value=bytes)

    assert Small.bound().tables["bootstrap"].keys.encode(Only()) == b"bootstrap"
    assert Small.bound().tables["bootstrap"].keys.decode(b"bootstrap") == Only()


def made(**items: Any) -> type[Layout]:
    return type("Made", (Layout,), items)


@pytest.mark.parametrize(
    ("items", "error", "item"),
    [
        ({"t": Table("t/{a}/{b}", key=str, value=str)}, LayoutError, "t"),
        ({"t": Table("t", key=str, value=str)}, LayoutError, "t"),
        ({"t": Table("t/{right}/{left}", key=Pair, value=str)}, LayoutError, "t"),
        ({"t": Table("t/{left}", key=Pair, value=str)}, LayoutError, "t"),
        ({"t": Table("t/{a}", key=float, value=str)}, LayoutError, "t"),
        ({"t": Table("t/{a:u64}", key=str, value=str)}, LayoutError, "t"),
        ({"t": Table("t/{a.level:u8}/{a}", key=str, value=str)}, TemplateError, "t"),
        ({"t": Table("t/{a.level:u8}", key=str, value=str)}, LayoutError, "t"),
        ({"t": Table(b"t/{a}", key=str, value=str), "s": Table("s/{a}", key=str, value=str)}, TemplateError, "s"),
        ({"t": Table("t/{a}", key=str, value=str, place="b")}, UnknownNameError, "t"),
        ({"c": Counter("c/{a}")}, LayoutError, "c"),
        ({"c": Counter("c", start=-1)}, LayoutError, "c"),
    ],
)
def test_a_wrong_item_is_named_with_its_layout(items: dict[str, Any], error: type[KeyplanError], item: str) -> None:
    with pytest.raises(error) as caught:
        made(**items)
    assert caught.value.facts["layout"] == "Made"
    assert caught.value.facts["item"] == item


THINGS = Table("things/{id}", key=int, value=Thing)


@pytest.mark.parametrize(
    "index",
    [
        Unique("by/{nothing}", of=THINGS, key=str),
        Unique("by/{name}", of=THINGS, key=Pair),
        Unique("by/{name}", of=THINGS, key=str, bind={"other": "name"}),
        Unique("by/{n}", of=THINGS, key=str, bind={"n": "nothing"}),
        Unique("by/{n}", of=THINGS, key=str, on=lambda _k, r: r.name),
        Index("by/{name}", of=THINGS, key=str),
        Index("by/{id}/{name}", of=THINGS, key=int),
        Index("by/{a}/{b}/{id}", of=THINGS, key=Pair, each={"a": "tags", "b": "others"}),
        Index("by/{tag}/{id}", of=THINGS, key=str, each={"tag": "nothing"}),
        Index("by/{name}/{id}", of=THINGS, key=str, when={"name": 1.5}),
    ],
)
def test_a_wrong_index_is_refused_when_the_class_is_made(index: Any) -> None:
    with pytest.raises(LayoutError) as caught:
        made(things=THINGS, by=index)
    assert caught.value.facts["layout"] == "Made"


def test_an_index_of_a_table_elsewhere_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="declare the table first"):
        made(by=Unique("by/{name}", of=Table("elsewhere/{id}", key=int, value=Thing), key=str))


@pytest.mark.parametrize("name", ["transaction", "run", "spec", "_hidden"])
def test_keyplans_own_names_are_refused(name: str) -> None:
    with pytest.raises(LayoutError, match="keyplan's own"):
        made(**{name: Table("t/{a}", key=str, value=str)})


def test_a_parameter_that_the_root_does_not_have_is_refused() -> None:
    with pytest.raises(LayoutError, match="no field of this parameter"):
        made(area=Parameter("x"))


@pytest.mark.parametrize("parameters", [{"aera": "x"}, {"area": 7}, {"area": "\x00"}])
def test_a_root_parameter_that_does_not_fit_is_refused(parameters: dict[str, object]) -> None:
    with pytest.raises(InvalidKeyError):
        Site.bound(**parameters)


def test_a_root_parameter_without_default_must_be_given() -> None:
    class Tenant(Layout, root="{tenant}/"):
        things = Table("things/{id}", key=int, value=str)

    with pytest.raises(InvalidKeyError, match="has no value"):
        Tenant.bound()
    assert Tenant.bound(tenant="t1").tables["things"].keys.encode(5) == b"t1/things/5"


def test_elements_in_annotations_reach_the_template() -> None:
    class Key(NamedTuple):
        id: Annotated[UUID, HexUuid()]
        name: Annotated[str | None, Text(exclude=":")]
        number: Annotated[int, U64()]

    class Annotations(Layout):
        things = Table("{id}:{name}:{number}", key=Key, value=str)

    assert Annotations.spec.tables["things"].template.source == "{id:hex_uuid}:{name:text(exclude=':')}:{number:u64}"


def test_a_layout_bound_again_under_the_same_root_is_not_compiled_again() -> None:
    assert Site.bound(area="a/") is Site.bound(area="a/")
    assert Site.bound(area="a/") is not Site.bound(area="b/")


def test_no_more_than_a_bounded_number_of_roots_is_kept() -> None:
    class Small(Layout, root="/{area}/"):
        things = Table("{thing}", key=str, value=str)

    first = Small.bound(area="first")
    for number in range(COMPILED_ROOTS_MAX - 1):
        Small.bound(area=str(number))
    assert Small.bound(area="first") is first
    for number in range(COMPILED_ROOTS_MAX):
        Small.bound(area=str(number))
    assert Small.bound(area="first") is not first
    assert Small.bound(area="first").root == first.root == b"/first/"


def test_a_root_parameter_that_cannot_be_hashed_is_refused_by_its_codec() -> None:
    with pytest.raises(InvalidKeyError):
        Site.bound(area=["a"])


def test_a_condition_on_an_attribute_that_records_do_not_have_is_refused() -> None:
    with pytest.raises(LayoutError) as caught:

        class Misspelled(Layout):
            blades = Table("b/{id}", key=str, value=Blade)
            by_serial = Index("s/{serial}/{id}", of=blades, key=str, when={"stat": "on"})

    assert caught.value.facts["problem"] == "Blade has no attribute 'stat'"
    assert (caught.value.facts["layout"], caught.value.facts["item"]) == ("Misspelled", "by_serial")


def test_a_condition_may_stand_on_what_a_property_computes() -> None:
    class Named(msgspec.Struct):
        name: str

        @property
        def is_short(self) -> bool:
            return len(self.name) < 4

    class Computed(Layout):
        things = Table("t/{id}", key=str, value=Named)
        short = Index("s/{name}/{id}", of=things, key=str, when={"is_short": True})

    entries = Computed.bound().indexes["short"].entries
    assert (entries("k", Named("abc")), entries("k", Named("abcd"))) == (((b"s/abc/k", b""),), ())


@pytest.mark.parametrize("options", [{"when": {"state": "on"}}, {"each": {"serial": "tags"}}])
def test_an_index_with_a_function_takes_no_conditions_that_nobody_would_ask(options: dict[str, Any]) -> None:
    with pytest.raises(LayoutError, match="takes no when= and no each="):

        class Both(Layout):
            blades = Table("b/{id}", key=str, value=Blade)
            by_serial = Index(
                "s/{serial}/{id}", of=blades, key=str, on=lambda _key, blade: blade.serial, version=1, **options
            )
