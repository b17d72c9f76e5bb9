"""PD over HTTP, against a server on loopback: reading in pages, applying, verifying, and everything that goes wrong."""

from collections.abc import Iterator

import pytest

from keyplan.engine import KeyRange
from keyplan.errors import EngineOpenError, EngineUnavailableError, InvalidInputError, PlacementDriverError
from keyplan.keyspace import State
from keyplan.regions import (
    NumberedSpace,
    PlacementDriver,
    RegisteredSpace,
    StoreMode,
    apply_plan,
    plan_with,
    tls_context,
)
from keyplan.store import Backoff
from tests.regions.pd_server import FakePd, fake_pd
from tests.regions.scenarios import F1_RULE, S1_BOUNDS, S1_SPACES

NO_WAITS = Backoff(sleep=lambda _seconds: None)


@pytest.fixture
def pd() -> Iterator[FakePd]:
    with fake_pd() as server:
        yield server


@pytest.fixture
def driver(pd: FakePd) -> Iterator[PlacementDriver]:
    with PlacementDriver(pd.url) as opened:
        yield opened


def test_regions_are_read_page_by_page_in_key_order(pd: FakePd, driver: PlacementDriver) -> None:
    pd.put_regions(*S1_BOUNDS)
    pd.page_regions_max = 3
    assert [region.id for region in driver.regions()] == [10, 11, 12, 13, 14, 15, 16]
    assert [request.query["key"].upper() for request in pd.sent("GET", "/regions/key")] == [
        "",
        S1_BOUNDS[3],
        S1_BOUNDS[6],
    ]


def test_a_hole_at_a_pages_end_is_reported(pd: FakePd, driver: PlacementDriver) -> None:
    pd.put_regions("", "EA", "EB", "EC", "")
    pd.regions = [region for region in pd.regions if region["start_key"] != "EA"]
    pd.page_regions_max = 1
    plan = plan_with(driver, [], cluster="c0ffee")
    assert plan.proof.data()["holes"] == [["EA", "EB"]]
    assert driver.range_holes() == [KeyRange(b"\xea", b"\xeb")]


def test_scenario_1_is_applied_and_proven(pd: FakePd, driver: PlacementDriver) -> None:
    pd.put_regions(*S1_BOUNDS)
    applied = apply_plan(driver, S1_SPACES, cluster="c0ffee", backoff=NO_WAITS)
    assert applied.is_proven
    assert len(pd.regions) == 11
    assert sorted(pd.rules) == [f"keyplan/c0ffee/{name}" for name in ("orders", "tidb-data", "tidb-meta", "users")]
    (patch,) = pd.sent("PATCH", "/region-label/rules")
    assert sorted(patch.body) == ["deletes", "sets"]
    first_split = next(place for place, request in enumerate(pd.requests) if request.path.endswith("/split"))
    assert pd.requests.index(patch) < first_split
    # AC-56: no key that is a region's start already is asked for.
    assert [request.body["split_keys"] for request in pd.sent("POST", "/split")] == [
        ["0200000000000000f8", "6e00000000000000f8", "7400000000000000f8", "7500000000000000f8"]
    ]


def test_applying_twice_changes_nothing_more(pd: FakePd, driver: PlacementDriver) -> None:
    pd.put_regions(*S1_BOUNDS)
    apply_plan(driver, S1_SPACES, cluster="c0ffee", backoff=NO_WAITS)
    pd.requests.clear()
    assert apply_plan(driver, S1_SPACES, cluster="c0ffee", backoff=NO_WAITS).is_proven
    assert {request.method for request in pd.requests} == {"GET"}


def test_only_missing_boundaries_are_asked_for_again(pd: FakePd, driver: PlacementDriver) -> None:
    spaces = [RegisteredSpace("orders", b"\x01"), RegisteredSpace("users", b"\x02")]
    pd.put_regions("", "")
    pd.refused = [1]
    applied = apply_plan(driver, spaces, cluster="c0ffee", backoff=NO_WAITS)
    assert applied.is_proven
    assert [request.body["split_keys"] for request in pd.sent("POST", "/split")] == [
        ["0100000000000000f8", "0200000000000000f8", "0300000000000000f8"],
        ["0300000000000000f8"],
    ]


def test_a_pd_that_never_splits_is_given_up_and_not_proven(pd: FakePd, driver: PlacementDriver) -> None:
    pd.put_regions("", "")
    pd.refused = [2] * 20
    waits: list[float] = []
    spaces = [RegisteredSpace("orders", b"\x01")]
    applied = apply_plan(driver, spaces, cluster="c0ffee", backoff=Backoff(sleep=waits.append))
    assert not applied.is_proven
    assert applied.split_requests == 6
    assert waits == sorted(waits)
    assert applied.after.split_keys == applied.plan.split_keys


