"""Who lives in the store that is attacked: two tenants, a cell, an auditor, somebody without grants; and what each has.

    /bank/known, /bank/hidden7f3a       key space `ledger` of the application bank: what all the others try to reach
    /shop/known                         key space `orders` of the application shop
    /service/batman/known               granted to a cell by its prefix
    /bankrupt/known                     nobody's: its key begins as the bank's do, but for the slash
    /cave/...                           what never was: attacked too, to see whether the answers differ

Values that nobody but their owner may see hold VALUE; the hidden key's name is spelled by no attack.
"""

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from keyplan.engine import ALL_KEYS, Commit, Engine, Put
from keyplan.keyspace import Founding, KeySpaces

__all__ = [
    "BANK",
    "HIDDEN",
    "MARKERS",
    "NEIGHBOUR",
    "NOBODY",
    "OWNER",
    "SENTINEL",
    "TOKENS",
    "VALUE",
    "VOID",
    "Grants",
    "Place",
    "World",
    "policy_of",
    "spellings",
]

VALUE: Final = "secret9c1e"
HIDDEN: Final = "hidden7f3a"
SENTINEL: Final = "sentinel5b2d"
"""The value that ends a watch: of a key of the one who watches, written after what they must not be told of."""

MARKERS: Final = (VALUE, HIDDEN)


class Place(NamedTuple):
    """A share of the store: its key space, the application that this is for, and what its keys begin with."""

    keyspace: str
    application: str
    prefix: str

    @property
    def known(self) -> str:
        """A key whose name everybody can guess."""
        return self.prefix + "known"

    @property
    def hidden(self) -> str:
        """A key whose name is to stay hidden."""
        return self.prefix + HIDDEN


# Why all of one length, and no key of anybody between the bank and the cave: what is told of the two is compared.
BANK: Final = Place("ledger", "bank", "/bank/")
SHOP: Final = Place("orders", "shop", "/shop/")
VOID: Final = Place("nought", "cave", "/cave/")
NEIGHBOUR: Final = Place("bankers", "bankrupt", "/bankrupt/")
CELL_PREFIX: Final = "/service/batman/"

OWNER: Final = "bank"
NOBODY: Final = "nobody"
"""Who has no token."""

NAMES: Final = ("ada", "bank", "shop", "cell", "reader", "auditor", "nothing")
TOKENS: Final = {name: f"the-token-of-{name}-0123456789abcdef" for name in NAMES}

Grants = dict[str, str]
"""For each act what it is granted on; several targets have blanks between them."""

GRANTS: Final[dict[str, Grants]] = {
    "ada": dict.fromkeys(("read", "write", "administer", "audit"), "everything"),
    "bank": dict.fromkeys(("read", "write", "administer"), "application:bank"),
    "shop": dict.fromkeys(("read", "write", "administer"), "application:shop"),
    "cell": dict.fromkeys(("read", "write"), f"prefix:{CELL_PREFIX}"),
    "reader": {"read": "application:bank"},
    "auditor": {"audit": "everything"},
    "nothing": {},
}


def policy_of(grants: dict[str, Grants]) -> str:
    """Return the access file of these principals."""
    return "".join(
        f'[principals.{name}]\ntokens = ["sha256:{sha256(TOKENS[name].encode()).hexdigest()}"]\n'
        + "".join(f"{act} = {on.split()}\n" for act, on in acts.items())
        + "\n"
        for name, acts in grants.items()
    )


def spellings(text: str) -> Iterator[str]:
    """Yield how a text may stand in an answer: as it is, in hexadecimal digits, or inside a longer text in base64."""
    raw = text.encode()
    yield text
    yield raw.hex()
    for skipped in range(3):
        # Why cut: the characters at both ends depend on what stands beside the text.
        whole = b64encode(b"\x00" * skipped + raw).decode().rstrip("=")
        yield whole[(skipped * 4 + 2) // 3 : len(whole) - 1]


class World:
    """The store with everybody in it. Another protocol may lay its own data into the places: see Row.settle."""

    def __init__(self, engine: Engine, file: Path) -> None:
        self.engine = engine
        self.file = file
        self.registry = KeySpaces(engine, founding=Founding(prefix_codec="uvarint", profile="none"))
        self.registry.configure({"keyspace-api-enabled": True, "reuse-cooldown-seconds": 0})
        for place in (BANK, SHOP):
            self.adopt(place)
        pairs = {place.known: VALUE for place in (BANK, NEIGHBOUR)} | {BANK.hidden: VALUE}
        pairs |= {SHOP.known: "of the shop", CELL_PREFIX + "known": "of the cell"}
        self.put(pairs)
        self.grants = {name: dict(acts) for name, acts in GRANTS.items()}
        self.write_file()

    def adopt(self, place: Place, *, name: str | None = None, application: str | None = None) -> None:
        """Make a place the key space of an application."""
        raw = place.prefix.encode().hex()
        self.registry.adopt(name or place.keyspace, application or place.application, raw, allow_legacy_prefix=True)

    def put(self, pairs: dict[str, str]) -> None:
        """Write into the store itself."""
        self.engine.commit(Commit((), tuple(Put(key.encode(), value.encode()) for key, value in pairs.items())))

    def write_file(self) -> None:
        """Let the access file say what the grants are now."""
        self.file.write_text(policy_of(self.grants))
        self.file.chmod(0o600)

    def state(self) -> list[tuple[bytes, bytes]]:
        """Return all that is stored, but for what services note for themselves."""
        own = (b"\x00e2", b"\x00ac")
        with self.engine.snapshot() as snapshot:
            return [pair for pair in snapshot.pairs(ALL_KEYS) if not pair[0].startswith(own)]

    def own_key_of(self, who: str) -> str:
        """Return a key of a principal's own, for those who have any."""
        return {"bank": BANK.prefix, "shop": SHOP.prefix, "cell": CELL_PREFIX}[who] + "sentinel"
