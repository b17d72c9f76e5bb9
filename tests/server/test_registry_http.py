"""The HTTP contract of the key space registry (keyspaces.md 1.9 and the cases of section 6), route by route."""

import re
from typing import Any

import httpx
import pytest

from keyplan.engine import Commit, Delete, Engine, Put
from keyplan.keyspace import KeySpaceRegistry
from keyplan.server.keyspaces import DESCRIPTION
from tests.server.conftest import Ask, ManualClock

ORDERS = {"name": "orders", "application": "shop"}


def error_of(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "detail"}
    return answer.status_code, error["code"]


def put(engine: Engine, *raw_keys: str) -> None:
    engine.commit(Commit((), tuple(Put(bytes.fromhex(raw_key), b"v") for raw_key in raw_keys)))


# ---- create ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    ["shop", "a/b.c", "r\u00e4ksm\u00f6rg\u00e5s", "two words", "a*", "x\n", "\u00a0x", "\x7f", "x" * 129],
)
def test_the_description_says_which_applications_are_taken(shop: Ask, given: str) -> None:
    said = DESCRIPTION["components"]["schemas"]["KeySpaceCreation"]["properties"]["application"]
    is_described = bool(re.fullmatch(said["pattern"], given)) and len(given) <= said["maxLength"]
    status = shop("POST", "/keyspaces", {**ORDERS, "application": given}).status_code
    assert status == (201 if is_described else 400)


def test_ac16_a_key_space_is_made_with_the_first_prefix(shop: Ask) -> None:
    answer = shop("POST", "/keyspaces", ORDERS)
    assert answer.status_code == 201
    assert answer.headers["location"] == "/keyspaces/orders"
    assert answer.json() == {
        "id": "orders",
        "name": "orders",
        "application": "shop",
        "description": "",
        "prefix": "01",
        "prefix_number": 1,
        "range": {"start": "01", "end": "02"},
        "state": "ENABLED",
        "generation": 1,
        "created_at": "2026-11-21T01:50:00Z",
        "deleted_at": None,
        "delete_completed_at": None,
    }


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"name": "orders"}, "invalid_argument"),
        ({"application": "shop"}, "invalid_argument"),
        ({**ORDERS, "name": "a/b"}, "invalid_name"),
        ({**ORDERS, "name": "n" * 65}, "invalid_name"),
        ({**ORDERS, "name": ""}, "invalid_name"),
        ({**ORDERS, "name": 7}, "invalid_argument"),
        ({**ORDERS, "application": ""}, "invalid_argument"),
        ({**ORDERS, "application": "a" * 129}, "invalid_argument"),
        ({**ORDERS, "application_name": "other"}, "invalid_argument"),
        ({**ORDERS, "descripton": "misspelt"}, "invalid_argument"),
        ({**ORDERS, "prefix": "00"}, "invalid_prefix"),
        ({**ORDERS, "prefix": ""}, "invalid_prefix"),
        ({**ORDERS, "prefix": "zz"}, "invalid_prefix"),
        ([], "invalid_argument"),
    ],
)
def test_ac17_what_is_no_creation_is_refused(shop: Ask, body: Any, code: str) -> None:
    assert error_of(shop("POST", "/keyspaces", body)) == (400, code)


@pytest.mark.parametrize(
    ("prefix", "reason"),
    [
        ("", "empty"),
        ("00", "reserved"),
        ("zz", "not_hex"),
        ("80", "unterminated"),
        ("7f01", "trailing_bytes"),
        ("617070312f", "trailing_bytes"),
        ("8100", "not_canonical"),
        ("8080808001", "too_long"),
    ],
)
def test_ac05_a_refused_prefix_says_why(admin: Ask, prefix: str, reason: str) -> None:
    answer = admin("POST", "/keyspaces", {**ORDERS, "prefix": prefix})
    assert error_of(answer) == (400, "invalid_prefix")
    assert answer.json()["error"]["detail"]["reason"] == reason


def test_a_prefix_is_echoed_in_lower_case(admin: Ask) -> None:
    answer = admin("POST", "/keyspaces", {**ORDERS, "prefix": "6D"})
    assert (answer.status_code, answer.json()["prefix"], answer.json()["prefix_number"]) == (201, "6d", 109)


def test_application_name_is_another_spelling_of_application(shop: Ask) -> None:
    answer = shop("POST", "/keyspaces", {"name": "orders", "application_name": "shop"})
    assert (answer.status_code, answer.json()["application"]) == (201, "shop")


