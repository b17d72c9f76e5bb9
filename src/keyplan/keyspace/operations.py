"""What a registry in the store and one behind HTTP have in common, as a type: code that takes either takes this."""

import builtins
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from keyplan.keyspace.answers import AuditItem, Ensured, KeySpace, KeySpaceIdentity, KeySpacePage, Usage
from keyplan.keyspace.audit import AuditVerdict
from keyplan.keyspace.doctor import Diagnosis
from keyplan.keyspace.listing import LIST_LIMIT_MAX
from keyplan.keyspace.records import Configuration, Header, Quota, State
from keyplan.keyspace.removal import SweepProgress
from keyplan.keyspace.roles import Registry
from keyplan.keyspace.soundness import Fault

__all__ = ["RegistryOperations"]


class RegistryOperations(Registry, Protocol):
    """The operations of `KeySpaces` that the HTTP contract has; what they do and raise stands there."""

    def header(self) -> Header | None:
        """Return what was decided when the registry was made."""
        ...

    def init(
        self, *, prefix_codec: str | None = None, profile: str | None = None, skip_printable: bool | None = None
    ) -> Header:
        """Make the registry where there is none."""
        ...

    def create(
        self,
        name: str,
        application: str,
        *,
        description: str = "",
        prefix: str | None = None,
        if_not_exists: bool = False,
        adopt_existing_data: bool = False,
        allow_legacy_prefix: bool = False,
    ) -> KeySpace:
        """Make a key space."""
        ...

    def ensure(self, name: str, application: str, *, description: str = "", prefix: str | None = None) -> Ensured:
        """Make a key space, or return the one that there is."""
        ...

    def adopt(
        self, name: str, application: str, prefix: str, *, description: str = "", allow_legacy_prefix: bool = False
    ) -> KeySpace:
        """Register a prefix that is in use, with its data: the second step of an upgrade (KS-51). Raises as `create`."""
        return self.create(
            name,
            application,
            description=description,
            prefix=prefix,
            adopt_existing_data=True,
            allow_legacy_prefix=allow_legacy_prefix,
        )

    def get(self, name: str) -> KeySpace:
        """Return a key space, or its last tombstone."""
        ...

    def list(
        self,
        *,
        name: str | None = None,
        prefix: str | None = None,
        key: str | None = None,
        application: str | None = None,
        state: State | None = None,
        include_deleted: bool = False,
        limit: int | None = None,
        page_token: str = "",
    ) -> KeySpacePage:
        """Return a page of the key spaces that agree with all that is given."""
        ...

    def all(
        self,
        *,
        prefix: str | None = None,
        key: str | None = None,
        application: str | None = None,
        state: State | None = None,
        include_deleted: bool = False,
        on_damaged: Callable[[str], object] | None = None,
    ) -> Iterator[KeySpace]:
        """Yield every key space that agrees with what is given, in the order of `list`, page by page.

        Those whose records cannot be read are left out; `on_damaged` is told their names.
        """
        token = ""
        while True:
            page = self.list(
                prefix=prefix,
                key=key,
                application=application,
                state=state,
                include_deleted=include_deleted,
                limit=LIST_LIMIT_MAX,
                page_token=token,
            )
            yield from page.keyspaces
            if on_damaged is not None:
                for damaged in page.damaged:
                    on_damaged(damaged)
            token = page.next_page_token
            if not token:
                return

    def history(self, name: str) -> builtins.list[KeySpace]:
        """Return the generations of the name that are no more."""
        ...

    def update(
        self,
        name: str,
        description: str | None,
        sent: Mapping[str, object] | None = None,
        *,
        expected: KeySpaceIdentity | None = None,
    ) -> KeySpace:
        """Change the description."""
        ...

    def disable(self, name: str, *, expected: KeySpaceIdentity | None = None) -> KeySpace:
        """Refuse opens and writes."""
        ...

    def enable(self, name: str, *, expected: KeySpaceIdentity | None = None) -> KeySpace:
        """Allow opens and writes again."""
        ...

    def delete(self, name: str, *, expected: KeySpaceIdentity | None = None) -> KeySpace:
        """Begin to delete a key space."""
        ...

    def undelete(self, name: str, *, expected: KeySpaceIdentity | None = None) -> KeySpace:
        """Take a deletion back."""
        ...

    def sweep(self, name: str) -> SweepProgress:
        """Take a deletion a part further."""
        ...

    def usage(self, name: str) -> Usage:
        """Count what a key space holds."""
        ...

    def quota(self, name: str) -> Quota:
        """Return what a key space may hold."""
        ...

    def set_quota(
        self,
        name: str,
        *,
        keys: int | None = None,
        bytes: int | None = None,  # noqa: A002  # Why: the unit.
        expected: KeySpaceIdentity | None = None,
    ) -> Quota:
        """Bound what a key space may hold."""
        ...

    def configuration(self) -> Configuration:
        """Return the registry's switches."""
        ...

    def configure(self, changes: Mapping[str, object]) -> Configuration:
        """Change switches."""
        ...

    def audit(self, *, after: int = 0, limit: int | None = None) -> Iterator[AuditItem]:
        """Yield the entries of the audit log."""
        ...

    def verify_audit(self) -> AuditVerdict:
        """Say whether the audit log is whole."""
        ...

    def diagnose(self, *, with_unmanaged: bool = True) -> Diagnosis:
        """Examine the whole registry."""
        ...

    def repair(self) -> builtins.list[Fault]:
        """Put right what can be."""
        ...
