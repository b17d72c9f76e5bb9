"""Compiled templates encode, decode and bound exactly, and name what does not fit."""

import re
import time
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan.codec import Element, registered_elements
from keyplan.errors import InvalidKeyError
from keyplan.layout import (
    CompiledKeys,
    Field,
    KeyShape,
    Kind,
    Layout,
    Literal,
    Only,
    Table,
    Template,
    compile_keys,
    template_of_source,
)
from keyplan.layout.compile import _slow_encoder
from keyplan.testing.strategies import element_values
from tests.layout.layouts import BladeKey, Physics, RunKey, Site

BLADES = Site.bound(area="north/").tables["blades"].keys
RUNS = Physics.bound().tables["runs"].keys
DATASETS = Physics.bound().tables["datasets"].keys
LAST_UUID = UUID(int=2**128 - 1)


def test_a_text_key_is_the_root_the_literals_and_the_fields() -> None:
    assert BLADES.encode(BladeKey("r1", 7)) == b"/site/north/rack/r1/blades/7"


def test_a_binary_key_without_fields_is_its_literal_bytes() -> None:
    class Marked(Layout, root=b"\xfe"):
        mark = Table(b"\xff'\"\\\n", key=Only, value=bytes)

    keys = Marked.bound().tables["mark"].keys
    assert keys.encode(Only()) == keys.prefix(()) == b"\xfe\xff'\"\\\n"
    assert keys.decode(keys.encode(Only())) == Only()


def test_a_binary_key_packs_its_fields_big_endian() -> None:
    assert RUNS.encode(RunKey(LAST_UUID, 300)) == b"r" + b"\xff" * 16 + bytes.fromhex("000000000000012c")


def test_a_derived_level_stands_before_its_path() -> None:
    assert DATASETS.encode("aaa/bbb/ccc") == b"d\x02aaa/bbb/ccc"


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        (b"/site/north/rack/r1/blades/7", BladeKey("r1", 7)),
        ("/site/north/rack/ü\"'{}\\/blades/0".encode(), BladeKey("ü\"'{}\\", 0)),
        (b"/site/north/rack/r1/blades/07", None),
        (b"/site/north/rack/r1/blades/", None),
        (b"/site/north/rack/r1/blades/10000001", None),
        (b"/site/north/rack/../blades/1", None),
        (b"/site/north/rack/a/b/blades/1", None),
        (b"/site/north/rack/\xff/blades/1", None),
        (b"/site/south/rack/r1/blades/7", None),
        (b"/site/north/rack/" + b"x" * 256 + b"/blades/1", None),
        (b"/site/north/rack/" + b"x" * 255 + b"/blades/1", BladeKey("x" * 255, 1)),
    ],
)
def test_decoding_gives_the_key_or_none(raw: bytes, key: object) -> None:
    assert BLADES.decode(raw) == key


@pytest.mark.parametrize("raw", [b"d\x01aaa", b"d\x00a/b", b"d\x02a//b", b"d\x00", b"", b"x\x00a"])
def test_a_level_that_does_not_match_its_path_does_not_decode(raw: bytes) -> None:
    assert DATASETS.decode(raw) is None


@pytest.mark.parametrize(
    ("key", "field", "problem"),
    [
        (("a/b", 1), "rack", "may not occur"),
        (("", 1), "rack", "empty"),
        (("a", -1), "blade", "out of range"),
        (("a", True), "blade", "not an integer"),
        (("a", "1"), "blade", "not an integer"),
        ((b"a", 1), "rack", ""),
    ],
)
def test_a_field_that_does_not_fit_is_named(key: tuple[object, ...], field: str, problem: str) -> None:
    with pytest.raises(InvalidKeyError) as caught:
        BLADES.encode(key)
    assert caught.value.facts["field"] == field
    assert problem in str(caught.value.facts["problem"])


@pytest.mark.parametrize("key", ["ab", ("a",), ("a", 1, 2), None, 7, ["a", 1]])
def test_a_key_of_another_shape_is_refused(key: object) -> None:
    with pytest.raises(InvalidKeyError):
        BLADES.encode(key)


def test_a_list_ends_at_the_separator() -> None:
    assert BLADES.range(("r1",)) == (b"/site/north/rack/r1/blades/", b"/site/north/rack/r1/blades0")


