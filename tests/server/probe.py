"""A service as a third party would ship it: installed into a folder, with its entry point, and mounted by a real server."""

from pathlib import Path
from typing import Final

__all__ = ["install_probe"]

_CODE: Final = '''
"""A service that shows what the server's shell does for one."""

from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from keyplan.engine import Commit, Put
from keyplan.server import JsonAnswer, Service, allow_body, body_of, caller_of, require_admin


class Note(msgspec.Struct):
    text: str


def build(context):
    diary = Path(context.settings["diary"])
    own = context.own(b"note-", b"probe-")

    def write(line):
        with diary.open("a") as file:
            file.write(line + "\\n")

    async def who(request):
        caller = caller_of(request)
        return JsonAnswer({"role": caller.role, "name": caller.name})

    async def admin_only(request):
        require_admin(request)
        return JsonAnswer({})

    async def put(request):
        note = await body_of(request, Note)
        raw_key = b"note-" + request.path_params["name"].encode()
        revision = await context.run(own.commit, Commit((), (Put(raw_key, note.text.encode()),)))
        return JsonAnswer({"revision": revision})

    async def stream(request):
        async def lines():
            yield "first\\n"
            await context.closing.wait()
            write("stream ended")
            yield "last\\n"

        return StreamingResponse(lines(), media_type="text/plain")

    async def fail(request):
        raise RuntimeError("the secret is swordfish")

    async def large(request):
        allow_body(request, 3 << 20)
        return JsonAnswer({"bytes": len(await request.body())})

    @asynccontextmanager
    async def lifespan():
        write("began")
        yield
        own.commit(Commit((), (Put(b"probe-ended", b""),)))
        write("ended")

    routes = [
        Route("/probe/who", who),
        Route("/probe/admin", admin_only),
        Route("/probe/stream", stream),
        Route("/probe/fail", fail),
        Route("/probe/large", large, methods=["POST"]),
        Route("/probe/notes/{name}", put, methods=["PUT"]),
    ]
    paths = {"/probe/who": {"get": {"responses": {"200": {"description": "Who asks."}}}}}
    return Service("probe", routes, {"paths": paths}, lifespan)
'''


def install_probe(folder: Path) -> dict[str, str]:
    """Install the service `probe` into a folder, and return the environment in which a server finds it."""
    (folder / "keyplan_probe.py").write_text(_CODE)
    information = folder / "keyplan_probe-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: keyplan-probe\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[keyplan.services]\nprobe = keyplan_probe:build\n")
    return {"PYTHONPATH": str(folder)}
