"""A connection that speaks another protocol from some request on, as HTTP's `Upgrade` says: the gate has let its client in.

Why over HTTP and on no port of its own: TLS, unix sockets, client certificates, tokens, guesses, proxies, the number of
connections and whether a caller still stands are then those of every other request, and nobody can forget one of them.
"""

from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from keyplan.server.answers import AnswerError
from keyplan.server.peers import Receiver, peer_of

__all__ = ["Session", "Upgraded"]

_UPGRADE_MAX: Final = 100


class Session(Receiver, Protocol):
    """What is spoken on one connection."""

    async def run(self) -> None:
        """Speak, until the session or the connection is at its end. Cancelled when who asked is not known any more."""
        ...


class Upgraded(Response):
    """The answer 101, and then the session; it ends when the connection has ended."""

    def __init__(self, request: Request, protocol: str, session: Session) -> None:
        """Make the answer. Raises AnswerError: 426 for a request that asks for another, or whose connection stays HTTP's."""
        asked = request.headers.get("upgrade", "")
        peer = peer_of(request.scope)
        hand_over = None if peer is None else peer.hand_over
        # Why not of HTTP/1.0: its proxies pass on an Upgrade that they do not know, and would take what comes for requests.
        if asked.lower() != protocol or hand_over is None or request.scope.get("http_version") != "1.1":
            message = f"this is for connections that go on as {protocol}: ask for it with Connection: Upgrade"
            raise AnswerError(
                426,
                "upgrade_required",
                message,
                {"found": asked[:_UPGRADE_MAX]},
                headers={"Upgrade": protocol, "Connection": "Upgrade"},
            )
        if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
            raise AnswerError(400, "bad_request", "a request to upgrade a connection has no body: send none")
        super().__init__(status_code=101, headers={"Connection": "Upgrade", "Upgrade": protocol})
        self._session = session
        self._hand_over = hand_over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        line = self._hand_over(self._session)
        if line is None:
            # Why refused: a proxy that is not asked to upgrade would go on with HTTP, and another's request be taken for ours.
            message = "the connection stays HTTP's: say Connection: Upgrade, and send nothing before 101 is answered"
            raise AnswerError(400, "bad_request", message)
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            await self._session.run()
        finally:
            line.close()
        while (await receive())["type"] != "http.disconnect":
            pass
