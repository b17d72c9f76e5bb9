"""A bare grpcio server that answers with the bytes that it was started with, once, or as often as a stream is asked for.

It is what a service is compared with: the same transport, as many messages of the same size, serialized beforehand.

`python -m benchmarks.echo SIZE` prints its address.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from threading import Event

import grpc

__all__ = ["serve"]

_WORKERS = 64
"""As many threads as runm-metadata has."""


def serve(size: int) -> None:
    """Serve until the process is ended."""
    answer = bytes(size)
    handler = grpc.unary_unary_rpc_method_handler(lambda _request, _context: answer)
    streaming = grpc.unary_stream_rpc_method_handler(lambda request, _context: repeat(answer, int(request)))
    handlers = {"call": handler, "stream": streaming}
    server = grpc.server(
        ThreadPoolExecutor(_WORKERS), handlers=[grpc.method_handlers_generic_handler("echo", handlers)]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    Event().wait()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
