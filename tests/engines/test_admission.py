"""What a commit is refused for does not hang on what else is in it, nor on how much."""

from dataclasses import replace
from typing import Final

import pytest

from keyplan.engine import MEMORY_PROFILE, Capability, Commit, Delete, Mutation, Put, admit_commit
from keyplan.errors import EngineLimitError, KeyplanError, UnsupportedByEngineError

PROFILE: Final = replace(
    MEMORY_PROFILE,
    key_bytes_max=8,
    value_bytes_max=8,
    capabilities=MEMORY_PROFILE.capabilities - {Capability.LEASES},
)
PLAIN: Final = tuple(Put(b"k%d" % number, b"v") for number in range(9))


def refusal(mutations: tuple[Mutation, ...]) -> tuple[type[KeyplanError], str] | None:
    try:
        admit_commit(PROFILE, Commit((), mutations))
    except (EngineLimitError, UnsupportedByEngineError) as error:
        return type(error), str(error)
    return None


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
def test_what_fits_is_admitted(count: int) -> None:
    assert refusal(PLAIN[:count]) is None
    assert refusal((*PLAIN[1:count], Put(b"8" * 8, b"8" * 8))) is None


@pytest.mark.parametrize(
    "odd",
    [Put(b"", b""), Put(b"9" * 9, b""), Put(b"k", b"9" * 9), Put(b"k", b"", 1), Delete(b""), Delete(b"9" * 9)],
    ids=repr,
)
@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_one_that_does_not_fit_is_refused_wherever_it_stands(odd: Mutation, count: int) -> None:
    alone = refusal((odd,))

    assert alone is not None
    for place in (0, count // 2, count):
        assert refusal((*PLAIN[:place], odd, *PLAIN[place:count])) == alone
