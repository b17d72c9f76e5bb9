"""What a caller of an operation has to be granted: every declared operation says it, and whether it changes something."""

from typing import Annotated, Any

import pytest

from keyplan.operations import (
    ITSELF,
    NOTHING,
    Act,
    Contract,
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
)
from tests.operations.declared import DECLARED

# What is open, with the reason.
OPEN = {
    "listKeySpaces",  # The answer has what the caller may see.
    "putUsersName",  # Who logs in is nobody yet; for the rest the operation asks who.
    "bootstrap",  # The token in the request is the grant.
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
def test_what_is_granted_to_read_or_audit_changes_nothing(method: str, act: Act, changing: list[str]) -> None:
    def call(self: object, **fields: Any) -> Any:
        raise NotImplementedError

    needs = Need(act, ITSELF)
    declared = Operation(name="callIt", function=call, needs=needs, method=method, path="/it", answers="It.")
    spoken = {"http": declared, "grpc": Rpc(name="call", function=call, needs=needs, request="It", answer="It")}
    assert [name for name, one in spoken.items() if one.changes] == changing


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

        @operation("PUT", "/shelves/{id}", name="putShelf", answers="It.", needs=Need(Act.WRITE, key_space("shelf")))
        def put(self, shelf: Annotated[str, In("id")]) -> int:
            """Put a shelf."""
            raise NotImplementedError

    paths = described(operations_of(Shelves).values(), Contract("shelves"))["paths"]
    assert paths["/shelves"]["get"]["x-needs"] == {"act": "read", "on": "nothing"}
    assert paths["/shelves/all"]["get"]["x-needs"] == {"act": "audit", "on": "operation", "named": "countShelves"}
    assert paths["/shelves/{id}"]["put"]["x-needs"] == {"act": "write", "on": "key space", "named": "id"}