def test_a_list_of_the_whole_key_is_that_key_alone() -> None:
    assert BLADES.range(("r1", 7)) == (b"/site/north/rack/r1/blades/7", b"/site/north/rack/r1/blades/7\x00")


def test_a_prefix_of_ff_bytes_ends_at_its_successor_and_not_at_ff() -> None:
    assert RUNS.range((LAST_UUID,)) == (b"r" + b"\xff" * 16, b"s")
    assert RUNS.range((UUID(int=255),)) == (b"r" + bytes(15) + b"\xff", b"r" + bytes(14) + b"\x01")


def test_starts_with_is_a_deliberate_partial_match() -> None:
    assert BLADES.range((), starts_with="r1") == (b"/site/north/rack/r1", b"/site/north/rack/r2")


def test_bounds_narrow_a_field_that_keeps_order() -> None:
    start, end = RUNS.range((UUID(int=0),), at_least=3, below=258)
    assert start == b"r" + bytes(16) + bytes(7) + b"\x03"
    assert end == b"r" + bytes(16) + bytes(6) + b"\x01\x02"


@pytest.mark.parametrize(
    ("prefix", "bounds"),
    [
        ((), {"at_least": "a"}),
        (("r1",), {"below": 5}),
        (("r1", 2), {"starts_with": "x"}),
        (("r1", 2, 3), {}),
        (("r1",), {"starts_with": 1}),
        ((), {"starts_with": "a", "below": "b"}),
    ],
)
def test_a_bound_that_cannot_be_kept_is_refused(prefix: tuple[object, ...], bounds: dict[str, object]) -> None:
    with pytest.raises(InvalidKeyError):
        BLADES.range(prefix, **bounds)


def test_generated_code_does_not_depend_on_what_the_literals_spell() -> None:
    odd = "\"'\\{}\n%s{name}\u2028é"
    keys = compile_keys(
        Template((Literal(odd.encode()), Field("name", None, registered_elements()["text"]())), is_text=True),
        KeyShape("str", is_scalar=True, make=str),
    )
    assert keys.encode("x") == odd.encode() + b"x"
    assert keys.decode(odd.encode() + b"x") == "x"


_NEEDS_ARGUMENTS = {"enclosed", "fixed", "word"}
_CODES = [code for code in registered_elements() if code not in _NEEDS_ARGUMENTS]


@st.composite
def _template_and_values(draw: st.DrawFn) -> tuple[Template, tuple[object, ...]]:
    """Elements of any kind, told apart by their place: all but the last of fixed width, or text before a slash."""
    is_text = draw(st.booleans())
    made: list[Element[Any]] = []
    for place in range(draw(st.integers(1, 3))):
        codes = _CODES if place == 0 else ["u8", "u64", "i32", "raw_uuid", "hex_uuid", "decimal", "text"]
        made.insert(0, registered_elements()[draw(st.sampled_from(codes))]())
    parts: list[Literal | Field] = []
    for number, element in enumerate(made):
        parts += [Literal(b"/"), Field(f"f{number}", None, element)]
    values = tuple(draw(element_values(element)) for element in made)
    return Template(tuple(parts), is_text), values


@given(_template_and_values())
def test_compiled_functions_agree_with_the_codecs_one_by_one(case: tuple[Template, tuple[object, ...]]) -> None:
    template, values = case
    shape = KeyShape("tuple", is_scalar=False, make=lambda *fields: fields)
    keys = compile_keys(template, shape)
    raw = keys.encode(values)
    assert raw == b"".join(b"/" + field.element.encode(v) for field, v in zip(template.fields, values, strict=True))
    assert raw == _slow_encoder(template, shape)(values)
    assert keys.decode(raw) == values


@given(_template_and_values(), st.binary(max_size=40), st.booleans())
def test_the_last_field_alone_is_what_the_whole_key_says(
    case: tuple[Template, tuple[object, ...]],
    other: bytes,
    has_tail: bool,  # noqa: FBT001
) -> None:
    template, values = case
    if has_tail:
        template = Template((*template.parts, Literal(b"!")), template.is_text)
    keys = compile_keys(template, KeyShape("tuple", is_scalar=False, make=lambda *fields: fields))
    listed, raw = keys.listed(values[:-1]), keys.encode(values)
    if listed.last is None:
        assert template.fields[-1].element.width is None or not listed.is_exact
        return
    for candidate in (raw, raw + other, raw[:-1], raw[:-1] + other, listed.start + other):
        whole: Any = listed.read(candidate) if candidate.startswith(listed.start) else None
        assert not candidate.startswith(listed.start) or listed.last(candidate) == (whole and whole[-1])


