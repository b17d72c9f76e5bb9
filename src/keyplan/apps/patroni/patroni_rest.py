"""What the broker asks of Patroni's REST API at one member. Source: Patroni's documentation, "Patroni REST API".

Each call blocks for at most 15 seconds, whatever the member does: what is at the address that it advertises may answer without
an end. What takes longer goes on at the member, and is looked for there.
"""

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from keyplan.apps.patroni.records import Credentials, Member

if TYPE_CHECKING:
    import httpx

__all__ = [
    "PatroniRefusedError",
    "check_log_in",
    "configure",
    "identity",
    "reinitialise",
    "restart",
    "started_at",
    "switch_over",
]

_SECONDS_MAX: Final = 15.0
_DONE_ALREADY: Final = ("leader name does not match", "cluster does not have members except leader")
_COPYING: Final = ("reinitialize already in progress",)
_RESTARTING: Final = ("restart already in progress",)
_BUSY: Final = "already in progress"
_TEXT_MAX: Final = 200
_BYTES_MAX: Final = 1_048_576
"""Why: Patroni's answers have some kilobytes, and a member that lies would fill the broker's memory."""
_NO_PROXIES: Final = {"http://": None, "https://": None, "all://": None}
"""Why: members are reached as the router reaches them, and a proxy would get their passwords."""
_NO_SETTING: Final = "keyplan_asks_whether_it_may"


class PatroniRefusedError(Exception):
    """Patroni did not do what it was asked for, or could not be asked. The text is its own, or says why not."""


class _Answer(NamedTuple):
    status: int
    text: str

    def told(self) -> dict[str, Any]:
        """Return the object that it is; empty for anything else."""
        try:
            found = msgspec.json.decode(self.text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def switch_over(member: Member | None, leader: str, credentials: Credentials, candidate: str = "") -> None:
    """Ask the leading member to hand over, to the best replica if none is named: failover wants a candidate in Patroni 4.

    Returns as well when somebody else leads already. Raises PatroniRefusedError.
    """
    body = {"leader": leader, **({"candidate": candidate} if candidate else {})}
    _asked(member, "POST", "/switchover", credentials, body, also=_DONE_ALREADY)


def restart(member: Member | None, credentials: Credentials) -> None:
    """Ask a member to restart its PostgreSQL in place. It may go on after the call. Raises PatroniRefusedError."""
    _asked(member, "POST", "/restart", credentials, {}, also=_RESTARTING)


def reinitialise(member: Member | None, credentials: Credentials) -> None:
    """Ask a replica to give up its data and copy the leader. It goes on after the call. Raises PatroniRefusedError.

    What else the member is at is cancelled; a copy that it makes already is left alone, so that this may be asked again.
    """
    try:
        _asked(member, "POST", "/reinitialize", credentials, {}, also=_COPYING)
    except PatroniRefusedError as error:
        if _BUSY not in str(error):
            raise
        # Trap: `force` cancels a copy as well, and what takes longer than the time between two calls would never end.
        _asked(member, "POST", "/reinitialize", credentials, {"force": True}, also=_COPYING)


def configure(member: Member | None, credentials: Credentials, changes: dict[str, Any]) -> None:
    """Change the cluster's dynamic configuration, by a member: None removes a key. Raises PatroniRefusedError."""
    _asked(member, "PATCH", "/config", credentials, changes)


def started_at(member: Member | None) -> str:
    """Return when a member's PostgreSQL was started, in Patroni's words; empty while it does not run.

    Raises PatroniRefusedError.
    """
    told = _asked(member, "GET", "/patroni", Credentials(), None, is_status_told=True).told()
    if not told:
        raise PatroniRefusedError("its REST API tells nothing of it")
    # Why cut: operations note it in their records.
    return str(told.get("postmaster_start_time") or "")[:_TEXT_MAX]


def identity(member: Member | None) -> tuple[str, str]:
    """Return the cluster and the name that a member's Patroni says it has. Raises PatroniRefusedError."""
    told = _asked(member, "GET", "/patroni", Credentials(), None, is_status_told=True).told().get("patroni")
    if not isinstance(told, dict) or not {"scope", "name"} <= told.keys():
        raise PatroniRefusedError("its REST API does not answer as Patroni's does")
    return str(told["scope"]), str(told["name"])


def check_log_in(member: Member | None, credentials: Credentials) -> None:
    """Ask for a change of the configuration that changes nothing: who may is let in. Raises PatroniRefusedError."""
    # Why null: Patroni takes away what is not there, sees no change, and writes nothing.
    _asked(member, "PATCH", "/config", credentials, {_NO_SETTING: None})


def _asked(
    member: Member | None,
    method: str,
    path: str,
    credentials: Credentials,
    body: dict[str, Any] | None,
    *,
    also: tuple[str, ...] = (),
    is_status_told: bool = False,
) -> _Answer:
    """Return Patroni's answer. `also` are words of refusals that mean success; with `is_status_told` no status is a refusal."""
    # Why here: a router and a cell come through this module, and start again without what they may never need.
    import asyncio  # noqa: PLC0415

    import httpx  # noqa: PLC0415

    password = credentials.password.reveal()
    log_in = httpx.BasicAuth(credentials.username, password) if password else None
    try:
        place = urlsplit((member.api_url if member is not None else None) or "")
        if not place.netloc:
            raise PatroniRefusedError("it advertises no REST API")
        url = f"{place.scheme}://{place.netloc}{path}"
        answer = asyncio.run(_answered(method, url, log_in, body))
    # Why the last two: the URL is what the member has written.
    except (httpx.HTTPError, TimeoutError, httpx.InvalidURL, ValueError) as error:
        raise PatroniRefusedError(f"its REST API does not answer: {type(error).__name__}") from error
    if is_status_told or answer.status in {200, 202} or any(text in answer.text for text in also):
        return answer
    raise PatroniRefusedError(f"{answer.status} {answer.text.strip()[:_TEXT_MAX]}")


async def _answered(method: str, url: str, log_in: "httpx.Auth | None", body: dict[str, Any] | None) -> _Answer:
    """Ask. Why by a loop of its own: a time limit of httpx is one for each piece, and of pieces there may be any number."""
    import asyncio  # noqa: PLC0415  # Why here: as above.

    import httpx  # noqa: PLC0415

    # Why no encoding: a few bytes may be packed that are gigabytes.
    headers = {"Accept-Encoding": "identity"}
    async with (
        asyncio.timeout(_SECONDS_MAX),
        httpx.AsyncClient(timeout=_SECONDS_MAX, mounts=_NO_PROXIES, headers=headers) as client,
        client.stream(method, url, json=body, auth=log_in) as answer,
    ):
        content = bytearray()
        async for piece in answer.aiter_raw():
            content += piece
            if len(content) > _BYTES_MAX:
                raise PatroniRefusedError(f"its REST API answers with more than {_BYTES_MAX} bytes")
        return _Answer(answer.status_code, content.decode(errors="replace"))
