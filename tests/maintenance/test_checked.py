"""The shipped check of a store after a test: it fails for what is wrong, and for a promised fault that is not there."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

import keyplan
from keyplan.errors import EngineUnavailableError
from keyplan.maintenance import build_index, drop_index
from keyplan.store import Store
from keyplan.testing import pytest_plugin
from keyplan.testing.checked import assert_healthy, check_after
from tests.maintenance.layouts import Blade, BladeKey, Site, write


def test_a_store_that_is_whole_passes_and_is_closed() -> None:
    with check_after(keyplan.open("memory:"), Site) as store:
        site = Site(store)
        site.ports.next()
    with pytest.raises(EngineUnavailableError):
        site.ports.peek()


def test_a_fault_that_a_test_leaves_is_told() -> None:
    with (
        pytest.raises(AssertionError, match="unknown-key: /site/what"),
        check_after(keyplan.open("memory:"), Site) as store,
    ):
        write(store, puts={b"/site/what": b""})


def test_the_tests_own_failure_is_not_hidden_by_the_check() -> None:
    def run_test() -> None:
        with check_after(keyplan.open("memory:"), Site) as store:
            write(store, puts={b"/site/what": b""})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_test()


def test_layouts_of_one_root_do_not_call_each_others_keys_unknown(store: Store) -> None:
    class Notes(keyplan.Layout, root="/site/"):
        notes = keyplan.Table("notes/{note}", key=str, value=str)

    Notes(store).notes.insert("a", "b")
    assert_healthy(store, Site, Notes)
    with pytest.raises(AssertionError):
        assert_healthy(store, Site)


def test_a_key_outside_of_all_roots_is_a_fault_unless_it_is_left_or_others_are_there(store: Store) -> None:
    write(store, puts={b"/sites/x": b"", b"\x00kx": b""})
    with pytest.raises(AssertionError, match="key-outside: /sites/x lies below no root"):
        assert_healthy(store, Site)
    assert_healthy(store, Site, leaves=["key-outside"])
    assert_healthy(store, Site, has_others=True)
    with pytest.raises(AssertionError, match="nothing is found that is key-outside"):
        assert_healthy(store, Site, leaves=["key-outside"], has_others=True)


def test_notes_are_no_failure(store: Store) -> None:
    write(store, puts={b"/site/members/m": b"{}"})
    assert_healthy(store, Site)


def test_a_promised_fault_must_be_there(store: Store) -> None:
    with pytest.raises(AssertionError, match="nothing is found that is unknown-key"):
        assert_healthy(store, Site, leaves=["unknown-key"])


@pytest.mark.leaves("unknown-key")
def test_a_marked_test_may_damage_its_store(check_after: Callable[..., AbstractContextManager[Store]]) -> None:
    with check_after(keyplan.open("memory:"), Site) as store:
        write(store, puts={b"/site/what": b""})


def test_the_marker_is_made_known(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.is_registered(pytest_plugin)
    assert any(line.startswith("leaves(") for line in pytestconfig.getini("markers"))


def test_an_index_that_is_not_readable_is_a_fault_unless_it_is_left_on_purpose() -> None:
    with keyplan.open("memory:") as store:
        Site(store).blades.insert(BladeKey("r1", "1"), Blade("s1", ["red"]))
        drop_index(store, Site.bound(), "by_serial")
        with pytest.raises(AssertionError, match="index-not-ready: the index by_serial of Site is write-only"):
            assert_healthy(store, Site)
        assert_healthy(store, Site, leaves=["index-not-ready"])
        build_index(store, Site.bound(), "by_serial")
        assert_healthy(store, Site)
        with pytest.raises(AssertionError, match="nothing is found that is index-not-ready"):
            assert_healthy(store, Site, leaves=["index-not-ready"])
