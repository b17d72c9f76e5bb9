"""The fixture, the marker and the options of the pytest plugin, in a pytest of its own; and scenarios that Hypothesis draws."""

from pathlib import Path

import pytest
from hypothesis import given, settings

from keyplan.testing.scenario_strategies import scenarios, schedules_of
from keyplan.testing.schedules import Preemptions, Scenario, check_schedules, replay
from tests.maintenance.layouts import Site
from tests.schedules.scenes import one_record
from tests.schedules.writers import WRITERS, two_records

pytest_plugins = ["pytester"]

TEST_FILE = """
import msgspec
import pytest
from keyplan import Layout, Table
from keyplan.testing.schedules import Scenario, as_in_some_order, explore

class Stock(msgspec.Struct, frozen=True):
    count: int

class Shop(Layout, root="/shop/"):
    stock = Table("stock/{item}", key=str, value=Stock)

def apples(store):
    Shop(store).stock.insert("apple", Stock(2))

def careless(store):
    left = Shop(store).stock.require("apple")
    Shop(store).stock.put("apple", Stock(left.count - 1))

def careful(store):
    Shop(store).stock.modify("apple", lambda left: Stock(left.count - 1))

CARELESS = Scenario(careless, careless, setup=apples, invariants=[as_in_some_order])
CAREFUL = Scenario(careful, careful, setup=apples, invariants=[as_in_some_order])

def test_careless(schedules):
    schedules(CARELESS)

@pytest.mark.schedules(complete=True, seconds=5)
def test_careful(schedules):
    found = schedules(CAREFUL)
    assert found is None or found.schedules == 4
    print("explored" if found else "replayed")
"""


@pytest.fixture
def shop(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest('pytest_plugins = ["keyplan.testing.pytest_plugin"]')
    pytester.makepyfile(test_shop=TEST_FILE)
    return pytester


def run(shop: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    # Why: plugins that happen to be installed take two thirds of the start, and are no part of what is tried here.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        return shop.runpytest_subprocess("-s", *arguments)


@pytest.mark.slow
def test_a_failure_is_told_with_its_test_and_its_string(shop: pytest.Pytester) -> None:
    told = run(shop)
    told.assert_outcomes(passed=1, failed=1)
    told.stdout.fnmatch_lines(["*ScheduleFailure: test_shop.py::test_careless", "*kps1:*:-:a*"])
    told.stdout.fnmatch_lines(["*explored*"])


@pytest.mark.slow
def test_the_last_failure_is_tried_first(shop: pytest.Pytester) -> None:
    run(shop)
    told = run(shop, "-k", "careless")
    told.assert_outcomes(failed=1)
    told.stdout.fnmatch_lines(["*AssertionError: test_shop.py::test_careless"])
    path = Path(shop.path) / "test_shop.py"
    path.write_text(path.read_text().replace("Scenario(careless, careless", "Scenario(careful, careless"))
    assert run(shop, "-k", "careless").ret == 1  # another scenario, whose own failure is found


@pytest.mark.slow
def test_a_string_is_replayed_where_it_belongs_alone(shop: pytest.Pytester) -> None:
    told = run(shop, "-k", "careless")
    string = next(line for line in told.outlines if "kps1:" in line).split()[-1]
    replayed = run(shop, f"--schedule={string}")
    replayed.assert_outcomes(passed=1, failed=1)
    replayed.stdout.fnmatch_lines(["*AssertionError: test_shop.py::test_careless"])
    replayed.stdout.fnmatch_lines(["*explored*"])


SECONDS_FILE = (
    TEST_FILE
    + """
import keyplan.testing.schedules as package

@pytest.fixture
def seen(monkeypatch):
    given = []
    def noting(scenario, **options):
        given.append(options["seconds_max"])
        return explore(scenario, **options)
    monkeypatch.setattr(package, "explore", noting)
    return given

@pytest.mark.schedules(seconds=5)
def test_seconds(seen, schedules):
    schedules(CAREFUL)
    schedules(CAREFUL, seconds=2)
    schedules(CAREFUL, seconds_max=3)
    assert seen == EXPECTED
"""
)


@pytest.mark.slow
@pytest.mark.parametrize(("option", "expected"), [([], "[5, 2, 5]"), (["--schedules-seconds=2.5"], "[12.5, 5, 12.5]")])
def test_the_seconds_are_multiplied_by_the_option(shop: pytest.Pytester, option: list[str], expected: str) -> None:
    shop.makepyfile(test_shop=SECONDS_FILE.replace("EXPECTED", expected))
    run(shop, *option, "-k", "test_seconds").assert_outcomes(passed=1)


@settings(deadline=None, max_examples=20)
@given(scenarios(WRITERS, setups=[two_records], layouts=[Site]))
def test_few_operations_in_any_order_leave_a_whole_store(scenario: Scenario) -> None:
    check_schedules(scenario, strategy=Preemptions(2), schedules_max=30)


ONE = Scenario(WRITERS["modify"], WRITERS["delete"], setup=one_record, layouts=[Site])


@settings(deadline=None, max_examples=20)
@given(schedules_of(ONE))
def test_a_drawn_schedule_replays(text: str) -> None:
    assert replay(ONE, text).failure == ""