def test_ac18_a_name_is_taken_once(shop: Ask) -> None:
    first = shop("POST", "/keyspaces", ORDERS).json()
    assert error_of(shop("POST", "/keyspaces", ORDERS)) == (409, "keyspace_exists")
    again = shop("POST", "/keyspaces", {**ORDERS, "if_not_exists": True})
    assert (again.status_code, again.json()) == (200, first)
    assert again.headers["location"] == "/keyspaces/orders"
    other = {"name": "orders", "application": "bank", "if_not_exists": True}
    assert error_of(shop("POST", "/keyspaces", other)) == (409, "owner_conflict")


def test_a_prefix_in_use_a_nested_one_and_one_with_keys_are_conflicts(admin: Ask, engine: Engine) -> None:
    put(engine, "6d01")
    in_use = {**ORDERS, "prefix": "6d"}
    assert error_of(admin("POST", "/keyspaces", in_use)) == (409, "prefix_not_empty")
    assert admin("POST", "/keyspaces", {**in_use, "adopt_existing_data": True}).status_code == 201
    assert error_of(admin("POST", "/keyspaces", {**in_use, "name": "b"})) == (409, "prefix_in_use")
    legacy = {"name": "c", "application": "x", "prefix": "6d792f", "allow_legacy_prefix": True}
    assert error_of(admin("POST", "/keyspaces", legacy)) == (409, "prefix_conflict")


def test_only_administrators_adopt(shop: Ask, engine: Engine) -> None:
    put(engine, "6d01")
    for flag in ("adopt_existing_data", "allow_legacy_prefix"):
        assert error_of(shop("POST", "/keyspaces", {**ORDERS, "prefix": "6d", flag: True})) == (403, "forbidden")


def test_every_prefix_in_use_is_507(admin: Ask) -> None:
    assert admin("PATCH", "/config", {"prefix-bytes-max": 1}).status_code == 200
    for number in range(127):
        assert admin("POST", "/keyspaces", {"name": f"n{number}", "application": "a"}).status_code == 201
    assert error_of(admin("POST", "/keyspaces", ORDERS)) == (507, "prefix_exhausted")


# ---- read ------------------------------------------------------------------------------------------------------------


def test_ac21_nothing_there(shop: Ask) -> None:
    assert error_of(shop("GET", "/keyspaces/none")) == (404, "keyspace_not_found")
    assert error_of(shop("GET", "/keyspaces/no:name")) == (404, "keyspace_not_found")
    assert shop("GET", "/keyspaces").json() == {"keyspaces": [], "next_page_token": ""}


def test_ac22_pages_hold_each_once_although_one_is_made_between(shop: Ask) -> None:
    for number in range(5):
        shop("POST", "/keyspaces", {"name": f"n{number}", "application": "a"})
    first = shop("GET", "/keyspaces?limit=2").json()
    shop("POST", "/keyspaces", {"name": "a-new-one", "application": "a"})
    second = shop("GET", f"/keyspaces?limit=2&page_token={first['next_page_token']}").json()
    third = shop("GET", f"/keyspaces?limit=2&page_token={second['next_page_token']}").json()
    names = [[keyspace["name"] for keyspace in page["keyspaces"]] for page in (first, second, third)]
    assert names == [["n0", "n1"], ["n2", "n3"], ["n4", "a-new-one"]]
    assert third["next_page_token"] == ""


