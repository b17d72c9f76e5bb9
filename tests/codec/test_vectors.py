"""The registry document against the codecs: its tables are the tests."""

import pytest

from keyplan.codec import registered_elements
from keyplan.errors import InvalidKeyError
from tests.codec.registry import DOCUMENT, Refusal, Vector, element, refusals, sections, vectors


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: f"{vector.spec}={vector.raw.hex()[:24]}")
def test_a_documented_value_has_its_documented_bytes(vector: Vector) -> None:
    assert element(vector.spec).encode(vector.value) == vector.raw


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: f"{vector.spec}={vector.raw.hex()[:24]}")
def test_documented_bytes_have_their_documented_value(vector: Vector) -> None:
    value = element(vector.spec).decode(vector.raw)
    assert value == vector.value
    assert type(value) is type(vector.value)


@pytest.mark.parametrize("refusal", refusals(), ids=lambda refusal: f"{refusal.spec}-{refusal.reason}")
def test_documented_refused_bytes_neither_decode_nor_stand_in_the_language(refusal: Refusal) -> None:
    codec = element(refusal.spec)
    assert not codec.language.accepts(refusal.raw)
    with pytest.raises(InvalidKeyError) as caught:
        codec.decode(refusal.raw)
    assert caught.value.facts["element"] == codec.spec


@pytest.mark.parametrize("code", registered_elements())
def test_every_registered_codec_has_a_section_with_at_least_three_vectors(code: str) -> None:
    assert code in sections()
    assert sum(vector.spec.partition("(")[0] == code for vector in vectors()) >= 3


@pytest.mark.parametrize("code", registered_elements())
def test_every_section_tells_value_bytes_length_order_and_language(code: str) -> None:
    for word in ("Value", "Bytes", "Length", "Order", "Language"):
        assert f"\n- {word}: " in sections()[code]


@pytest.mark.parametrize("code", sections())
def test_the_documented_order_is_the_one_that_the_codec_claims(code: str) -> None:
    codecs = [element(vector.spec) for vector in vectors() if vector.spec.partition("(")[0] == code]
    is_told_unordered = "\n- Order: not kept" in sections()[code] or "else 10 sorts" in sections()[code]
    assert is_told_unordered == any(not codec.is_ordered for codec in codecs)


def test_every_row_of_the_document_is_read() -> None:
    rows = sum(line.startswith("| `") for section in sections().values() for line in section.splitlines())
    assert rows == len(vectors()) + len(refusals())
    assert len(vectors()) > 100
    assert DOCUMENT.name == "key-encoding.md"
