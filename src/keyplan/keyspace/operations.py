"""The operations of the registry's HTTP contract, each declared once: what is asked for, by whom, and what is answered.

`KeySpaces` performs them in a store, `keyplan.client.HttpKeySpaces` has a server perform them: code that takes either takes
`RegistryOperations`. Routes, their description and the client's requests are made of what stands here.
"""

import builtins
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Final

from keyplan.errors import (
    ForbiddenError,
    ImmutableFieldError,
    InvalidArgumentError,
    InvalidInputError,
    KeySpaceApiDisabledError,
    KeySpaceConflictError,
    KeySpaceNotFoundError,
    PrefixExhaustedError,
)
from keyplan.keyspace.allocation import PROFILES
from keyplan.keyspace.answers import AuditItem, Ensured, KeySpace, KeySpacePage, Usage
from keyplan.keyspace.audit import AuditVerdict
from keyplan.keyspace.doctor import Diagnosis
from keyplan.keyspace.forms import (
    CREATION,
    DIAGNOSIS,
    ENTRIES,
    HEADER,
    HISTORY,
    PAGE,
    QUOTA,
    REPAIRED,
    SWITCHES,
    UPDATE,
    ExpectedIdentity,
    NamedKeySpace,
    PrefixFilter,
)
from keyplan.keyspace.listing import AUDIT_LIMIT_MAX, LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX
from keyplan.keyspace.prefixes import PREFIX_CODECS
from keyplan.keyspace.records import HEX_GIVEN_PATTERN, NAME_PATTERN, Configuration, Header, Quota, State
from keyplan.keyspace.removal import SweepProgress
from keyplan.keyspace.roles import Registry
from keyplan.keyspace.soundness import Fault
from keyplan.operations import (
    ITSELF,
    NOTHING,
    Act,
    CallerKind,
    In,
    Need,
    Schema,
    application,
    key_space,
    operation,
    words,
)

__all__ = ["RegistryOperations"]

_NUMBER_MAX: Final = (1 << 63) - 1
_WORK_SECONDS: Final = 600.0
"""Why: what reads or removes key by key takes a second for a million keys, and more."""

_ADMINISTRATOR: Final = CallerKind.ADMINISTRATOR
_READ: Final = Need(Act.READ, key_space("name"))
_ADMINISTERED: Final = Need(Act.ADMINISTER, key_space("name"))
_ONE: Final = "The key space."

_CHANGES: Final = (
    InvalidArgumentError,
    ForbiddenError,
    KeySpaceNotFoundError,
    KeySpaceConflictError,
    KeySpaceApiDisabledError,
)
_READS: Final = (KeySpaceNotFoundError, KeySpaceApiDisabledError)