def names(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [keyspace["name"] for keyspace in answer.json()["keyspaces"]]


def test_ac23_every_filter_finds_the_right_one(admin: Ask) -> None:
    admin("POST", "/keyspaces", {"name": "m", "application": "tidb", "prefix": "6d"})
    admin("POST", "/keyspaces", ORDERS)
    admin("POST", "/keyspaces/m:disable")
    assert names(admin("GET", "/keyspaces?name=orders")) == ["orders"]
    assert names(admin("GET", "/keyspaces?name=none")) == []
    assert names(admin("GET", "/keyspaces?prefix=6D")) == ["m"]
    assert names(admin("GET", "/keyspaces?key=6d4400")) == ["m"]
    assert names(admin("GET", "/keyspaces?key=90")) == []
    assert names(admin("GET", "/keyspaces?application=tidb")) == ["m"]
    assert names(admin("GET", "/keyspaces?state=DISABLED")) == ["m"]
    assert names(admin("GET", "/keyspaces?state=ENABLED&application=tidb")) == []


UNREADABLE = (
    "limit=0 limit=1001 limit=x limit=-1 state=GONE include=some prefix=zz prefix= key= key=1 nme=x page_token=x"
    " name=a&name=b"
)


@pytest.mark.parametrize("query", UNREADABLE.split())
def test_a_query_that_says_nothing_is_refused_rather_than_answered_with_everything(admin: Ask, query: str) -> None:
    status, code = error_of(admin("GET", f"/keyspaces?{query}"))
    assert status == 400
    assert code in {"invalid_argument", "invalid_prefix"}


# ---- update ----------------------------------------------------------------------------------------------------------


def test_ac19_only_the_description_changes(shop: Ask, clock: ManualClock) -> None:
    made = shop("POST", "/keyspaces", ORDERS).json()
    clock.seconds += 60
    answer = shop("PUT", "/keyspaces/orders", {"description": "new"})
    assert (answer.status_code, answer.json()) == (200, {**made, "description": "new"})
    assert error_of(shop("PUT", "/keyspaces/orders", {})) == (400, "invalid_argument")
    assert error_of(shop("PUT", "/keyspaces/orders", {"description": None})) == (400, "invalid_argument")
    moved = {"description": "x", "prefix": "05"}
    assert error_of(shop("PUT", "/keyspaces/orders", moved)) == (422, "immutable_field")
    assert shop("PUT", "/keyspaces/orders", {"description": "x", "name": "orders"}).status_code == 200
    assert shop("PUT", "/keyspaces/orders", {"description": ""}).json()["description"] == ""
    assert error_of(shop("PUT", "/keyspaces/none", {"description": "x"})) == (404, "keyspace_not_found")


def test_an_object_that_was_read_can_be_sent_back(shop: Ask) -> None:
    made = shop("POST", "/keyspaces", ORDERS).json()
    assert shop("PUT", "/keyspaces/orders", {**made, "description": "sent back"}).status_code == 200


# ---- delete, moves ---------------------------------------------------------------------------------------------------


def test_ac37_deletion_begins_once(admin: Ask, clock: ManualClock) -> None:
    admin("POST", "/keyspaces", ORDERS)
    first = admin("DELETE", "/keyspaces/orders")
    assert first.status_code == 202
    assert first.json()["state"] == "DELETING"
    assert first.json()["deleted_at"] == "2026-11-21T01:50:00Z"
    assert first.json()["delete_completed_at"] is None
    clock.seconds += 60
    second = admin("DELETE", "/keyspaces/orders")
    assert (second.status_code, second.json()["deleted_at"]) == (202, "2026-11-21T01:50:00Z")
    assert error_of(admin("PUT", "/keyspaces/orders", {"description": "x"})) == (409, "keyspace_deleted")
    assert error_of(admin("POST", "/keyspaces", ORDERS)) == (409, "keyspace_deleting")
    assert admin("GET", "/keyspaces/orders").json()["delete_progress"] == {"deleted_keys": 0, "cursor": "01"}
    assert error_of(admin("DELETE", "/keyspaces/none")) == (404, "keyspace_not_found")


def test_a_protected_key_space_is_not_deleted(admin: Ask) -> None:
    admin("POST", "/keyspaces", ORDERS)
    admin("PATCH", "/config", {"protected": ["orders"]})
    assert error_of(admin("DELETE", "/keyspaces/orders")) == (409, "keyspace_protected")


def test_moves_go_from_the_states_that_allow_them(admin: Ask) -> None:
    admin("POST", "/keyspaces", ORDERS)
    assert admin("POST", "/keyspaces/orders:disable").json()["state"] == "DISABLED"
    assert admin("POST", "/keyspaces/orders:disable").status_code == 200
    assert admin("POST", "/keyspaces/orders:enable").json()["state"] == "ENABLED"
    assert error_of(admin("POST", "/keyspaces/orders:undelete")) == (409, "illegal_transition")
    admin("DELETE", "/keyspaces/orders")
    assert error_of(admin("POST", "/keyspaces/orders:disable")) == (409, "illegal_transition")
    assert admin("POST", "/keyspaces/orders:undelete").json()["state"] == "ENABLED"
    assert error_of(admin("POST", "/keyspaces/none:enable")) == (404, "keyspace_not_found")
    assert error_of(admin("POST", "/keyspaces/orders:explode")) == (405, "method_not_allowed")


@pytest.mark.parametrize("verb", ["disable", "enable", "undelete"])
def test_moves_are_for_administrators(shop: Ask, verb: str) -> None:
    shop("POST", "/keyspaces", ORDERS)
    assert error_of(shop("POST", f"/keyspaces/orders:{verb}")) == (403, "forbidden")
    assert error_of(shop("DELETE", "/keyspaces/orders")) == (403, "forbidden")


# ---- usage, history, quota -------------------------------------------------------------------------------------------


def test_usage_counts_keys_and_bytes_within_the_prefix(admin: Ask, engine: Engine) -> None:
    admin("POST", "/keyspaces", ORDERS)
    put(engine, "0161", "016263", "0261")
    answer = admin("GET", "/keyspaces/orders/usage")
    assert answer.status_code == 200
    expected = {"keys": 2, "bytes": 5, "quota": {"keys": None, "bytes": None}, "counted_at": "2026-11-21T01:50:00Z"}
    assert answer.json() == expected
    assert error_of(admin("GET", "/keyspaces/none/usage")) == (404, "keyspace_not_found")


def test_a_quota_is_set_by_administrators(admin: Ask, shop: Ask) -> None:
    shop("POST", "/keyspaces", ORDERS)
    assert error_of(shop("PUT", "/keyspaces/orders/quota", {"keys": 1, "bytes": None})) == (403, "forbidden")
    assert admin("PUT", "/keyspaces/orders/quota", {"keys": 10, "bytes": None}).json() == {"keys": 10, "bytes": None}
    assert admin("PUT", "/keyspaces/orders/quota", {"keys": 1e1, "bytes": None}).json()["keys"] == 10
    for odd in (0.5, 1e300, 1 << 64, 10**400, -(10**400)):
        refused = admin("PUT", "/keyspaces/orders/quota", {"keys": odd, "bytes": None})
        assert error_of(refused) == (400, "invalid_argument")
    assert shop("GET", "/keyspaces/orders/quota").json() == {"keys": 10, "bytes": None}
    assert error_of(shop("GET", "/keyspaces/none/quota")) == (404, "keyspace_not_found")
    assert shop("GET", "/keyspaces/orders/usage").json()["quota"] == {"keys": 10, "bytes": None}
    assert error_of(admin("PUT", "/keyspaces/orders/quota", {"keys": -1, "bytes": 1})) == (400, "invalid_argument")
    assert error_of(admin("PUT", "/keyspaces/orders/quota", {"keys": 1})) == (400, "invalid_argument")


def test_history_is_a_list_and_only_of_names_that_there_were(shop: Ask) -> None:
    shop("POST", "/keyspaces", ORDERS)
    assert shop("GET", "/keyspaces/orders/history").json() == {"keyspaces": [], "next_page_token": ""}
    assert error_of(shop("GET", "/keyspaces/none/history")) == (404, "keyspace_not_found")


# ---- who may ---------------------------------------------------------------------------------------------------------


def test_ac24_while_the_flag_is_false_clients_are_told_so_and_administrators_are_served(
    admin: Ask, shop: Ask, engine: Engine
) -> None:
    put(engine, "6d01", "7401")
    admin("PATCH", "/config", {"keyspace-api-enabled": False})
    for method, path, body in (
        ("POST", "/keyspaces", ORDERS),
        ("GET", "/keyspaces", None),
        ("GET", "/keyspaces/m", None),
        ("GET", "/keyspaces/m/usage", None),
        ("GET", "/keyspaces/m/history", None),
        ("PUT", "/keyspaces/m", {"description": ""}),
        ("DELETE", "/keyspaces/m", None),
        ("POST", "/keyspaces/m:disable", None),
    ):
        assert error_of(shop(method, path, body)) == (501, "keyspace_api_disabled"), (method, path)
    for name, prefix in (("m", "6d"), ("t", "74")):
        adopted = {"name": name, "application": "tidb", "prefix": prefix, "adopt_existing_data": True}
        assert admin("POST", "/keyspaces", adopted).status_code == 201
    admin("PATCH", "/config", {"keyspace-api-enabled": True})
    assert shop("GET", "/keyspaces/m").json()["prefix"] == "6d"


def test_ac26_self_registration_can_be_forbidden(admin: Ask, shop: Ask) -> None:
    admin("PATCH", "/config", {"self-registration-enabled": False})
    assert error_of(shop("POST", "/keyspaces", ORDERS)) == (403, "self_registration_disabled")
    assert admin("POST", "/keyspaces", ORDERS).status_code == 201
    assert shop("POST", "/keyspaces", {**ORDERS, "if_not_exists": True}).status_code == 200


def test_the_configuration_is_for_administrators_and_checked(admin: Ask, shop: Ask) -> None:
    for method, body in (("GET", None), ("PATCH", {"keyspace-api-enabled": False})):
        assert error_of(shop(method, "/config", body)) == (403, "forbidden")
    switches = admin("GET", "/config").json()
    assert (switches["keyspace-api-enabled"], switches["self-registration-enabled"]) == (True, True)
    refused: tuple[Any, ...] = ({"keyspace-api-enabled": "yes"}, {"unknown": 1}, {"reservations": ["zz"]}, [])
    for changes in refused:
        assert error_of(admin("PATCH", "/config", changes)) == (400, "invalid_argument")
    assert admin("GET", "/config").json() == switches


def test_acts_are_logged_with_who_did_them_and_the_log_is_whole(admin: Ask, shop: Ask) -> None:
    shop("POST", "/keyspaces", ORDERS)
    admin("DELETE", "/keyspaces/orders")
    entries = admin("GET", "/audit").json()["entries"]
    assert [(entry["number"], entry["actor"], entry["act"]) for entry in entries] == [
        (1, "ada", "configure"),
        (2, "local", "create"),
        (3, "ada", "delete"),
    ]
    assert admin("GET", "/audit?after=2&limit=1").json()["entries"] == entries[2:]
    verdict = admin("POST", "/audit:verify").json()
    assert (verdict["is_whole"], verdict["entries"]) == (True, 3)
    assert error_of(shop("GET", "/audit")) == (403, "forbidden")
    assert error_of(shop("POST", "/audit:verify")) == (403, "forbidden")
    assert error_of(admin("GET", "/audit?after=-1")) == (400, "invalid_argument")


def test_a_registry_is_made_read_and_not_made_otherwise(admin: Ask) -> None:
    assert error_of(admin("GET", "/registry")) == (404, "keyspace_not_found")
    made = admin("POST", "/registry:init", {"prefix_codec": "ordered"})
    assert (made.status_code, made.json()["prefix_codec"]) == (200, "ordered")
    assert admin("GET", "/registry").json() == made.json()
    assert admin("POST", "/registry:init", {}).json() == made.json()
    assert error_of(admin("POST", "/registry:init", {"prefix_codec": "uvarint"})) == (400, "invalid_argument")
    assert error_of(admin("POST", "/registry:init", {"skip_printable": True})) == (400, "invalid_argument")
    assert error_of(admin("POST", "/registry:init", {"codec": "ordered"})) == (400, "invalid_argument")
    assert [entry["act"] for entry in admin("GET", "/audit").json()["entries"]] == ["init"]


def test_the_doctor_finds_a_fault_and_data_of_nobody_and_repairs_the_fault(
    engine: Engine, admin: Ask, shop: Ask
) -> None:
    shop("POST", "/keyspaces", ORDERS)
    fence = KeySpaceRegistry.bound().tables["fences"].keys.encode("orders")
    engine.commit(Commit((), (Delete(fence), Put(b"\x05k", b"v"))))
    found = admin("GET", "/registry/diagnosis").json()
    problem = "the fence says nothing, the record generation 1, ENABLED"
    fault = {"kind": "fence", "name": "orders", "problem": problem, "is_repairable": True}
    fault |= {"raw_key": fence.hex(), "remedy": "`keyplan doctor --repair` puts it right"}
    nobodys = {"prefix": "05", "prefix_number": 5, "first_key": "056b", "keys": 1, "is_more": False}
    assert found == {
        "is_sound": False,
        "keyspaces": 1,
        "audit_entries": 2,
        "faults": [fault],
        "unmanaged": [nobodys],
    }
    assert admin("GET", "/registry/diagnosis?unmanaged=off").json()["unmanaged"] == []
    assert admin("POST", "/registry:repair").json() == {"repaired": [fault]}
    assert admin("GET", "/registry/diagnosis").json()["is_sound"]
    assert [entry["actor"] for entry in admin("GET", "/audit").json()["entries"]][-1] == "ada"
    assert error_of(admin("GET", "/registry/diagnosis?unmanaged=no")) == (400, "invalid_argument")


def test_a_sweep_that_is_asked_for_is_done_in_the_name_of_who_asks(engine: Engine, admin: Ask, shop: Ask) -> None:
    assert admin("PATCH", "/config", {"max-client-lease-seconds": 0}).status_code == 200
    shop("POST", "/keyspaces", ORDERS)
    engine.commit(Commit((), tuple(Put(b"\x01%d" % number, b"") for number in range(700))))
    asked = "/keyspaces/orders:sweep"
    nothing = {"name": "orders", "stage": "not_deleting", "deleted_keys": 0, "removed_keys": 0, "waits_for": ""}
    assert admin("POST", asked).json() == nothing
    admin("DELETE", "/keyspaces/orders")
    assert admin("POST", asked).json() == nothing | {"stage": "completed", "deleted_keys": 700, "removed_keys": 700}
    assert admin("GET", "/keyspaces/orders").json()["state"] == "DELETED"
    last = admin("GET", "/audit").json()["entries"][-1]
    assert (last["actor"], last["act"]) == ("ada", "complete")
    assert error_of(admin("POST", "/keyspaces/none:sweep")) == (404, "keyspace_not_found")


def test_a_sweep_ends_with_its_turn_and_goes_on_when_asked_again(
    engine: Engine, clock: ManualClock, admin: Ask, shop: Ask
) -> None:
    admin("PATCH", "/config", {"max-client-lease-seconds": 0})
    shop("POST", "/keyspaces", ORDERS)
    engine.commit(Commit((), tuple(Put(b"\x01%d" % number, b"") for number in range(700))))
    admin("DELETE", "/keyspaces/orders")
    clock.hurries_by = 3.0  # each look at the clock finds a turn of two seconds over
    first = admin("POST", "/keyspaces/orders:sweep").json()
    assert (first["stage"], first["removed_keys"]) == ("sweeping", 512)
    second = admin("POST", "/keyspaces/orders:sweep").json()
    assert (second["deleted_keys"], second["removed_keys"]) == (700, 188)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/registry"),
        ("POST", "/registry:init"),
        ("GET", "/registry/diagnosis"),
        ("POST", "/registry:repair"),
        ("POST", "/keyspaces/orders:sweep"),
    ],
)
def test_care_for_the_registry_is_for_administrators(shop: Ask, method: str, path: str) -> None:
    shop("POST", "/keyspaces", ORDERS)
    assert error_of(shop(method, path, {})) == (403, "forbidden")


