"""Inputs for Hypothesis: bytes at random, and inputs that say something with a few bytes changed."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

__all__ = ["inputs"]

# Why: what ends, nests, escapes, and is no UTF-8, and numbers and words that are too much for somebody.
_PIECES = [
    b"",
    b"\x00",
    b"\xff",
    b"\x80",
    b"/",
    b"{",
    b"}",
    b'"',
    b"'",
    b"\\",
    b"-1",
    b"9" * 30,
    b"null",
    b"[]",
    b"{}",
    b"%00",
]


@st.composite
def inputs(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """Draw an input: a seed with up to four pieces of it replaced, or bytes at random."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=64))
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 3) | st.integers(0, len(data)))
        data = data[:start] + draw(_piece(data)) + data[start + length :]
    return data


def _piece(data: bytes) -> SearchStrategy[bytes]:
    cut = st.tuples(st.integers(0, len(data)), st.integers(0, 16)).map(lambda at: data[at[0] : at[0] + at[1]])
    return st.sampled_from(_PIECES) | st.binary(min_size=1, max_size=2) | cut
