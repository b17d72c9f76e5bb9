"""What may be declared with secrets: their places in what is stored, descriptions without them, and no index over one."""

import hashlib
import traceback
from secrets import token_hex
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan import Index, Layout, Secret, Table, Unique
from keyplan.codec import has_exact_paths, value_form_of
from keyplan.errors import CorruptionError, InvalidRecordError, LayoutError
from keyplan.layout import describe, differences, layout_of_description, plain_value
from keyplan.layout.describe import canonical_description
from tests.secrets.vault import NEEDLE, Account, Paper, Vault, account, traces


class Clear(msgspec.Struct, rename="camel"):
    """An Account without its secrets, as it was declared before."""

    user_name: str
    pass_word: str
    digest: bytes | None = None
    keys: list[dict[str, str]] = []
    tokens: dict[str, str] = {}
    pin: dict[str, Any] | None = None


def clear(secret: str) -> Clear:
    """What `account` returns, without secrets."""
    code = [{"name": "front", "code": secret}]
    return Clear("ada", secret, secret.encode(), code, {"api": secret}, {"digits": secret, "tries": 3})


@pytest.mark.parametrize("form", ["json", "msgpack"])
@given(secret=st.text(max_size=30))
def test_the_bytes_of_a_record_are_those_of_one_without_secrets(form: str, secret: str) -> None:
    # Why read with the field order of the class: a dict's keys are sorted when they are written.
    of_secrets, of_clear = (value_form_of(kind, form=form, is_text=True) for kind in (Account, Clear))
    module = msgspec.json if form == "json" else msgspec.msgpack
    raw = of_secrets.encode(account(secret))
    assert module.decode(raw) == module.decode(of_clear.encode(clear(secret)))
    assert of_secrets.decode(raw) == account(secret)


def test_where_secrets_stand_is_said_by_their_stored_names() -> None:
    assert {name: table.form.secrets for name, table in Vault.spec.tables.items()} == {
        "accounts": (("passWord",), ("digest",), ("keys", None, "code"), ("tokens", None), ("pin",)),
        "packed": (("passWord",), ("digest",), ("keys", None, "code"), ("tokens", None), ("pin",)),
        "doors": (("code",),),
        "locks": ((1,),),
        "papers": (("text",),),
        "words": ((),),
        "bytes_": ((),),
    }


@pytest.mark.parametrize("table", list(Vault.spec.tables))
@given(secret=st.text("abcdefgh", min_size=6, max_size=20))
def test_who_reads_by_a_description_sees_masks_and_writes_the_same_bytes(table: str, secret: str) -> None:
    described = layout_of_description(describe(Vault.spec)).tables[table].form
    form = Vault.spec.tables[table].form
    records = {
        "accounts": account(secret),
        "packed": account(secret),
        "words": Secret(secret),
        "bytes_": Secret(secret.encode()),
    }
    if table not in records:
        return
    raw = form.encode(records[table])
    read = described.decode(raw)
    assert not traces(repr(read) + repr(plain_value(read)), secret)
    assert described.encode(read) == raw
    assert described.secrets == form.secrets


def test_a_secret_changes_no_fingerprint_and_is_a_difference() -> None:
    class Words(Layout, root="/words/"):
        words = Table("{name}", key=str, value=str)

    class Hidden(Layout, root="/words/"):
        words = Table("{name}", key=str, value=Secret[str])

    prints = {hashlib.sha256(canonical_description(layout.spec)).hexdigest() for layout in (Words, Hidden)}
    assert len(prints) == 1
    found = [(change.code, change.impact.value) for change in differences(Words.spec, Hidden.spec)]
    assert ("E21", "compatible") in found
    assert {code for code, _ in found} <= {"E1", "E21"}


class Labelled(msgspec.Struct):
    name: str
    code: Secret[str]
    codes: list[Secret[str]] = []
    label: Secret[str] | None = None
    inner: Account | None = None


INDEXES: dict[str, Any] = {
    "by its name": lambda table: Unique("by/{code}", of=table, key=str),
    "bound": lambda table: Unique("by/{what}", of=table, key=str, bind={"what": "label"}),
    "bound within": lambda table: Unique("by/{what}", of=table, key=str, bind={"what": "inner.pass_word"}),
    "each": lambda table: Index("by/{one}/{key}", of=table, key=str, each={"one": "codes"}),
    "condition": lambda table: Unique("by/{name}", of=table, key=str, when={"code": "x"}),
}


@pytest.mark.parametrize("way", INDEXES)
def test_an_index_over_a_secret_is_refused(way: str) -> None:
    table = Table("all/{key}", key=str, value=Labelled)
    with pytest.raises(LayoutError, match="taken of a secret, and would stand readable in the keys of the index"):
        type("Wrong", (Layout,), {"table": table, "by": INDEXES[way](table)}, root="/x/")


