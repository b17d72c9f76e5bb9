"""A case that needs nothing of keyplan: it shows that the harness sees a planted mistake and a revealed type."""

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from keyplan.errors import NotFoundError

K = TypeVar("K")
V = TypeVar("V")


class RackKey(NamedTuple):
    region: str
    rack: int


class Shelf(Generic[K, V]):
    def get(self, key: K) -> V | None:
        raise NotFoundError(key=key)

    def list(self) -> Iterator[tuple[K, V]]:
        raise NotFoundError


shelf = Shelf[RackKey, bytes]()
reveal_type(shelf.get(RackKey("west", 1)))  # revealed: bytes | None
reveal_type(list(shelf.list()))  # revealed: list[tuple[RackKey, bytes]]
reveal_type(RackKey("west", 1).rack)  # revealed: int
reveal_type(shelf.get)  # revealed: mypy=def (key: RackKey) -> bytes | None; pyright=(key: RackKey) -> (bytes | None)

shelf.get("west")  # expect: mypy[arg-type] pyright[reportArgumentType]
RackKey("west", "1")  # error
number: int = shelf.get(RackKey("west", 1))  # expect: mypy[assignment] pyright[reportAssignmentType]
shelf.put(1)  # expect: mypy[attr-defined] pyright[reportAttributeAccessIssue] pyright[reportUnknownMemberType]