def test_the_last_field_is_read_alone_where_nothing_else_is_open() -> None:
    keys = compile_keys(
        template_of_source("/{site:text}/{uuid:hex_uuid}/x", is_text=True),
        KeyShape("tuple", is_scalar=False, make=lambda *fields: fields),
    )
    raw = keys.encode(("berne", LAST_UUID))
    for listed in (keys.listed(("berne",)), keys.listed(("berne",), at_least=UUID(int=1), below=LAST_UUID)):
        assert listed.last is not None
        assert listed.last(raw) == LAST_UUID
        assert [listed.last(one) for one in (raw[:-1], raw + b"x", raw.replace(b"f", b"F"), raw[:-2] + b"/y")] == [
            None
        ] * 4
    assert keys.listed(()).last is None
    assert keys.listed((), starts_with="b").last is None
    assert keys.listed(("berne", LAST_UUID)).last is None
    assert BLADES.listed(("r1",)).last is None, "decimals are of any length"


@given(st.binary(max_size=30))
def test_decoding_never_fails(raw: bytes) -> None:
    for keys in (BLADES, RUNS, DATASETS):
        for candidate in (raw, keys.prefix(()) + raw):
            key = keys.decode(candidate)
            assert key is None or keys.encode(key) == candidate


def test_a_key_that_the_patterns_alone_would_split_wrongly_is_still_read() -> None:
    # Two bounded names that share all their characters: only the bounds tell where the first one ends.
    template = template_of_source(
        "{left:text(bytes_max=2,exclude='/')}-{right:text(bytes_max=9,exclude='/')}", is_text=True
    )
    keys = compile_keys(template, KeyShape("tuple", is_scalar=False, make=lambda *fields: fields))
    assert keys.encode(("a", "b-c")) == b"a-b-c"
    assert keys.decode(b"a-b-c") == ("a", "b-c")
    assert keys.decode(b"abc-b-c") is None


class TwoPaths(NamedTuple):
    first: str
    second: str


def two_paths(key: TwoPaths) -> CompiledKeys:
    class Made(Layout, root=b"r"):
        files = Table(b"{first.level:u8}{first:path}/{second:path}", key=TwoPaths, value=str)

    return Made.bound().tables["files"].keys


@pytest.mark.parametrize("key", [TwoPaths("a", "b/c"), TwoPaths("a/b", "c"), TwoPaths("a/b/c", "d/e/f")])
def test_a_derived_field_says_where_a_path_ends(key: TwoPaths) -> None:
    keys = two_paths(key)
    assert keys.decode(keys.encode(key)) == key


@pytest.mark.parametrize(
    "raw", [b"r\x01a/b/c/d/e", b"r\x02a/b/c/d/e", b"r\x01" + b"a/" * 60 + b"b", b"r\x00" + b"x" * 65]
)
def test_a_key_that_its_codec_refuses_is_unknown_and_no_error(raw: bytes) -> None:
    class Levelled(Layout, root=b"r"):
        files = Table(b"{path.level:u8(most=2)}{path:path(bytes_max=64)}", key=str, value=str)

    bound = Levelled.bound()
    assert bound.tables["files"].keys.decode(raw) is None
    assert bound.meaning(raw).kind is Kind.UNKNOWN


@pytest.mark.parametrize("template", ["r/{name}", "r/{first}/{second}", "r/{first:text(allow='a-z')}{second}"])
def test_a_key_longer_than_any_of_the_template_is_refused_at_once(template: str) -> None:
    keys = compile_keys(
        Template(read_with_text(template), is_text=True), KeyShape("key", is_scalar=False, make=lambda *key: key)
    )
    begun = time.process_time()
    assert keys.decode(b"r/" + b"a" * 400_000) is None
    assert time.process_time() - begun < 0.1


def read_with_text(source: str) -> tuple[Literal | Field, ...]:
    return template_of_source(re.sub(r"\{(\w+)\}", r"{\1:text}", source), is_text=True).parts
