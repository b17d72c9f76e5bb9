"""Every target on the inputs that are kept, and on some that nobody has seen: the short form of `scripts/fuzz`."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.corpus import kept
from tests.fuzz.mutation import inputs
from tests.fuzz.targets import TARGETS
from tests.fuzz.watchdog import run_watched

CORPUS_BYTES_MAX = 1 << 16


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_give_an_answer_or_an_error_of_keyplan(name: str) -> None:
    assert TARGETS[name].seeds
    for data in (*TARGETS[name].seeds, *kept(name)):
        run_watched(TARGETS[name], data)


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_are_few_and_small(name: str) -> None:
    assert 0 < sum(map(len, kept(name))) < CORPUS_BYTES_MAX


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=settings().max_examples // 2, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_changed_inputs_give_an_answer_or_an_error_of_keyplan(name: str, data: st.DataObject) -> None:
    run_watched(TARGETS[name], data.draw(inputs((*TARGETS[name].seeds, *kept(name)))))
