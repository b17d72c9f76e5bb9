"""What a caller of an operation has to be granted, and what an audit log notes: every declared operation says both."""

from typing import Annotated, Any, NamedTuple

import pytest

from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.runm.wire_table import RUNM
from keyplan.operations import (
    ITSELF,
    NOTHING,
    Act,
    Change,
    Contract,
    Declared,
    Disclosure,
    In,
    Need,
    On,
    OnKind,
    Operation,
    Rpc,
    application,
    described,
    key_space,
    operation,
    operations_of,
    prefix,
    rpcs_of,
)
from tests.operations.declared import DECLARED, INTERFACES

# What is open, with the reason.
OPEN = {
    "getHealth",  # It says that the server is well, and
    "getVersion",  # which it is; both are asked before there is a token.
    "listKeySpaces",  # The answer has what the caller may see.
    "putUsersName",  # Who logs in is nobody yet; for the rest the operation asks who.
    "bootstrap",  # The token in the request is the grant.
    # What is asked for is asked of the caller's own store: what it may not see is not there.
    *("rangeEtcd", "watchEtcd", "getEtcdStatus", "listEtcdGateways", "authenticateEtcd"),
    # The gateways tell who and where they are, to whoever has a token; how busy they are is for who is granted that.
    *("getEtcdMachines", "getEtcdMembers", "getEtcdLeader", "getEtcdOwnStatistics", "getEtcdLeaderStatistics"),
    *(
        "enterExplorer",
        "exploreStore",
        "findKey",
        "exploreArea",
        "exploreReport",
        "exploreLevel",
        "exploreRecords",
        "exploreKey",
    ),
    *("exploreRawKeys", "exploreLive", "exploreRawLive", "streamChanges", "streamRawChanges"),
    *("listHepnosDatabases", "getHepnosValues", "listHepnosKeys", "countHepnosKeys", "putHepnosPairs", "commitHepnos"),
    *("listHepnosQueues", "createHepnosQueue", "destroyHepnosQueue", "enterHepnosQueue", "leaveHepnosQueue"),
    *("putHepnosItems", "takeHepnosItem", "settleHepnosItem", "lookAtHepnosQueue"),
    # Leases and history are the caller's own.
    *(
        "grantEtcdLease",
        "keepEtcdLeaseAlive",
        "revokeEtcdLease",
        "getEtcdLeaseTimeToLive",
        "listEtcdLeases",
        "compactEtcd",
    ),
}


@pytest.mark.parametrize("name", DECLARED)
def test_an_operation_says_what_it_needs(name: str) -> None:
    declared = DECLARED[name]
    act, on = declared.needs
    assert isinstance(act, Act)
    assert isinstance(on, On)
    assert bool(on.parameter) is (on.kind in {OnKind.KEY_SPACE, OnKind.APPLICATION, OnKind.PREFIX})
    assert (on == NOTHING) is (declared.name in OPEN)


def test_a_need_names_what_it_is_on() -> None:
    assert key_space("name") == On(OnKind.KEY_SPACE, "name")
    assert application("owner") == On(OnKind.APPLICATION, "owner")
    assert prefix("key") == On(OnKind.PREFIX, "key")


@pytest.mark.parametrize(
    ("method", "act", "changing"),
    [
        ("POST", Act.READ, []),
        ("POST", Act.AUDIT, []),
        ("POST", Act.WRITE, ["http", "grpc"]),
        ("POST", Act.ADMINISTER, ["http", "grpc"]),
        ("GET", Act.ADMINISTER, ["grpc"]),
    ],
)
def test_what_changes_something_says_what_and_nothing_else_does(method: str, act: Act, changing: list[str]) -> None:
    def call(self: object, **fields: Any) -> Any:
        raise NotImplementedError

    def http(change: Change | None) -> Declared:
        return Operation(
            name="call", function=call, needs=Need(act, ITSELF), change=change, method=method, path="/it", answers="It."
        )

    def grpc(change: Change | None) -> Declared:
        return Rpc(name="call", function=call, needs=Need(act, ITSELF), change=change, request="It", answer="It")

    for name, spoken in (("http", http), ("grpc", grpc)):
        change = Change("call it") if name in changing else None
        assert spoken(change).changes is (name in changing)
        with pytest.raises(ValueError, match="call changes "):
            spoken(None if change else Change("call it"))