class RegistryOperations(Registry):
    """The operations of `KeySpaces` that the HTTP contract has; what they do and raise stands there."""

    # ---- many -----------------------------------------------------------------------------------------------------------

    @operation(
        "POST",
        "/keyspaces",
        name="createKeySpace",
        needs=Need(Act.ADMINISTER, application("application")),
        answers="It was made.",
        status=201,
        also={200: "`if_not_exists`: it was there."},
        headers={"Location": "Where it is."},
        raises=(
            InvalidArgumentError,
            ForbiddenError,
            KeySpaceConflictError,
            ImmutableFieldError,
            KeySpaceApiDisabledError,
            PrefixExhaustedError,
        ),
        body=CREATION,
        body_name="KeySpaceCreation",
    )
    def create(
        self,
        name: Annotated[str, Schema(pattern=NAME_PATTERN)],
        application: Annotated[str, Schema(minLength=1, maxLength=128)],
        *,
        description: Annotated[str, Schema(maxLength=4096)] = "",
        prefix: Annotated[
            str | None,
            Schema("Only for a prefix that is in use or wanted; chosen otherwise.", pattern=HEX_GIVEN_PATTERN),
        ] = None,
        if_not_exists: Annotated[
            bool, Schema("Answer 200 with the one of this name and application that there is.")
        ] = False,
        adopt_existing_data: Annotated[bool, Schema("For administrators: the prefix may have keys already.")] = False,
        allow_legacy_prefix: Annotated[bool, Schema("For administrators: the prefix may be any bytes.")] = False,
    ) -> KeySpace:
        """Make a key space."""
        raise NotImplementedError

    def ensure(self, name: str, application: str, *, description: str = "", prefix: str | None = None) -> Ensured:
        """Make a key space, or return the one that there is: `create` with `if_not_exists`, which tells which it was."""
        raise NotImplementedError

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

    @operation(
        "GET",
        "/keyspaces",
        name="listKeySpaces",
        needs=Need(Act.READ, NOTHING),
        answers="A page of them.",
        raises=(InvalidArgumentError, KeySpaceApiDisabledError),
        answer=PAGE,
    )
    def list(
        self,
        *,
        name: Annotated[str | None, Schema("Of this name: one or none.")] = None,
        prefix: Annotated[PrefixFilter, Schema("With this prefix.")] = None,
        key: Annotated[PrefixFilter, Schema("Whose this raw key is.")] = None,
        application: Annotated[str | None, Schema("Of this application.")] = None,
        state: Annotated[State | None, Schema("In this state.")] = None,
        include_deleted: Annotated[bool, In("include", words({"all": True})), Schema("Deleted ones, too.")] = False,
        limit: Annotated[
            int | None, Schema("At most so many.", minimum=1, maximum=LIST_LIMIT_MAX, default=LIST_LIMIT_DEFAULT)
        ] = None,
        page_token: Annotated[str, Schema("Where the last page ended.", pattern="^[0-9]{0,19}$")] = "",
    ) -> KeySpacePage:
        """List key spaces, in the order in which they were made."""
        raise NotImplementedError

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

    # ---- one ------------------------------------------------------------------------------------------------------------

    @operation("GET", "/keyspaces/{id}", name="getKeySpace", needs=_READ, answers=_ONE, raises=_READS, is_quick=True)
    def get(self, name: NamedKeySpace) -> KeySpace:
        """Read a key space, or its last tombstone."""
        raise NotImplementedError

    @operation(
        "PUT",
        "/keyspaces/{id}",
        name="updateKeySpace",
        needs=_ADMINISTERED,
        answers=_ONE,
        raises=(
            InvalidArgumentError,
            KeySpaceNotFoundError,
            KeySpaceConflictError,
            ImmutableFieldError,
            KeySpaceApiDisabledError,
        ),
        body=UPDATE,
    )
    def update(
        self,
        name: NamedKeySpace,
        description: str | None,
        sent: Mapping[str, object] | None = None,
        *,
        expected: ExpectedIdentity = None,
    ) -> KeySpace:
        """Change the description."""
        raise NotImplementedError

    @operation(
        "DELETE",
        "/keyspaces/{id}",
        name="deleteKeySpace",
        needs=_ADMINISTERED,
        answers="The deletion has begun.",
        status=202,
        raises=_CHANGES,
    )
    def delete(self, name: NamedKeySpace, *, expected: ExpectedIdentity = None) -> KeySpace:
        """Begin to delete a key space; what it holds is removed in the background."""
        raise NotImplementedError

    @operation(
        "POST", "/keyspaces/{id}:disable", name="disableKeySpace", needs=_ADMINISTERED, answers=_ONE, raises=_CHANGES
    )
    def disable(self, name: NamedKeySpace, *, expected: ExpectedIdentity = None) -> KeySpace:
        """Refuse opens and writes."""
        raise NotImplementedError

    @operation(
        "POST", "/keyspaces/{id}:enable", name="enableKeySpace", needs=_ADMINISTERED, answers=_ONE, raises=_CHANGES
    )
    def enable(self, name: NamedKeySpace, *, expected: ExpectedIdentity = None) -> KeySpace:
        """Allow opens and writes again."""
        raise NotImplementedError

    @operation(
        "POST", "/keyspaces/{id}:undelete", name="undeleteKeySpace", needs=_ADMINISTERED, answers=_ONE, raises=_CHANGES
    )
    def undelete(self, name: NamedKeySpace, *, expected: ExpectedIdentity = None) -> KeySpace:
        """Take a deletion back, until the first key was removed."""
        raise NotImplementedError

    @operation(
        "POST",
        "/keyspaces/{id}:sweep",
        name="sweepKeySpace",
        needs=_ADMINISTERED,
        answers="How far it is.",
        raises=(KeySpaceNotFoundError,),
        caller=_ADMINISTRATOR,
        seconds=_WORK_SECONDS,
    )
    def sweep(self, name: NamedKeySpace) -> SweepProgress:
        """Remove what a deleted key space holds for two seconds at the most. Ask again while the stage is `sweeping`."""
        raise NotImplementedError

    @operation(
        "GET",
        "/keyspaces/{id}/history",
        name="getKeySpaceHistory",
        needs=_READ,
        answers="They, on one page.",
        raises=_READS,
        answer=HISTORY,
    )
    def history(self, name: NamedKeySpace) -> builtins.list[KeySpace]:
        """List those that have had the name, the oldest first."""
        raise NotImplementedError

    @operation(
        "GET",
        "/keyspaces/{id}/usage",
        name="getKeySpaceUsage",
        needs=_READ,
        answers="The figures.",
        raises=_READS,
        seconds=_WORK_SECONDS,
    )
    def usage(self, name: NamedKeySpace) -> Usage:
        """Count what a key space holds, now."""
        raise NotImplementedError

    @operation(
        "GET",
        "/keyspaces/{id}/quota",
        name="getKeySpaceQuota",
        needs=_READ,
        answers="The quota; null: no bound.",
        raises=_READS,
        is_quick=True,
    )
    def quota(self, name: NamedKeySpace) -> Quota:
        """Read what a key space may hold."""
        raise NotImplementedError

    @operation(
        "PUT",
        "/keyspaces/{id}/quota",
        name="setKeySpaceQuota",
        needs=_ADMINISTERED,
        answers="The quota.",
        raises=_CHANGES,
        body=QUOTA,
    )
    def set_quota(
        self,
        name: NamedKeySpace,
        *,
        keys: int | None = None,
        bytes: int | None = None,  # noqa: A002  # Why: the unit.
        expected: ExpectedIdentity = None,
    ) -> Quota:
        """Bound what a key space may hold; for administrators."""
        raise NotImplementedError

    # ---- the registry ---------------------------------------------------------------------------------------------------

    @operation(
        "GET",
        "/registry",
        name="getRegistry",
        needs=Need(Act.READ, ITSELF),
        answers="The header.",
        raises=(KeySpaceNotFoundError,),
        caller=_ADMINISTRATOR,
        is_quick=True,
        answer=HEADER,
    )
    def header(self) -> Header | None:
        """Read what was decided when the registry was made."""
        raise NotImplementedError

    @operation(
        "POST",
        "/registry:init",
        name="initRegistry",
        needs=Need(Act.ADMINISTER, ITSELF),
        answers="The header, also of one that was there.",
        raises=(InvalidArgumentError,),
        caller=_ADMINISTRATOR,
        body_name="RegistryFounding",
    )
    def init(
        self,
        *,
        prefix_codec: Annotated[str | None, Schema(enum=[*PREFIX_CODECS, None])] = None,
        profile: Annotated[str | None, Schema(enum=[*sorted(PROFILES), None])] = None,
        skip_printable: bool | None = None,
    ) -> Header:
        """Make the registry where there is none. Making a key space does it too.

        What is not given is as the store suggests, or as it is in the registry that there is.
        """
        raise NotImplementedError

    @operation(
        "GET",
        "/registry/diagnosis",
        name="diagnoseRegistry",
        needs=Need(Act.AUDIT, ITSELF),
        answers="What was found.",
        raises=(InvalidArgumentError,),
        caller=_ADMINISTRATOR,
        seconds=_WORK_SECONDS,
        answer=DIAGNOSIS,
    )
    def diagnose(
        self,
        *,
        with_unmanaged: Annotated[
            bool,
            In("unmanaged", words({"on": True, "off": False})),
            Schema("Look for keys of nobody, too.", default="on"),
        ] = True,
    ) -> Diagnosis:
        """Examine the registry and its audit log, and whose the keys of the store are."""
        raise NotImplementedError

    @operation(
        "POST",
        "/registry:repair",
        name="repairRegistry",
        needs=Need(Act.ADMINISTER, ITSELF),
        answers="What was wrong and is right now.",
        caller=_ADMINISTRATOR,
        seconds=_WORK_SECONDS,
        answer=REPAIRED,
    )
    def repair(self) -> builtins.list[Fault]:
        """Put right what the records of the key spaces decide."""
        raise NotImplementedError

    @operation(
        "GET",
        "/config",
        name="getRegistryConfiguration",
        needs=Need(Act.READ, ITSELF),
        answers="The switches.",
        caller=_ADMINISTRATOR,
        is_quick=True,
    )
    def configuration(self) -> Configuration:
        """Read the registry's switches."""
        raise NotImplementedError

    @operation(
        "PATCH",
        "/config",
        name="changeRegistryConfiguration",
        needs=Need(Act.ADMINISTER, ITSELF),
        answers="All switches.",
        raises=(InvalidArgumentError,),
        caller=_ADMINISTRATOR,
        body=SWITCHES,
    )
    def configure(self, changes: Mapping[str, object]) -> Configuration:
        """Change some of the switches."""
        raise NotImplementedError

    @operation(
        "GET",
        "/audit",
        name="getAudit",
        needs=Need(Act.AUDIT, ITSELF),
        answers="Entries, by number.",
        raises=(InvalidArgumentError,),
        caller=_ADMINISTRATOR,
        answer=ENTRIES,
    )
    def audit_page(
        self,
        *,
        after: Annotated[
            int, Schema("Behind the entry of this number.", minimum=0, maximum=_NUMBER_MAX, default=0)
        ] = 0,
        limit: Annotated[int, Schema("At most so many.", minimum=1, maximum=AUDIT_LIMIT_MAX, default=100)] = 100,
    ) -> builtins.list[AuditItem]:
        """Read the log of acts on the registry."""
        raise NotImplementedError

    def audit(self, *, after: int = 0, limit: int | None = None) -> Iterator[AuditItem]:
        """Yield the entries of the audit log behind a number, at most so many, page by page."""
        remaining = limit
        while remaining is None or remaining > 0:
            size = AUDIT_LIMIT_MAX if remaining is None else min(remaining, AUDIT_LIMIT_MAX)
            items = self.audit_page(after=after, limit=size)
            for item in items:
                if item.number <= after:
                    # Why: a list that does not ascend would be asked for again and again.
                    raise InvalidInputError(source="the server's answer", problem="the log's numbers do not ascend")
                yield item
                after = item.number
            if len(items) < size:
                return
            remaining = None if remaining is None else remaining - size

    @operation(
        "POST",
        "/audit:verify",
        name="verifyAudit",
        needs=Need(Act.AUDIT, ITSELF),
        answers="The verdict.",
        caller=_ADMINISTRATOR,
        seconds=_WORK_SECONDS,
    )
    def verify_audit(self) -> AuditVerdict:
        """Go through the whole log and tell whether it is whole."""
        raise NotImplementedError
