"""The operations of the registry's HTTP contract, each declared once: what is asked for, by whom, and what is answered.

`KeySpaces` performs them in a store, `keyplan.client.HttpKeySpaces` has a server perform them: code that takes either takes
`RegistryOperations`. Routes, their description and the client's requests are made of what stands here, and of the operations on
key spaces, which stand in key_space_operations.py.
"""

import builtins
from collections.abc import Iterator, Mapping
from typing import Annotated, Final

from keyplan.errors import (
    InvalidArgumentError,
    InvalidInputError,
    KeySpaceNotFoundError,
)
from keyplan.keyspace.allocation import PROFILES
from keyplan.keyspace.answers import AuditItem
from keyplan.keyspace.audit import Acts, AuditVerdict
from keyplan.keyspace.doctor import Diagnosis
from keyplan.keyspace.forms import DIAGNOSIS, ENTRIES, HEADER, REPAIRED, SWITCHES
from keyplan.keyspace.key_space_operations import KeySpaceOperations
from keyplan.keyspace.listing import AUDIT_LIMIT_MAX
from keyplan.keyspace.prefixes import PREFIX_CODECS
from keyplan.keyspace.records import Configuration, Header
from keyplan.keyspace.soundness import Fault
from keyplan.operations import ITSELF, Act, CallerKind, In, Need, Schema, needs_of, operation, words

__all__ = ["NEEDS", "RegistryOperations"]

_NUMBER_MAX: Final = (1 << 63) - 1
_WORK_SECONDS: Final = 600.0
"""Why: what reads or removes key by key takes a second for a million keys, and more."""

_ADMINISTRATOR: Final = CallerKind.ADMINISTRATOR
_READ: Final = Need(Act.READ, ITSELF)
_ADMINISTERED: Final = Need(Act.ADMINISTER, ITSELF)
_AUDITED: Final = Need(Act.AUDIT, ITSELF)


class RegistryOperations(KeySpaceOperations):
    """The operations of `KeySpaces` that the HTTP contract has; what they do and raise stands there."""

    @operation(
        "GET",
        "/registry",
        name="getRegistry",
        needs=_READ,
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
        needs=_ADMINISTERED,
        change=Acts.INIT,
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
        needs=_AUDITED,
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
        needs=_ADMINISTERED,
        change=Acts.REPAIR,
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
        needs=_READ,
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
        needs=_ADMINISTERED,
        change=Acts.CONFIGURE,
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
        needs=_AUDITED,
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
        needs=_AUDITED,
        answers="The verdict.",
        caller=_ADMINISTRATOR,
        seconds=_WORK_SECONDS,
    )
    def verify_audit(self) -> AuditVerdict:
        """Go through the whole log and tell whether it is whole."""
        raise NotImplementedError


NEEDS: Final = needs_of(RegistryOperations)
"""What each needs, for `keyplan.access`."""
