"""The one call that the broker makes of Patroni's REST API: hand over the lead."""

from typing import Final
from urllib.parse import urlsplit

import httpx

from keyplan.apps.patroni.records import Credentials, Member

__all__ = ["SwitchoverFailedError", "switch_over"]

_SECONDS_MAX: Final = 15.0
_DONE_ALREADY: Final = ("leader name does not match", "cluster does not have members except leader")


class SwitchoverFailedError(Exception):
    """Patroni did not hand over. The text is its own."""


def switch_over(member: Member | None, leader: str, credentials: Credentials) -> None:
    """Ask the leading member to hand over to the best replica, by `POST /switchover`: failover wants a candidate in Patroni 4.

    Returns as well when somebody else leads already. Raises SwitchoverFailedError, httpx.HTTPError.
    """
    place = urlsplit((member.api_url if member is not None else None) or "")
    if not place.netloc:
        raise SwitchoverFailedError("the leader advertises no REST API")
    url = f"{place.scheme}://{place.netloc}/switchover"
    password = credentials.password.reveal()
    log_in = httpx.BasicAuth(credentials.username, password) if password else None
    answer = httpx.post(url, json={"leader": leader}, auth=log_in, timeout=_SECONDS_MAX)
    if answer.status_code not in {200, 202} and not any(text in answer.text for text in _DONE_ALREADY):
        raise SwitchoverFailedError(f"{answer.status_code} {answer.text.strip()[:200]}")
