"""Which store a cell belongs to: the identity that the store holds, as the cell's folder remembers it.

A revision is a number, and another store may have counted past it. An identity is random, and written once. A copy of the store
has it too; what its engine says of its lineage tells the two apart.

Another store is followed by consent alone, and the consent names what it is for: the store that was remembered, and the one
that is found. Given again it means nothing, so that it may be left where it was given.
"""

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
from msgspec import Struct

from keyplan.apps.patroni.layout import STORE_IDENTITY, Broker
from keyplan.apps.patroni.records import StoreIdentity
from keyplan.engine import Clock
from keyplan.errors import AlreadyExistsError, InvalidInputError
from keyplan.files import write_whole
from keyplan.layout import Binding
from keyplan.store import Store

__all__ = ["StoreMemory"]

_REMEDY: Final = "Name the store that the cell belongs to, or give --accept-store {} to follow this one"

_CONSENT_CHARACTERS: Final = 12


class _Remembered(Struct, kw_only=True, forbid_unknown_fields=True):
    identity: str = ""
    lineage: str = ""
    revision: int = 0


class StoreMemory:
    """Compares the store with the one that was met before. The file is beside the nodes, and is theirs."""

    def __init__(self, store: Store, file: Path, clock: Clock) -> None:
        self._store = store
        self._file = file
        self._clock = clock
        self._known: _Remembered | None = None

    def require_same(self, *, has_nodes: bool, accepted: str) -> None:
        """Remember the store, the first time; later refuse another one, and one whose revision went back.

        A store without an identity gets one from a cell that never met a store. `accepted` is the consent that a refusal names.
        Raises InvalidInputError for another store, which removes nothing; CorruptionError for an identity that cannot be read;
        OSError where it cannot be remembered; EngineError.
        """
        content = self._content()
        lineage = self._store.engine.lineage().store
        revision = self._store.revision
        found = Broker(self._store).identities.get(STORE_IDENTITY)
        problem = self._difference(content, found, lineage, revision, has_nodes=has_nodes)
        consent = _consent(content, found, lineage)
        if problem and accepted != consent:
            raise InvalidInputError(source=str(self._file.parent), problem=f"{problem}. {_REMEDY.format(consent)}")
        identity = found.id if found is not None else self._begun()
        self._remember(_Remembered(identity=identity, lineage=lineage, revision=revision))

    def _difference(
        self, content: bytes, found: StoreIdentity | None, lineage: str, revision: int, *, has_nodes: bool
    ) -> str:
        """Say why the store is not the one that was remembered; empty when it is."""
        try:
            known = msgspec.json.decode(content, type=_Remembered) if content else _Remembered()
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return f"{self._file.name} cannot be read"
        if not known.identity and has_nodes:
            return "the cell has nodes, and does not know of which store they are"
        if known.identity and (found is None or found.id != known.identity):
            return "this is another store than the one that the cell's nodes belong to"
        # Why both: a copy of the store has its identity record, and the engine of the copy has a lineage of its own.
        if known.lineage and lineage != known.lineage:
            return "this is a copy of the store that the cell's nodes belong to, or was restored from it"
        if revision < known.revision:
            return "the store's revision went back: it was replaced by an older one"
        return ""

    def is_same(self, binding: Binding) -> bool:
        """Whether what is read from `binding` comes from the store that was remembered, and no copy. Raises CorruptionError."""
        known, found = self._known, Broker(binding).identities.get(STORE_IDENTITY)
        if known is None or found is None or found.id != known.identity:
            return False
        # Why after the read: whoever has answered it counts, where the engine has turned to another server meanwhile.
        return self._store.engine.lineage().store == known.lineage

    def note_revision(self) -> None:
        """Remember how far the store has come: one that is older from now on is refused."""
        if self._known is not None:
            self._remember(msgspec.structs.replace(self._known, revision=self._store.revision))

    def _content(self) -> bytes:
        """The file as it is; empty where there is none."""
        try:
            return self._file.read_bytes()
        except FileNotFoundError:
            return b""

    def _remember(self, known: _Remembered) -> None:
        if known != self._known:
            try:
                write_whole(self._file, msgspec.json.encode(known).decode() + "\n")
            except InvalidInputError as error:
                # Why another: this is no store that is refused, and the agent tries again when the disk has room.
                raise OSError(str(error)) from error
            self._known = known

    def _begun(self) -> str:
        identities = Broker(self._store).identities
        with suppress(AlreadyExistsError):  # Why: another cell may be faster, and its identity is the store's.
            identities.insert(STORE_IDENTITY, StoreIdentity(id=str(uuid4()), created_at=self._clock.wall()))
        return identities.require(STORE_IDENTITY).id


def _consent(remembered: bytes, found: StoreIdentity | None, lineage: str) -> str:
    """Name the change from what is remembered to the store that is found; another change has another name."""
    identity = "" if found is None else found.id
    content = msgspec.json.encode([remembered.hex(), identity, lineage])
    return hashlib.sha256(content).hexdigest()[:_CONSENT_CHARACTERS]
