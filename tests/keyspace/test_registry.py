"""Records of key spaces: made, described, listed, moved. AC numbers are the specification's cases."""

import itertools
from collections.abc import Callable

import pytest

from keyplan.engine import Commit as EngineCommit
from keyplan.engine import Delete, Engine, Put
from keyplan.errors import (
    ForbiddenError,
    IllegalTransitionError,
    ImmutableFieldError,
    InvalidArgumentError,
    InvalidNameError,
    KeySpaceApiDisabledError,
    KeySpaceDeletedError,
    KeySpaceDeletingError,
    KeySpaceError,
    KeySpaceExistsError,
    KeySpaceNotFoundError,
    KeySpaceProtectedError,
    KeySpaceRestoringError,
    OwnerConflictError,
    SelfRegistrationDisabledError,
)
from keyplan.keyspace import Founding, KeySpace, KeySpaces, RegistryOperations, Role, State
from keyplan.operations import operations_of
from keyplan.testing.faults import FakeClock
from tests.keyspace.stores import names_of, swept


def test_ac_16_a_new_key_space_has_the_json_of_the_contract(memory: Engine) -> None:
    registry = KeySpaces(memory, founding=Founding(skip_printable=False), clock=FakeClock())
    assert registry.create("orders", "shop").to_json() == {
        "id": "orders",
        "name": "orders",
        "application": "shop",
        "description": "",
        "prefix": "01",
        "prefix_number": 1,
        "range": {"start": "01", "end": "02"},
        "state": "ENABLED",
        "generation": 1,
        "created_at": "2023-11-14T22:13:20Z",
        "deleted_at": None,
        "delete_completed_at": None,
    }
    assert KeySpace.from_json(registry.get("orders").to_json()) == registry.get("orders")


@pytest.mark.parametrize(
    "name",
    ["a/b", "", ".", "..", "-a", ".a", "a b", "n" * 65, "a\x00", "\u00e9", "keyspace:1", "keyspace?limit=1", "a\n"],
)
def test_ac_17_what_is_no_name_is_refused(registry: KeySpaces, name: str) -> None:
    with pytest.raises(InvalidNameError) as caught:
        registry.create(name, "shop")
    assert (caught.value.code, caught.value.http_status) == ("invalid_name", 400)


@pytest.mark.parametrize("name", ["n" * 64, "a", "0", "_", "a.b-c_D", "18446744073709551615"])
def test_what_is_a_name_is_taken(memory: Engine, name: str) -> None:
    assert KeySpaces(memory).create(name, "shop").id == name


