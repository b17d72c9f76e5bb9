"""Templates are read into literals and fields, and every mistake is named with its place."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan.codec import U8, Decimal, Element, SlashPath, Text
from keyplan.errors import TemplateError, UnknownNameError
from keyplan.layout import Field, Literal, Template, read_template, template_of_source


def test_a_template_is_split_at_its_braces() -> None:
    literal, placeholder, end = read_template("rack/{rack:text(bytes_max=9)}/tor")
    assert literal == Literal(b"rack/")
    assert not isinstance(placeholder, Literal)
    assert (placeholder.name, placeholder.spec, placeholder.position) == ("rack", "text(bytes_max=9)", 5)
    assert end == Literal(b"/tor")


def test_doubled_braces_are_literal_braces() -> None:
    assert read_template("a{{b}}c") == [Literal(b"a{b}c")]


def test_a_brace_inside_a_quoted_codec_parameter_does_not_end_the_field() -> None:
    (placeholder,) = read_template("{name:text(exclude='}')}")
    assert not isinstance(placeholder, Literal)
    assert placeholder.spec == "text(exclude='}')"


def test_a_binary_template_keeps_its_bytes() -> None:
    assert read_template(b"\x00\xffkp{{") == [Literal(b"\x00\xffkp{")]


@pytest.mark.parametrize(
    ("source", "position", "problem"),
    [
        ("a/{b", 2, "without a closing"),
        ("a}b", 1, "without an opening"),
        ("{}", 0, "is not {name}"),
        ("x{1a}", 1, "is not {name}"),
        ("{a b}", 0, "is not {name}"),
        ("{a}/{a}", 4, "stands twice"),
        ("a/\udcf2", 2, "'\\udcf2' is no character of such a template"),
    ],
)
def test_a_malformed_template_is_refused_at_its_position(source: str, position: int, problem: str) -> None:
    with pytest.raises(TemplateError) as caught:
        read_template(source)
    assert caught.value.facts["position"] == position
    assert problem in str(caught.value.facts["problem"])


def test_a_source_without_a_codec_for_every_field_is_refused() -> None:
    with pytest.raises(TemplateError, match="has no codec"):
        template_of_source("racks/{rack}", is_text=True)


def test_a_source_with_an_unknown_codec_names_those_there_are() -> None:
    with pytest.raises(UnknownNameError) as caught:
        template_of_source("racks/{rack:rackname}", is_text=True)
    assert "text" in caught.value.facts["known"]  # type: ignore[operator]


def test_binding_a_field_makes_it_literal() -> None:
    template = template_of_source("{area:text(empty=true)}racks/{rack:text}", is_text=True)
    assert template.bound({"area": "north"}).parts == (Literal(b"northracks/"), Field("rack", None, Text()))


def test_binding_a_field_binds_what_is_derived_from_it() -> None:
    template = Template((Field("path", "level", U8()), Field("path", None, SlashPath())), is_text=False)
    assert template.bound({"path": "a/b/c"}).literal_bytes == b"\x02a/b/c"


def test_a_derived_field_adds_no_field_to_the_key() -> None:
    template = Template((Field("path", "level", U8()), Field("path", None, SlashPath())), is_text=False)
    assert template.field_names == ("path",)


_LITERALS = st.binary(min_size=1, max_size=5).map(Literal)
_TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5).map(lambda text: Literal(text.encode()))
_ELEMENTS: st.SearchStrategy[Element[Any]] = st.sampled_from(
    [Text(), Text(exclude="{}'\\/"), Decimal(width=4), Decimal(most=7), U8()]
)


@st.composite
def _templates(draw: st.DrawFn, *, is_text: bool) -> Template:
    parts: list[Literal | Field] = []
    for number in range(draw(st.integers(0, 4))):
        if not parts or isinstance(parts[-1], Field):
            parts.append(draw(_TEXTS if is_text else _LITERALS))
        parts.append(Field(f"f{number}", None, draw(_ELEMENTS)))
    return Template(tuple(parts), is_text)


@given(_templates(is_text=True))
def test_a_text_template_reads_back_from_its_source(template: Template) -> None:
    assert template_of_source(template.source, is_text=True) == template


@given(_templates(is_text=False))
def test_a_binary_template_reads_back_from_its_printable_source(template: Template) -> None:
    assert template.source.isascii()
    assert template.source.isprintable()
    assert template_of_source(template.source, is_text=False) == template


def test_a_binary_template_is_described_in_characters_of_one_byte() -> None:
    with pytest.raises(TemplateError) as caught:
        template_of_source("a\u0142", is_text=False)
    assert caught.value.facts["position"] == 1
