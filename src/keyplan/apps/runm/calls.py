"""How a declared call is performed: by a function that is given the request, the caller, and the state both were checked in."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from keyplan.apps.runm.bounds import UNBOUNDED, Bounds
from keyplan.apps.runm.deployment import Deployment, State
from keyplan.apps.runm.session import Caller, caller_of
from keyplan.operations import CallerKind, Rpc, rpcs_of
from keyplan.store import KeyRef

__all__ = ["CheckedCall", "GivenCall", "Handler", "Performer", "handlers_of", "performer", "performs"]

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE: Final = "runm_handler"

Performer = Callable[..., Any]
"""Takes a request, what it may reach, and of a stream what says whether it is wanted; gives the answer, or its messages."""

Ahead = Callable[[Deployment, Any, UUID | None], Iterable[KeyRef]]
"""Takes a deployment, a request, and the partition that its session most likely names; says what the call will look at."""


Short = Callable[[Any, Bounds], Any]
"""Takes a request and what it may reach; gives the answer's bytes, of a stream those of its messages, or None.

None where the long way has to say it.
"""


class CheckedCall(NamedTuple):
    """A request whose session was checked in `state`. `is_wanted` says no when a stream's client has left."""

    deployment: Deployment
    request: Any
    state: State
    caller: Caller
    is_wanted: Callable[[], bool]


class GivenCall(NamedTuple):
    """A request that may be made; `bounds` are what it may reach at most. Its session is not checked."""

    deployment: Deployment
    request: Any
    bounds: Bounds
    is_wanted: Callable[[], bool]

    def checked(self, state: State) -> CheckedCall:
        """Return the call with its session checked in a state. Raises RefusedError, FAILED_PRECONDITION."""
        if self.bounds is not UNBOUNDED:
            state = state.within(self.bounds)
        caller = caller_of(self.request, state)
        if caller.bounds is not self.bounds:
            state = state.within(caller.bounds)
        return CheckedCall(self.deployment, self.request, state, caller, self.is_wanted)


class Handler(NamedTuple):
    """What performs a call, and where to look at once when its session is checked."""

    declared: Rpc
    function: Callable[..., Any]
    ahead: Ahead | None
    checks_session: bool
    short: Callable[[Deployment], Short] | None


def performs(
    interface: type,
    *,
    ahead: Ahead | None = None,
    checks_session: bool = False,
    short: Callable[[Deployment], Short] | None = None,
) -> Callable[[F], F]:
    """Declare that a function performs the call of its name of an interface.

    It is given a CheckedCall, and what it returns is the answer; of a call that changes something, what is to be done for the
    answer when the state is closed: no reader is held while one writes. A call that asks for no session is given a GivenCall,
    and returns the answer; so is one that `checks_session` itself, in the transaction that it writes in. `short` makes, for a
    deployment, a shorter way to the same answers, which is tried first.
    """

    def declare(function: F) -> F:
        declared = rpcs_of(interface)[function.__name__]
        function.__doc__ = declared.function.__doc__
        is_unchecked = checks_session or declared.caller is CallerKind.ANYBODY
        setattr(function, _ATTRIBUTE, (interface, Handler(declared, function, ahead, is_unchecked, short)))
        return function

    return declare


def handlers_of(interface: type, modules: Iterable[ModuleType]) -> Mapping[str, Handler]:
    """Return what performs each call of an interface, by name.

    Raises LookupError for one that nothing in the modules performs.
    """
    marks = (getattr(one, _ATTRIBUTE, None) for module in modules for one in vars(module).values())
    found = {mark[1].declared.name: mark[1] for mark in marks if mark is not None and mark[0] is interface}
    missing = rpcs_of(interface).keys() - found
    if missing:
        raise LookupError(f"nothing performs {', '.join(sorted(missing))}")
    return found


def performer(deployment: Deployment, handler: Handler) -> Performer:
    """Return the function that performs a call: the session is checked first, in one state with what the call reads."""
    declared, function, ahead, checks_session, _ = handler
    changes, reads_ahead = declared.changes, not deployment.store.engine.profile.has_local_reads

    def perform(request: Any, bounds: Bounds = UNBOUNDED, is_wanted: Callable[[], bool] = _is_wanted) -> Any:
        call = GivenCall(deployment, request, bounds, is_wanted)
        if checks_session:
            return function(call)
        with deployment.reading(*(looked_at(request) if reads_ahead else ())) as state:
            answer = function(call.checked(state))
        return answer() if changes else answer

    def looked_at(request: Any) -> Iterator[KeyRef]:
        partition = deployment.ahead.partition_of(request)
        yield from deployment.ahead.of_session(request, partition)
        if ahead is not None:
            yield from ahead(deployment, request, partition)

    return perform


def _is_wanted() -> bool:
    return True
