r"""Claims of what is being brought into a store: they say that the work is not done, and by whom it is.

00 6b 74  72 "orders" 00       a restore into the key space "orders" is under way
00 6b 74  63 "/site/"          a copy or a restore into the prefix "/site/" is under way
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from keyplan.engine import Engine, Entry, KeyRange, Snapshot
from keyplan.errors import CorruptionError, SourceUnfinishedError
from keyplan.jobs import JobRecord, Seen, command_line, look
from keyplan.layout import BoundTable, Layout, Table, shown_key
from keyplan.store import TRANSFER_AREA

__all__ = [
    "CLAIM_FORM",
    "Claim",
    "Transfers",
    "command_of",
    "decoded_claim",
    "prefix_claim",
    "read_claim",
    "refuse_unfinished",
    "shown_command",
    "space_claim",
    "standing_claim",
    "standing_claims",
    "unfinished_work",
]


class Claim(JobRecord, frozen=True, kw_only=True):
    """What is being brought in. `source` is what is brought, as the same work begun again names it.

    `generation` is that of the key space restored into; `followed` the revision of the source that a copy has reached.
    `is_done`: the work has ended, and the claim tells of it, so that the same work begun again finds that nothing is left.
    `verified` is the digest of what was read back: the work is over but for the claim, and who finds other pairs there finds
    what somebody has written since, unless `is_mending`: then the indexes are put right, and what stands there is no longer
    what was read back. `written` is the `PairSum` of what the work itself has put there so far, where it begins with an empty
    place: what is found otherwise is somebody else's, also where it is what would be written next.
    """

    kind: str
    source: str
    generation: int = 0
    followed: int = 0
    is_copied: bool = False
    is_done: bool = False
    verified: str = ""
    is_mending: bool = False
    written: str = ""


class Transfers(Layout, root=TRANSFER_AREA.start):
    """What is being brought into this store."""

    spaces = Table(
        b"r{name:text(allow='A-Za-z0-9_.-',bytes_max=64,dots=false)}\x00",
        key=str,
        value=Claim,
        note="a restore into a key space",
    )
    prefixes = Table(
        b"c{prefix:tail(empty=true,bytes_max=500)}",
        key=bytes,
        value=Claim,
        note="a copy or a restore into a prefix",
    )


CLAIM_FORM: Final = Transfers.bound().tables["spaces"].form


def space_claim(name: str) -> bytes:
    """Return the raw key of the claim on a key space."""
    return _table("spaces").keys.encode(name)


def prefix_claim(prefix: bytes) -> bytes:
    """Return the raw key of the claim on a prefix."""
    return _table("prefixes").keys.encode(prefix)


def _table(name: str) -> BoundTable:
    return Transfers.bound().tables[name]


def read_claim(engine: Engine, raw_key: bytes) -> Claim | None:
    """Return the claim that stands at the key."""
    return standing_claim(engine, raw_key).record


def standing_claim(engine: Engine, raw_key: bytes) -> Seen[Claim]:
    """Return the claim that stands at the key, as a job's record that was read."""
    with engine.snapshot() as snapshot:
        return look(snapshot, raw_key, CLAIM_FORM)


def decoded_claim(entry: Entry) -> Claim:
    """Return the claim that an entry holds. Raises CorruptionError, which names its key."""
    try:
        claim: Claim = CLAIM_FORM.decode(entry.value)
    except CorruptionError as error:
        raise CorruptionError(**{**error.facts, "raw_key": entry.key.hex()}) from error
    return claim


def standing_claims(snapshot: Snapshot, roots: Iterable[bytes]) -> list[tuple[bytes, Claim]]:
    """Return the prefixes that something is brought into and that lie above or below one of the roots, with their claims."""
    return [(prefix, decoded_claim(entry)) for prefix, entry in _across(snapshot, roots)]


def _across(snapshot: Snapshot, roots: Iterable[bytes]) -> Iterator[tuple[bytes, Entry]]:
    """The claims on prefixes that lie above or below one of the roots, unread."""
    wanted = tuple(roots)
    low, high = _table("prefixes").keys.range(())
    for entry in snapshot.scan(KeyRange(low, high)):
        prefix = entry.key[len(low) :]
        if any(prefix.startswith(root) or root.startswith(prefix) for root in wanted):
            yield prefix, entry


def unfinished_work(snapshot: Snapshot, roots: Iterable[bytes], *, store: str = "") -> list[tuple[bytes, str]]:
    """Return the prefixes above or below one of the roots that hold a part of what is brought into them, each with a sentence.

    `store` is the URL of the store, for the command that a sentence names.

    A claim that cannot be read says so too: work was begun there, and nobody knows that it ended.
    """
    found = []
    for prefix, entry in _across(snapshot, roots):
        into = shown_key(prefix) or "the whole store"
        try:
            claim = decoded_claim(entry)
        except CorruptionError:
            found.append((prefix, f"something was brought into {into}, and its claim cannot be read"))
            continue
        # Why: what was read back and found right is whole, though its claim still stands.
        if not claim.is_done and not claim.verified:
            problem = f"a {claim.kind} into {into}, begun at {claim.begun_at}, is not finished, and goes on with"
            found.append((prefix, f"{problem} {shown_command(claim, command_of(claim, prefix), store)}"))
    return found


def shown_command(claim: Claim, command: Sequence[str], store: str) -> str:
    """Return in words the command that goes on with the work of a claim; `store` is the URL of the store that it is in."""
    file = f" of the backup {claim.source}" if "FILE" in command else ""
    return f"`{command_line(command, store)}`{file}"


def command_of(claim: Claim, prefix: bytes) -> tuple[str, ...]:
    """Return the words behind `keyplan` that go on with the work into a prefix.

    A restore that a program began does not tell its file: FILE stands for it, and the claim names the backup.
    """
    if claim.command:
        return claim.command
    below = ("--prefix", shown_key(prefix)) if prefix else ()
    if claim.kind == "copy":
        return "copy", "--from", claim.source, *below
    return ("keyspace", "restore", "FILE") if claim.kind == "registry" else ("restore", "FILE", *below)


def refuse_unfinished(snapshot: Snapshot, roots: Iterable[bytes], *, store: str = "") -> None:
    """Refuse to take the part of something for the whole; `store` as for `unfinished_work`. Raises SourceUnfinishedError."""
    for prefix, problem in unfinished_work(snapshot, roots, store=store):
        advice = "give its command again until it ends, or take what there is: --unfinished"
        raise SourceUnfinishedError(prefix=prefix, problem=problem, advice=advice)
