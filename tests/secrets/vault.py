"""A layout with a secret in every form that values are stored in, and what must not be seen of it."""

import base64
import dataclasses
from typing import Any, NamedTuple

import msgspec
import pydantic

from keyplan import Index, Layout, Secret, SecretKeys, Table
from keyplan.engine import Engine
from keyplan.store import Store

__all__ = [
    "NAME",
    "NEEDLE",
    "Account",
    "Door",
    "DoorKey",
    "Key",
    "Lock",
    "MovedVault",
    "OpenVault",
    "Vault",
    "filled",
    "traces",
]

NAME = "tests.secrets.vault:Vault"
NEEDLE = "correct-horse-battery"
"""The secret of every record."""


class Pin(msgspec.Struct, frozen=True):
    """A secret record."""

    digits: str
    tries: int


class Key(msgspec.Struct, frozen=True):
    """What a door may be opened with."""

    name: str
    code: Secret[str]


class Account(msgspec.Struct, rename="camel"):
    user_name: str
    pass_word: Secret[str]
    digest: Secret[bytes] | None = None
    keys: list[Key] = []
    tokens: dict[str, Secret[str]] = {}
    pin: Secret[Pin] | None = None


@dataclasses.dataclass
class Door:
    place: str
    code: Secret[str]


class DoorKey(NamedTuple):
    house: str
    door: str


class Lock(msgspec.Struct, array_like=True):
    maker: str
    code: Secret[bytes]


class Paper(pydantic.BaseModel):
    title: str
    text: Secret[str]


class Vault(Layout, root="/vault/"):
    """Secrets in every form."""

    accounts = Table("accounts/{name}", key=str, value=Account)
    packed = Table("packed/{name}", key=str, value=Account, form="msgpack")
    doors = Table("doors/{house}/{door}", key=DoorKey, value=Door)
    locks = Table("locks/{name}", key=str, value=Lock)
    papers = Table("papers/{name}", key=str, value=Paper)
    words = Table("words/{name}", key=str, value=Secret[str])
    bytes_ = Table("bytes/{name}", key=str, value=Secret[bytes])
    by_user = Index("by_user/{user}/{name}", of=accounts, key=str, bind={"user": "user_name"})


class MovedVault(Layout, root="/moved-vault/"):
    """The vault at another place."""

    accounts = Table("accounts/{name}", key=str, value=Account)
    packed = Table("packed/{name}", key=str, value=Account, form="msgpack")
    doors = Table("doors/{house}/{door}", key=DoorKey, value=Door)
    locks = Table("locks/{name}", key=str, value=Lock)
    papers = Table("papers/{name}", key=str, value=Paper)
    words = Table("words/{name}", key=str, value=Secret[str])
    bytes_ = Table("bytes/{name}", key=str, value=Secret[bytes])
    by_user = Index("by_user/{user}/{name}", of=accounts, key=str, bind={"user": "user_name"})


class OpenDoor(msgspec.Struct):
    """A door whose code is no secret any more."""

    code: str
    number: int = 0


class OpenVault(Layout, root="/open-vault/"):
    """The vault at another place, with the words and the doors in clear."""

    doors = Table("doors/{house}/{door}", key=DoorKey, value=OpenDoor)
    words = Table("words/{name}", key=str, value=str)


def account(secret: str = NEEDLE) -> Account:
    """Return an account whose secrets are all this one."""
    return Account(
        "ada",
        Secret(secret),
        Secret(secret.encode()),
        [Key("front", Secret(secret))],
        {"api": Secret(secret)},
        Secret(Pin(secret, 3)),
    )


def filled(engine: Engine, secret: str = NEEDLE, *, secrets: SecretKeys | None = None) -> Vault:
    """Return the layout on an engine, with a record in each table; sealed with keys."""
    vault = Vault(Store(engine, secrets=secrets))
    vault.accounts.insert("ada", account(secret))
    vault.packed.insert("ada", account(secret))
    vault.doors.insert(DoorKey("h1", "d1"), Door("cellar", Secret(secret)))
    vault.locks.insert("l1", Lock("acme", Secret(secret.encode())))
    vault.papers.insert("p1", Paper(title="a will", text=Secret(secret)))
    vault.words.insert("w1", Secret(secret))
    vault.bytes_.insert("b1", Secret(secret.encode()))
    return vault


def traces(text: str, secret: str = NEEDLE) -> list[str]:
    """Return the spellings of the secret that stand in a text: as it is, in base64, in hexadecimal digits."""
    raw = secret.encode()
    spelled: dict[str, Any] = {
        "text": secret,
        "json": msgspec.json.encode(secret).decode()[1:-1],
        "hex": raw.hex(),
        "spaced hex": raw.hex(" "),
        # Why without the last three: what follows the secret decides them.
        **{f"base64 {shift}": base64.b64encode(b"x" * shift + raw).decode()[4:-4] for shift in range(3)},
    }
    return [name for name, spelling in spelled.items() if len(spelling) >= 4 and spelling in text]