@pytest.mark.parametrize("application", ["", "a" * 129])
def test_ac_17_an_application_is_required_and_bounded(memory: Engine, application: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        KeySpaces(memory).create("orders", application)
    assert (caught.value.argument, caught.value.http_status) == ("application", 400)


def test_ac_18_a_name_is_taken_once(registry: KeySpaces) -> None:
    first = registry.create("orders", "shop")
    with pytest.raises(KeySpaceExistsError) as exists:
        registry.create("orders", "shop")
    assert (exists.value.http_status, exists.value.state, exists.value.application) == (409, "ENABLED", "shop")
    assert registry.ensure("orders", "shop") == (first, False)
    assert registry.create("orders", "shop", if_not_exists=True) == first
    with pytest.raises(OwnerConflictError):
        registry.ensure("orders", "bank")
    assert registry.ensure("users", "shop").is_new


def test_ac_19_only_the_description_changes(registry: KeySpaces) -> None:
    before = registry.create("orders", "shop", description="old")
    after = registry.update("orders", "new")
    assert after.to_json() == {**before.to_json(), "description": "new"}
    assert registry.update("orders", "", {"name": "orders", "prefix": "01", "description": ""}).description == ""
    with pytest.raises(ImmutableFieldError) as caught:
        registry.update("orders", "x", {"prefix": "05", "name": "orders", "color": "red"})
    assert (caught.value.http_status, caught.value.fields) == (422, ["color", "prefix"])
    with pytest.raises(InvalidArgumentError):
        registry.update("orders", None)
    assert registry.get("orders").description == ""


def test_a_new_description_leaves_the_fence_as_it_is(engine: Engine, registry: KeySpaces) -> None:
    registry.create("orders", "shop")

    def fence_entry() -> object:
        with engine.snapshot() as snapshot:
            return snapshot.get(b"\x00kp\x03orders\x00")

    before = fence_entry()
    registry.update("orders", "new")
    assert fence_entry() == before


def test_ac_21_what_is_not_there_is_told(registry: KeySpaces) -> None:
    for call in (registry.get, registry.delete, registry.disable, registry.history, registry.usage):
        with pytest.raises(KeySpaceNotFoundError) as caught:
            call("none")
        assert (caught.value.code, caught.value.http_status) == ("keyspace_not_found", 404)
    with pytest.raises(KeySpaceNotFoundError):
        registry.get("no/name")
    assert registry.list().to_json() == {"keyspaces": [], "next_page_token": ""}


def test_ac_22_pages_follow_the_order_of_making(registry: KeySpaces) -> None:
    for name in ("e", "d", "c", "b", "a"):
        registry.create(name, "app")
    pages, token = [], ""
    for number in itertools.count():
        page = registry.list(limit=2, page_token=token)
        pages.append([keyspace.name for keyspace in page.keyspaces])
        token = page.next_page_token
        if number == 0:
            registry.create("later", "app")
            registry.update("e", "seen already")
        if not token:
            break
    assert pages == [["e", "d"], ["c", "b"], ["a", "later"]]


@pytest.mark.parametrize("token", ["x", "-1", "1.5", "9" * 40, "\u0661"])
def test_a_page_token_that_no_list_gave_is_refused(memory: Engine, token: str) -> None:
    with pytest.raises(InvalidArgumentError):
        KeySpaces(memory).list(page_token=token)


@pytest.mark.parametrize(
    "application", ["shop ", " shop", "sh op", "sh\0op", "*", "sh*", "sh\nop", "sh\x1bop", "sh\u00a0op"]
)
def test_an_application_that_no_grant_could_name_is_refused_with_the_name(
    registry: KeySpaces, application: str
) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        registry.create("orders", application)
    assert refused.value.facts["argument"] == "application"
    assert repr(application) in str(refused.value.facts["problem"])
    assert not registry.list().keyspaces


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_limit_has_bounds(memory: Engine, limit: int) -> None:
    with pytest.raises(InvalidArgumentError):
        KeySpaces(memory).list(limit=limit)


def test_ac_23_filters_find_by_name_prefix_key_application_and_state(registry: KeySpaces) -> None:
    registry.create("orders", "shop")
    registry.adopt("meta", "tidb", "6d")
    registry.adopt("data", "tidb", "74")
    registry.disable("data")

    def found(**filters: object) -> list[str]:
        return [keyspace.name for keyspace in registry.list(**filters).keyspaces]  # type: ignore[arg-type]  # Why: a table of cases

    assert found(name="orders") == ["orders"]
    assert found(prefix="6D") == ["meta"]
    assert found(key="6d4400") == ["meta"]
    assert found(key="7e") == []
    assert found(application="tidb") == ["meta", "data"]
    assert found(state=State.DISABLED) == ["data"]
    assert found(application="tidb", state=State.ENABLED, prefix="6d") == ["meta"]
    assert found(name="nobody") == []


def test_tombstones_are_listed_when_they_are_asked_for(registry: KeySpaces) -> None:
    registry.create("orders", "shop")
    registry.create("users", "shop")
    swept(registry, "orders")
    assert names_of(registry) == ["users"]
    assert [found.name for found in registry.list(include_deleted=True).keyspaces] == ["orders", "users"]
    assert [found.name for found in registry.list(state=State.DELETED).keyspaces] == ["orders"]


# ---- moves ---------------------------------------------------------------------------------------------------------------


def in_state(registry: KeySpaces, state: State) -> None:
    """Make "orders" and bring it into a state."""
    if state is State.RESTORING:
        registry.begin_restore("orders", "shop")
        return
    registry.create("orders", "shop")
    if state is State.DISABLED:
        registry.disable("orders")
    if state is State.DELETING:
        registry.delete("orders")
    if state is State.DELETED:
        swept(registry, "orders")


MOVES = {
    (State.ENABLED, "disable"): State.DISABLED,
    (State.ENABLED, "enable"): State.ENABLED,
    (State.ENABLED, "delete"): State.DELETING,
    (State.DISABLED, "disable"): State.DISABLED,
    (State.DISABLED, "enable"): State.ENABLED,
    (State.DISABLED, "delete"): State.DELETING,
    (State.DELETING, "delete"): State.DELETING,
    (State.DELETING, "undelete"): State.ENABLED,
    (State.DELETED, "delete"): State.DELETED,
    (State.RESTORING, "delete"): State.DELETING,
}


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("verb", ["disable", "enable", "delete", "undelete"])
def test_the_legal_moves_are_these_and_no_others(memory: Engine, state: State, verb: str) -> None:
    registry = KeySpaces(memory)
    in_state(registry, state)
    before = registry.get("orders")
    to = MOVES.get((state, verb))
    if to is None:
        with pytest.raises(IllegalTransitionError) as caught:
            getattr(registry, verb)("orders")
        assert (caught.value.http_status, caught.value.state) == (409, str(state))
        assert registry.get("orders") == before
    else:
        assert getattr(registry, verb)("orders").state is to
    fence = registry.fence("orders")
    assert fence is not None
    assert fence.state is registry.get("orders").state
    assert registry.diagnose().faults == []


def test_undelete_goes_back_to_the_state_before(registry: KeySpaces) -> None:
    in_state(registry, State.DISABLED)
    registry.delete("orders")
    back = registry.undelete("orders")
    assert (back.state, back.deleted_at) == (State.DISABLED, None)
    assert registry.deletion("orders") is None


def test_ac_37_a_deletion_is_begun_once_and_refuses_the_rest(memory: Engine) -> None:
    clock = FakeClock()
    registry = KeySpaces(memory, clock=clock)
    registry.create("orders", "shop")
    begun = registry.delete("orders")
    clock.advance(5)
    assert registry.delete("orders") == begun
    assert begun.deleted_at == "2023-11-14T22:13:20Z"
    assert begun.delete_completed_at is None
    with pytest.raises(KeySpaceDeletedError):
        registry.update("orders", "x")
    with pytest.raises(KeySpaceDeletingError):
        registry.create("orders", "shop")
    with pytest.raises(KeySpaceDeletingError):
        registry.ensure("orders", "shop")


def test_a_name_that_is_used_again_is_the_next_generation_with_a_history(registry: KeySpaces) -> None:
    registry.create("orders", "shop", description="first")
    swept(registry, "orders")
    tombstone = registry.get("orders")
    second = registry.create("orders", "bank")
    assert (second.generation, second.application, second.state) == (2, "bank", State.ENABLED)
    assert registry.history("orders") == [tombstone]
    assert names_of(registry) == ["orders"]
    assert registry.diagnose().faults == []


def test_a_protected_key_space_is_not_deleted(registry: KeySpaces) -> None:
    registry.create("orders", "shop")
    registry.configure({"protected": ["orders"]})
    with pytest.raises(KeySpaceProtectedError):
        registry.delete("orders")
    registry.configure({"protected": []})
    assert registry.delete("orders").state is State.DELETING


# ---- restoring -----------------------------------------------------------------------------------------------------------


def test_a_restore_makes_a_key_space_that_opens_at_its_end(registry: KeySpaces) -> None:
    begun = registry.begin_restore("orders", "shop", description="back", prefix="05")
    assert (begun.state, begun.prefix, begun.description) == (State.RESTORING, "05", "back")
    with pytest.raises(KeySpaceRestoringError):
        registry.create("orders", "shop")
    assert registry.finish_restore("orders", begun.generation).state is State.ENABLED
    with pytest.raises(IllegalTransitionError):
        registry.finish_restore("orders", begun.generation)


def test_an_overwriting_restore_is_the_next_generation_under_the_same_prefix(registry: KeySpaces) -> None:
    before = registry.create("orders", "shop")
    begun = registry.begin_overwrite("orders", application="bank")
    assert (begun.generation, begun.prefix, begun.application, begun.state) == (
        2,
        before.prefix,
        "bank",
        State.RESTORING,
    )
    assert [past.generation for past in registry.history("orders")] == [1]
    again = registry.begin_overwrite("orders")
    with pytest.raises(KeySpaceError) as caught:
        registry.finish_restore("orders", begun.generation)
    assert caught.value.code == "generation_mismatch"
    assert registry.finish_restore("orders", again.generation, state=State.DISABLED).state is State.DISABLED
    assert registry.diagnose().faults == []


# ---- who may -------------------------------------------------------------------------------------------------------------


def test_ac_24_before_the_api_is_enabled_only_administrators_reach_the_registry(memory: Engine) -> None:
    registry = KeySpaces(memory)
    client = registry.acting_as(Role.CLIENT, "shop")
    memory.commit(EngineCommit((), (Put(b"m1", b""), Put(b"t1", b""))))
    with pytest.raises(KeySpaceApiDisabledError):
        client.get("meta")
    for name, prefix in (("meta", "6d"), ("data", "74")):
        registry.adopt(name, "tidb", prefix)
    for call in (lambda: client.get("meta"), client.list, lambda: client.create("x", "shop")):
        with pytest.raises(KeySpaceApiDisabledError) as caught:
            call()
        assert (caught.value.code, caught.value.http_status) == ("keyspace_api_disabled", 501)
    registry.configure({"keyspace-api-enabled": True})
    assert client.get("meta").prefix == "6d"


def test_ac_26_self_registration_can_be_switched_off(memory: Engine) -> None:
    registry = KeySpaces(memory)
    registry.configure({"keyspace-api-enabled": True, "self-registration-enabled": False})
    client = registry.acting_as(Role.CLIENT, "shop")
    for call in (client.create, client.ensure):
        with pytest.raises(SelfRegistrationDisabledError) as caught:
            call("orders", "shop")
        assert caught.value.http_status == 403
    registry.create("orders", "shop")
    assert client.ensure("orders", "shop").is_new is False


def test_clients_make_and_read_and_describe_and_no_more(memory: Engine) -> None:
    registry = KeySpaces(memory)
    registry.configure({"keyspace-api-enabled": True})
    client = registry.acting_as(Role.CLIENT, "shop")
    client.create("orders", "shop")
    client.update("orders", "ours")
    for call in (client.disable, client.enable, client.delete, client.undelete):
        with pytest.raises(ForbiddenError):
            call("orders")
    with pytest.raises(ForbiddenError):
        client.configure({"keyspace-api-enabled": False})
    with pytest.raises(ForbiddenError):
        client.create("old", "shop", prefix="05", adopt_existing_data=True)
    with pytest.raises(ForbiddenError):
        list(client.audit())


@pytest.mark.parametrize(
    "changes",
    [
        {"keyspace-api": True},
        {"keyspace-api-enabled": "yes"},
        {"prefix-bytes-max": 5},
        {"prefix-bytes-max": 0},
        {"max-client-lease-seconds": -1},
        {"reuse-cooldown-seconds": 1e12},
        {"protected": ["a/b"]},
        {"reservations": ["xyz"]},
        {"reservations": [""]},
    ],
    ids=str,
)
def test_what_no_switch_can_be_is_refused(memory: Engine, changes: dict[str, object]) -> None:
    registry = KeySpaces(memory)
    before = registry.configuration()
    with pytest.raises(InvalidArgumentError):
        registry.configure(changes)
    assert registry.configuration() == before


def test_a_registry_is_made_once(registry: KeySpaces) -> None:
    header = registry.init(prefix_codec="ordered", profile="etcd")
    assert registry.init() == header
    with pytest.raises(InvalidArgumentError):
        registry.init(prefix_codec="uvarint")
    with pytest.raises(InvalidArgumentError):
        registry.init(profile="mysql")


# ---- audit ---------------------------------------------------------------------------------------------------------------


def test_every_act_has_one_entry_that_names_who_did_it(memory: Engine) -> None:
    registry = KeySpaces(memory, actor="ann")
    registry.create("orders", "shop")
    registry.acting_as(Role.ADMIN, "bob").disable("orders")
    registry.disable("orders")
    registry.ensure("orders", "shop")
    log = [(item.number, item.entry.actor, item.entry.act, item.entry.name) for item in registry.audit()]
    assert log == [(1, "ann", "create", "orders"), (2, "bob", "disable", "orders")]
    assert [item.number for item in registry.audit(after=1)] == [2]


def test_an_entry_has_the_act_and_the_subject_that_the_operation_declares(memory: Engine) -> None:
    registry = KeySpaces(memory)

    def repair() -> None:
        memory.commit(EngineCommit((), (Delete(b"\x00kp\x03a\x00"),)))
        assert registry.repair()

    performed: dict[str, Callable[[], object]] = {
        "init": registry.init,
        "configure": lambda: registry.configure({"reuse-cooldown-seconds": 5}),
        "create": lambda: registry.create("a", "shop"),
        "update": lambda: registry.update("a", "words"),
        "set_quota": lambda: registry.set_quota("a", keys=3),
        "disable": lambda: registry.disable("a"),
        "enable": lambda: registry.enable("a"),
        "repair": repair,
        "delete": lambda: registry.delete("a"),
        "undelete": lambda: registry.undelete("a"),
        "sweep": lambda: swept(registry, "a"),
    }
    declared = operations_of(RegistryOperations)
    assert performed.keys() == {name for name, one in declared.items() if one.change is not None}
    for name, perform in performed.items():
        perform()
        *_, last = registry.audit()
        change = declared[name].change
        assert change is not None
        assert (last.entry.act, last.entry.name) == (change.act, change.subject_of({"name": "a"})), name


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_log_that_was_tampered_with_does_not_verify(registry: KeySpaces, engine: Engine, number: int) -> None:
    for name in ("a", "b", "c", "d"):
        registry.create(name, "app")
    assert registry.verify_audit().is_whole
    key = b"\x00kp\x04" + number.to_bytes(8, "big")
    with engine.snapshot() as snapshot:
        entry = snapshot.get(key)
    assert entry is not None
    engine.commit(EngineCommit((), (Put(key, entry.value.replace(b'"actor":"admin"', b'"actor":"nobod"')),)))
    verdict = registry.verify_audit()
    assert (verdict.is_whole, verdict.broken_at) == (False, number)
