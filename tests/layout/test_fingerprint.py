"""What a layout's fingerprint rests on: what decides stored bytes, and no explanation of it."""

from typing import Annotated, Any

import msgspec
import pytest

import keyplan
from keyplan.errors import InvalidPageTokenError
from keyplan.layout import Layout, Table


def shop(description: str, *, field: str = "price", limit: int = 9, told: str = "none") -> type[Any]:
    class Item(msgspec.Struct, frozen=True):
        description: str = "none"

    Item.__doc__ = description
    numbers = Annotated[int, msgspec.Meta(le=limit, description=description)]
    record = msgspec.defstruct(
        "Record",
        [("description", str), ("inner", Item | None), (field, numbers), ("told", Item, Item(told))],
    )
    record.__doc__ = description

    class Shop(Layout, root="/shop/"):
        items = Table("items/{item}", key=str, value=record)

    return Shop


def test_docstrings_and_descriptions_change_no_fingerprint() -> None:
    assert shop("A record.").bound().fingerprint == shop("Another text.").bound().fingerprint


@pytest.mark.parametrize("other", [{"field": "cost"}, {"limit": 10}, {"told": "a default"}])
def test_what_decides_bytes_does(other: dict[str, Any]) -> None:
    assert shop("A record.").bound().fingerprint != shop("A record.", **other).bound().fingerprint


def test_a_page_token_outlives_a_changed_docstring() -> None:
    with keyplan.open("memory:") as store:
        before, after = shop("A record.")(store), shop("A record, explained.")(store)
        record: Any = type(before).bound().tables["items"].form.value_type
        for name in "abc":
            before.items.insert(name, record("d", None, 1))

        token = before.items.page(limit=1).next_token

        assert [key for key, _ in after.items.page(token=token).records] == ["b", "c"]
        with pytest.raises(InvalidPageTokenError):
            shop("A record.", field="cost")(store).items.page(token=token)
