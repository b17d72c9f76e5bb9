"""A connection that speaks another protocol from some request on, as HTTP's `Upgrade` says: the gate has let its client in.

Why over HTTP and on no port of its own: TLS, unix sockets, client certificates, tokens, guesses, proxies, the number of
connections and whether a caller still stands are then those of every other request, and nobody can forget one of them.
"""

from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from keyplan.server.answers import AnswerError
from keyplan.server.peers import Line, Receiver, peer_of

__all__ = ["Session", "Upgraded"]

_UPGRADE_MAX: Final = 100


class Session(Receiver, Protocol):
    """What is spoken on one connection."""

    async def run(self, line: Line) -> None:
        """Speak, until the session or the connection is at its end. Cancelled when who asked is not known any more."""
        ...


class Upgraded(Response):
    """The answer 101, and then the session; it ends when the connection has ended."""

    def __init__(self, request: Request, protocol: str, session: Session) -> None:
        """Make the answer. Raises AnswerError: 426 for a request that asks for another, or whose connection stays HTTP's."""
        asked = request.headers.get("upgrade", "")
        peer = peer_of(request.scope)
        hand_over = None if peer is None else peer.hand_over
        if asked.lower() != protocol or hand_over is None:
            message = f"this is for connections that go on as {protocol}: ask for it with Connection: Upgrade"
            raise AnswerError(
                426,
                "upgrade_required",
                message,
                {"found": asked[:_UPGRADE_MAX]},
                headers={"Upgrade": protocol, "Connection": "Upgrade"},
            )
        super().__init__(status_code=101, headers={"Connection": "Upgrade", "Upgrade": protocol})
        self._session = session
        self._hand_over = hand_over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        line = self._hand_over(self._session)
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            await self._session.run(line)
        finally:
            line.close()
        while (await receive())["type"] != "http.disconnect":
            pass