def test_what_is_disclosed_is_noted_and_only_of_what_changes_nothing() -> None:
    def show(self: object, key: str) -> Any:
        raise NotImplementedError

    def declared(act: Act, **facts: Any) -> Operation:
        needs = Need(act, ITSELF)
        return Operation(name="show", function=show, needs=needs, method="POST", path="/it", answers="It.", **facts)

    disclosed = declared(Act.AUDIT, discloses=Disclosure("show", "{key}"))
    assert disclosed.noted == Disclosure("show", "{key}")
    assert not disclosed.changes
    with pytest.raises(ValueError, match="show has no parameter id"):
        declared(Act.READ, discloses=Disclosure("show", "{id}"))
    with pytest.raises(ValueError, match="leave out what it discloses"):
        declared(Act.WRITE, change=Change("put", "{key}"), discloses=Disclosure("show", "{key}"))


def test_what_discloses_is_what_it_is_known_for() -> None:
    assert {one.name for one in DECLARED.values() if one.discloses} == {"revealRecord", "getBinding"}


def test_a_subject_is_made_of_arguments_and_of_the_answer() -> None:
    class Made(NamedTuple):
        uuid: str

    given = {"name": "a{b}", "of": ["x", "y"], "answer": Made("u-1")}
    assert Change("init").subject_of(given) == ""
    assert Change("create", "{name}/{answer.uuid}: {of}").subject_of(given) == "a{b}/u-1: x,y"
    of_kinds = {"kind": Kind.RUN, "keys": [b"/a", b"\xff/", 7]}
    assert Change("put", "{kind}/{keys}").subject_of(of_kinds) == "runs//a,\\xff/,7"
    assert Change("create", "{name}/{answer.uuid}").named == {"name", "answer"}


def test_a_subject_names_parameters_that_there_are() -> None:
    def put(self: object, name: str, *, kind: str = "") -> Any:
        raise NotImplementedError

    facts: dict[str, Any] = {"name": "putIt", "answers": "It.", "needs": Need(Act.WRITE, ITSELF)}
    operation("PUT", "/it/{name}", change=Change("put", "{name}/{answer.number}"), **facts)(put)
    with pytest.raises(ValueError, match="putIt has no parameter id"):
        operation("PUT", "/it/{name}", change=Change("put", "{id}"), **facts)(put)
    with pytest.raises(ValueError, match="putIt has no parameter kind that is always given"):
        operation("PUT", "/it/{name}", change=Change("put", "{name}/{kind}"), **facts)(put)


@pytest.mark.parametrize("name", [name for name, one in DECLARED.items() if isinstance(one, Rpc) and one.change])
def test_a_subject_of_a_call_is_made_of_fields_of_its_messages(name: str) -> None:
    declared = DECLARED[name]
    assert isinstance(declared, Rpc)
    assert declared.change is not None
    request = getattr(RUNM.classes, declared.request)()
    given = {field.name: getattr(request, field.name) for field in RUNM.messages[declared.request]}
    assert declared.change.subject_of({**given, "answer": getattr(RUNM.classes, declared.answer)()}).strip("/") == ""


def test_two_acts_have_one_name_only_where_they_do_one_thing() -> None:
    for service, interfaces in INTERFACES.items():
        declared = [one for kind in interfaces for one in (*operations_of(kind).values(), *rpcs_of(kind).values())]
        acts = [one.change.act for one in declared if one.change]
        again = {act for act in acts if acts.count(act) > 1}
        assert again == ({"create partition", "set definition"} if service == "runm" else set())


def test_a_need_is_of_a_parameter_that_there_is() -> None:
    def get(self: object, name: str) -> Any:
        raise NotImplementedError

    with pytest.raises(ValueError, match="getIt has no parameter id"):
        operation("GET", "/it/{id}", name="getIt", answers="It.", needs=Need(Act.READ, key_space("id")))(get)


def test_what_is_needed_is_described_in_the_words_of_requests() -> None:
    class Shelves:
        @operation("GET", "/shelves", name="listShelves", answers="They.", needs=Need(Act.READ, NOTHING))
        def list(self) -> int:
            """List shelves."""
            raise NotImplementedError

        @operation("GET", "/shelves/all", name="countShelves", answers="It.", needs=Need(Act.AUDIT, ITSELF))
        def count(self) -> int:
            """Count shelves."""
            raise NotImplementedError

        @operation(
            "PUT",
            "/shelves/{id}",
            name="putShelf",
            answers="It.",
            needs=Need(Act.WRITE, key_space("shelf")),
            change=Change("put", "{shelf}"),
        )
        def put(self, shelf: Annotated[str, In("id")]) -> int:
            """Put a shelf."""
            raise NotImplementedError

    paths = described(operations_of(Shelves).values(), Contract("shelves"))["paths"]
    assert paths["/shelves"]["get"]["x-needs"] == {"act": "read", "on": "nothing"}
    assert paths["/shelves/all"]["get"]["x-needs"] == {"act": "audit", "on": "operation", "named": "countShelves"}
    assert paths["/shelves/{id}"]["put"]["x-needs"] == {"act": "write", "on": "key space", "named": "id"}
