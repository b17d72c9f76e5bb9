"""Operations that are spoken in gRPC, declared as those of HTTP are: as methods of an interface.

    class Images:
        @rpc("ImageGetRequest", "Image", needs=Need(Act.READ, ITSELF), statuses=(GrpcStatus.NOT_FOUND,))
        def image_get(self, **fields: Any) -> Any:
            "Return the image of a name."
            raise NotImplementedError

Request and answer are names of messages, whose fields a table declares (`keyplan.protobuf`). The service in the descriptor
(`service_table`), the handler on the server, the method of the client and the row of the reference page are made of it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar, get_origin

from keyplan.grpc_status import GrpcStatus
from keyplan.operations.declare import Declared, operations_of
from keyplan.operations.needs import Need

__all__ = ["Rpc", "needs_of", "rpc", "rpcs_of", "service_table"]

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE: Final = "keyplan_rpc"


@dataclass(frozen=True, eq=False, kw_only=True)
class Rpc(Declared):
    """A call of gRPC. It answers with a stream where the method returns an iterator.

    `statuses` are those that are answers of its contract, beside what any call may be answered with. `is_endless` for a stream
    that ends only when one of both sides ends it.
    """

    request: str
    answer: str
    statuses: tuple[GrpcStatus, ...] = ()
    is_endless: bool = False

    @cached_property
    def is_stream(self) -> bool:
        """True when it answers with a stream of messages."""
        return get_origin(self.returns) is Iterator


def rpc(request: str, answer: str, **facts: Any) -> Callable[[F], F]:
    """Declare that a method is a call of gRPC; `facts` are the further fields of `Rpc`."""

    def declare(function: F) -> F:
        declared = Rpc(name=function.__name__, function=function, request=request, answer=answer, **facts)
        setattr(function, _ATTRIBUTE, declared)
        return function

    return declare


def rpcs_of(interface: type) -> dict[str, Rpc]:
    """Return the calls that an interface declares, by name, in their order."""
    members = (member for kind in reversed(interface.__mro__) for member in vars(kind).values())
    found = (getattr(member, _ATTRIBUTE, None) for member in members)
    return {declared.name: declared for declared in found if declared is not None}


def service_table(interface: type) -> str:
    """Return the calls of an interface as a table of `keyplan.protobuf` has them: `call Request stream Answer`, a line each."""
    return "\n".join(
        f"{one.name} {one.request} {'stream ' if one.is_stream else ''}{one.answer}"
        for one in rpcs_of(interface).values()
    )


def needs_of(*interfaces: type, family: str = "") -> Mapping[str, Need]:
    """Return what each operation needs, by its name behind `family`: what entry points of `keyplan.operations` name."""
    declared = (one for kind in interfaces for one in (*operations_of(kind).values(), *rpcs_of(kind).values()))
    return {f"{family}{one.name}": one.needs for one in declared}