def test_more_than_64_splits_go_in_several_requests(pd: FakePd, driver: PlacementDriver) -> None:
    pd.put_regions("", "")
    spaces = [NumberedSpace(f"space-{number}", number) for number in range(0, 140, 2)]
    assert apply_plan(driver, spaces, cluster="c0ffee", backoff=NO_WAITS).is_proven
    assert [len(request.body["split_keys"]) for request in pd.sent("POST", "/split")] == [64, 64, 12]


def test_a_deleted_key_spaces_rule_is_deleted_and_pds_own_is_left(pd: FakePd, driver: PlacementDriver) -> None:
    pd.put_regions("", "")
    pd.rules["keyspaces/0"] = F1_RULE
    apply_plan(driver, [RegisteredSpace("orders", b"\x01")], cluster="c0ffee", backoff=NO_WAITS)
    gone = [RegisteredSpace("orders", b"\x01", State.DELETED)]
    applied = apply_plan(driver, gone, cluster="c0ffee", backoff=NO_WAITS)
    assert applied.is_proven
    assert list(pd.rules) == ["keyspaces/0"]
    assert pd.sent("PATCH", "/region-label/rules")[-1].body == {"sets": [], "deletes": ["keyplan/c0ffee/orders"]}


def test_single_rules_are_named_with_their_slashes_escaped(pd: FakePd, driver: PlacementDriver) -> None:
    pd.rules["rule2/a/b"] = {
        "id": "rule2/a/b",
        "index": 0,
        "labels": [{"key": "k2", "value": "v2"}],
        "rule_type": "key-range",
        "data": [{"start_key": "ab12", "end_key": "cd12"}],
    }
    rule = driver.rule("rule2/a/b")
    assert rule is not None
    assert rule.ranges == (KeyRange(b"\xab\x12", b"\xcd\x12"),)
    assert pd.requests[-1].path.endswith("/rule/rule2%2Fa%2Fb")
    assert driver.delete_rule("rule2/a/b") is True
    assert driver.delete_rule("rule2/a/b") is False
    assert driver.rule("rule2/a/b") is None


def test_key_spaces_of_pd_are_read_in_pages(pd: FakePd, driver: PlacementDriver) -> None:
    assert driver.spaces() == []
    pd.spaces = [
        {"id": 0, "name": "DEFAULT", "state": "ENABLED", "created_at": 1712076651, "state_changed_at": 1712076651},
        {"id": 1, "name": "foo", "state": "ARCHIVED", "config": {"region_bound_type": "raw"}},
        *({"id": number, "name": f"n{number}", "state": "TOMBSTONE"} for number in range(5, 1500)),
    ]
    pd.requests.clear()
    spaces = driver.spaces()
    assert len(spaces) == 1497
    assert spaces[:3] == [
        NumberedSpace("DEFAULT", 0),
        NumberedSpace("foo", 1, State.DELETING, modes=(StoreMode.RAW,)),
        NumberedSpace("n5", 5, State.DELETED),
    ]
    assert [request.query["page_token"] for request in pd.sent("GET", "/keyspaces")] == ["", "1003"]


def test_an_error_of_pd_is_told_with_its_status_and_sentence(pd: FakePd, driver: PlacementDriver) -> None:
    pd.failure = (500, "[PD:server:ErrNotBootstrapped]cluster is not bootstrapped")
    with pytest.raises(PlacementDriverError, match="cluster is not bootstrapped") as raised:
        driver.regions()
    assert raised.value.status == 500


def test_an_answer_that_is_not_a_region_list_is_refused(pd: FakePd, driver: PlacementDriver) -> None:
    pd.failure = (200, "no leader")
    with pytest.raises(InvalidInputError, match="not as PD has it"):
        driver.regions()


def test_a_pd_that_is_not_there_is_unavailable() -> None:
    with fake_pd() as server:
        url = server.url
    with PlacementDriver(url) as driver, pytest.raises(EngineUnavailableError):
        driver.regions()


@pytest.mark.parametrize("url", ["127.0.0.1:2379", "etcd://127.0.0.1:2379", "http://[::1"])
def test_an_address_that_is_no_http_url_is_refused(url: str) -> None:
    with pytest.raises(EngineOpenError):
        PlacementDriver(url)


def test_certificates_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(EngineOpenError, match="cannot be used for TLS"):
        tls_context("no-such-file.pem")
