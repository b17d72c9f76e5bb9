"""Writes docs/reference/runm-grpc.md from the declared calls: `python -m tests.apps.runm.reference`. A test compares."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from keyplan.apps.runm.operations import ApiOperations, MetadataOperations
from keyplan.apps.runm.wire_table import RUNM
from keyplan.operations import CallerKind, OnKind, Rpc, rpcs_of
from keyplan.protobuf import Field

__all__ = ["PAGE", "page"]

PAGE: Final = Path(__file__).parents[3] / "docs" / "reference" / "runm-grpc.md"

_INTRODUCTION: Final = """# runm-metadata over gRPC

What `keyplan runm serve` answers ([guide](../guide/runm.md)): the calls of the original's two services, and extensions. This
page is made from their declaration, `keyplan.apps.runm.operations`; a server describes itself by reflection, too.

A call *of a session* is refused with FAILED_PRECONDITION unless its request has a session that names a user, a project and a
partition that there is. With tokens, or an access file, every call needs a token, or a certificate that the file names:
UNAUTHENTICATED, and RESOURCE_EXHAUSTED after many wrong tokens. With an access file a call
needs the grant that stands with it, on `operation:runm.` and its name, and its session claims nothing that its principal is
not: PERMISSION_DENIED, before anything is read ([who may do what](../guide/runm.md#who-may-do-what)). FAILED_PRECONDITION is
also for a field that a call needs and that is empty, or that names a partition or type that there is not. INVALID_ARGUMENT is
for bytes that are no message of the call. UNAVAILABLE, INTERNAL, DATA_LOSS, CANCELLED and DEADLINE_EXCEEDED are for what goes
wrong on the way or in the store. Further statuses stand with each call.

The log has a line for each call that is refused with UNAUTHENTICATED, PERMISSION_DENIED or RESOURCE_EXHAUSTED: which, who, from
where and why. At `--log-level 2` it has one for each other call that has ended: whether it changes something, its name, the
session's user and partition, and the status.
"""


def page() -> str:
    """Return the page."""
    parts = [_INTRODUCTION]
    for interface in (MetadataOperations, ApiOperations):
        parts.append(f"## `{RUNM.full_name(interface.service)}`\n")
        for declared in rpcs_of(interface).values():
            parts += _call(declared)
    parts.append("## Messages\n\n| Message | Fields: number, name, type |\n|---|---|")
    parts += [f"| `{name}` | {_fields(fields)} |" for name, fields in RUNM.messages.items()]
    return "\n".join(parts) + "\n"


def _call(declared: Rpc) -> Iterator[str]:
    answers = f"a stream of `{declared.answer}`" if declared.is_stream else f"`{declared.answer}`"
    who = "of a session" if declared.caller is CallerKind.SESSION else "of anybody"
    does = "changes something" if declared.changes else "only reads"
    statuses = ", ".join(status.name for status in sorted(declared.statuses))
    yield f"### `{declared.name}`\n"
    yield f"{' '.join((declared.function.__doc__ or '').split())}\n"
    needs = f"needs `{declared.needs.act}` on it" if declared.needs.on.kind is OnKind.OPERATION else "needs no grant"
    refused = f" Further statuses: {statuses}." if statuses else ""
    yield f"`{declared.request}` gives {answers}; {who}, {does}, {needs}.{refused}\n"


def _fields(fields: tuple[Field, ...]) -> str:
    return ", ".join(f"{one.number} `{one.name}` {'repeated ' if one.is_repeated else ''}{one.kind}" for one in fields)


if __name__ == "__main__":
    PAGE.write_text(page())