class Tree(msgspec.Struct):
    code: Secret[str]
    below: "list[Tree]" = []


def test_a_secret_in_a_record_of_records_of_its_kind_and_one_in_another_have_no_place() -> None:
    for kind, problem in ((Tree, "holds records of its own kind"), (Secret[list[Secret[str]]], "holds another secret")):
        with pytest.raises(LayoutError, match=problem):
            _ = value_form_of(kind, form="json", is_text=True).secrets


# ---- pydantic's models -----------------------------------------------------------------------------------------------------


class Letter(pydantic.BaseModel):
    kind: str = "letter"
    seal: Annotated[Secret[str], pydantic.Field(alias="sealedWith")]


class Will(pydantic.BaseModel):
    kind: str = "will"
    heir: Secret[str]


class Mail(pydantic.BaseModel):
    """Unions of several classes, which msgspec describes none of."""

    main: Letter | Will
    more: list[Letter | Will] = []
    named: dict[str, Letter | Will] = {}
    pair: tuple[Letter | Will, int] | None = None
    plain: Annotated[int | str, pydantic.Field(description="no secret")] = 0


class Code(pydantic.RootModel[Secret[str]]):
    """It is stored as what it holds, without a name."""


class Codes(pydantic.RootModel[list[Secret[str]]]):
    pass


PLACES = [("main",), ("more", None), ("named", None), ("pair", 0)]


def test_secrets_in_unions_of_models_and_in_root_models_have_their_places() -> None:
    found = value_form_of(Mail, is_text=True).secrets
    assert set(found) == {(*place, name) for place in PLACES for name in ("sealedWith", "heir")}
    assert value_form_of(Code, is_text=True).secrets == ((),)
    assert value_form_of(Codes, is_text=True).secrets == ((None,),)


class Note(pydantic.BaseModel):
    kind: str = "note"
    heir: str


class Papers(pydantic.BaseModel):
    all: list[Will | Note]


def test_a_clear_field_in_the_place_of_a_secret_is_found_in_unions_of_models() -> None:
    assert has_exact_paths(Mail)
    assert value_form_of(Papers, is_text=True).secrets == (("all", None, "heir"),)
    assert not has_exact_paths(Papers)


def letter() -> Letter:
    return Letter.model_validate({"sealedWith": Secret(NEEDLE)})


class Post(Layout, root="/post/"):
    mail = Table("mail/{name}", key=str, value=Mail)
    code = Table("code/{name}", key=str, value=Code)
    codes = Table("codes/{name}", key=str, value=Codes)


def test_who_reads_models_by_a_description_sees_masks() -> None:
    mail = Mail(main=letter(), more=[letter()], named={"a": Will(heir=Secret(NEEDLE))}, pair=(letter(), 1))
    records = {"mail": mail, "code": Code(Secret(NEEDLE)), "codes": Codes([Secret(NEEDLE)])}
    described = layout_of_description(describe(Post.spec)).tables
    for name, record in records.items():
        raw = Post.spec.tables[name].form.encode(record)
        assert NEEDLE.encode() in raw
        read = described[name].form.decode(raw)
        assert not traces(repr(read) + repr(plain_value(read))), name
        assert described[name].form.encode(read) == raw


def test_a_models_error_quotes_no_value_in_its_text_or_its_traceback() -> None:
    form = value_form_of(Paper, is_text=True)
    wrong = Paper(title="a", text=Secret(NEEDLE))
    wrong.text = Secret([NEEDLE])  # type: ignore[arg-type]  # Why: a value of another type.
    with pytest.raises(InvalidRecordError, match="string_type at text") as refused:
        form.encode(wrong)
    with pytest.raises(CorruptionError, match="string_type at text") as damaged:
        form.decode(b'{"title":"a","text":["' + NEEDLE.encode() + b'"]}')
    for error in (refused.value, damaged.value):
        shown = "".join(traceback.format_exception(error))
        assert not traces(shown.replace("NEEDLE", ""))
        assert (error.__cause__, error.__context__) == (None, None)


# ---- defaults ----------------------------------------------------------------------------------------------------------------


class Guarded(msgspec.Struct):
    empty: Secret[str] = msgspec.field(default_factory=lambda: Secret(""))
    known: Secret[str] = msgspec.field(default_factory=lambda: Secret(NEEDLE))
    new: Secret[str] = msgspec.field(default_factory=lambda: Secret(token_hex()))


def test_a_description_shows_no_default_of_a_secret_that_is_not_empty() -> None:
    form = value_form_of(Guarded, form="json", is_text=True)
    properties = form.describe()["schema"]["$defs"]["Guarded"]["properties"]
    assert {name: one["default"] for name, one in properties.items()} == {"empty": "", "known": "***", "new": "***"}
    # What a function makes anew each time changes no fingerprint.
    assert form.describe() == form.describe()
