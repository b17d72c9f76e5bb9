"""Any bytes, under any template: a key or none, a meaning always, and never an error."""

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keyplan.codec import element_of_spec
from keyplan.errors import InvalidKeyError
from keyplan.layout import LayoutSpec, Template, layout_class_of
from tests.codec.registry import specs
from tests.small_keys import layout_of, random_template

any_bytes = (
    st.binary(max_size=24) | st.text(max_size=12).map(str.encode) | st.text("ab/.%012", max_size=8).map(str.encode)
)


@pytest.mark.parametrize("spec", specs())
@settings(max_examples=40)
@given(any_bytes)
@example(b"")
@example(b"\xff" * 64)
@example(b"\x00" * 64)
@example(b"9" * 64)
def test_an_element_decodes_bytes_or_refuses_them_as_a_key(spec: str, raw: bytes) -> None:
    element = element_of_spec(spec)
    try:
        value = element.decode(raw)
    except InvalidKeyError:
        return
    assert element.encode(value) == raw


@st.composite
def layouts(draw: st.DrawFn) -> LayoutSpec:
    rng = Random(draw(st.integers(0, 5_000)))
    is_text = draw(st.booleans())
    found: list[Template] = []
    while len(found) < 2:
        made = random_template(rng, is_text=is_text)
        found += [made] if made is not None else []
    return layout_of(*found, root=draw(st.sampled_from([b"", b"a", b"a/"])))


@settings(max_examples=150, deadline=None)
@given(layouts(), st.lists(any_bytes, min_size=1, max_size=20))
def test_decoding_and_meaning_never_fail(spec: LayoutSpec, raw_keys: list[bytes]) -> None:
    bound = layout_class_of(spec).bound()
    root = b"".join(part.raw for part in spec.root.parts if hasattr(part, "raw"))
    for raw in (*raw_keys, *(root + one for one in raw_keys)):
        for table in bound.tables.values():
            key = table.keys.decode(raw)
            assert key is None or table.keys.encode(key) == raw
        meaning = bound.meaning(raw)
        assert meaning.raw_key == raw
        assert str(meaning)
