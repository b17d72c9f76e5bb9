"""The operations on key spaces: the first part of the registry's contract; see operations.py."""

import builtins
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, TypeVar

from keyplan.errors import (
    ForbiddenError,
    ImmutableFieldError,
    InvalidArgumentError,
    KeySpaceApiDisabledError,
    KeySpaceConflictError,
    KeySpaceNotFoundError,
    PrefixExhaustedError,
)
from keyplan.keyspace.answers import Ensured, KeySpace, KeySpacePage, Usage
from keyplan.keyspace.audit import Acts
from keyplan.keyspace.forms import (
    CREATION,
    HISTORY,
    PAGE,
    QUOTA,
    UPDATE,
    ExpectedIdentity,
    NamedKeySpace,
    PrefixFilter,
)
from keyplan.keyspace.listing import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX
from keyplan.keyspace.records import APPLICATION_PATTERN, HEX_GIVEN_PATTERN, NAME_PATTERN, Quota, State
from keyplan.keyspace.removal import SweepProgress
from keyplan.keyspace.roles import Registry
from keyplan.operations import (
    NOTHING,
    Act,
    CallerKind,
    Change,
    In,
    Need,
    Schema,
    application,
    key_space,
    operation,
    words,
)

__all__ = ["KeySpaceOperations"]

F = TypeVar("F", bound=Callable[..., Any])

_WORK_SECONDS: Final = 600.0
"""Why: what reads or removes key by key takes a second for a million keys, and more."""

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


def _act(change: Change) -> Callable[[F], F]:
    """Declare an act on one key space, which its path ends in."""
    return operation(
        "POST",
        f"/keyspaces/{{id}}:{change.act}",
        name=f"{change.act}KeySpace",
        needs=_ADMINISTERED,
        change=change,
        answers=_ONE,
        raises=_CHANGES,
    )


class KeySpaceOperations(Registry):
    """The operations on key spaces."""

    # ---- many -----------------------------------------------------------------------------------------------------------

    @operation(
        "POST",
        "/keyspaces",
        name="createKeySpace",
        needs=Need(Act.ADMINISTER, application("application")),
        change=Acts.CREATE,
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
        application: Annotated[
            str,
            Schema(
                "Who is to own it: no blank, no star, and nothing that does not print.",
                pattern=APPLICATION_PATTERN,
                minLength=1,
                maxLength=128,
            ),
        ],
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
        change=Acts.UPDATE,
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
        change=Acts.DELETE,
        answers="The deletion has begun.",
        status=202,
        raises=_CHANGES,
    )
    def delete(self, name: NamedKeySpace, *, expected: ExpectedIdentity = None) -> KeySpace:
        """Begin to delete a key space; what it holds is removed in the background."""
        raise NotImplementedError

    @_act(Acts.DISABLE)
    def disable(self, name: NamedKeySpace, *, expected: ExpectedIdentity = None) -> KeySpace:
        """Refuse opens and writes."""
        raise NotImplementedError

    @_act(Acts.ENABLE)
    def enable(self, name: NamedKeySpace, *, expected: ExpectedIdentity = None) -> KeySpace:
        """Allow opens and writes again."""
        raise NotImplementedError

    @_act(Acts.UNDELETE)
    def undelete(self, name: NamedKeySpace, *, expected: ExpectedIdentity = None) -> KeySpace:
        """Take a deletion back, until the first key was removed."""
        raise NotImplementedError

    @operation(
        "POST",
        "/keyspaces/{id}:sweep",
        name="sweepKeySpace",
        needs=_ADMINISTERED,
        change=Acts.COMPLETE,
        answers="How far it is.",
        raises=(KeySpaceNotFoundError,),
        caller=CallerKind.ADMINISTRATOR,
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
        change=Acts.QUOTA,
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