# ---- the form of it all ----------------------------------------------------------------------------------------------


def test_a_405_names_every_method_of_the_path(admin: Ask) -> None:
    answer = admin("POST", "/keyspaces/orders", {})
    assert error_of(answer) == (405, "method_not_allowed")
    assert {method.strip() for method in answer.headers["allow"].split(",")} == {"GET", "HEAD", "PUT", "DELETE"}


def test_head_is_get_without_a_body(shop: Ask) -> None:
    shop("POST", "/keyspaces", ORDERS)
    answer = shop("HEAD", "/keyspaces/orders")
    assert (answer.status_code, answer.content) == (200, b"")


def test_the_description_tells_of_every_route_and_of_no_other(admin: Ask) -> None:
    described = {
        (method.upper(), path)
        for path, operations in admin("GET", "/openapi.json").json()["paths"].items()
        for method in operations
        if method != "parameters"
    }
    assert described == {
        ("GET", "/audit"),
        ("POST", "/audit:verify"),
        ("GET", "/audit-log"),
        ("GET", "/config"),
        ("PATCH", "/config"),
        ("GET", "/health"),
        ("GET", "/keyspaces"),
        ("POST", "/keyspaces"),
        ("GET", "/keyspaces/{id}"),
        ("PUT", "/keyspaces/{id}"),
        ("DELETE", "/keyspaces/{id}"),
        ("POST", "/keyspaces/{id}:disable"),
        ("POST", "/keyspaces/{id}:enable"),
        ("POST", "/keyspaces/{id}:sweep"),
        ("POST", "/keyspaces/{id}:undelete"),
        ("GET", "/keyspaces/{id}/history"),
        ("GET", "/keyspaces/{id}/quota"),
        ("PUT", "/keyspaces/{id}/quota"),
        ("GET", "/keyspaces/{id}/usage"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("GET", "/registry"),
        ("GET", "/registry/diagnosis"),
        ("POST", "/registry:init"),
        ("POST", "/registry:repair"),
        ("GET", "/version"),
    }
