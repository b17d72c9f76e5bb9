"""A bare grpcio server that answers every call with the bytes that it was started with: what a service is compared with.

`python -m benchmarks.echo SIZE` prints its address.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import grpc

__all__ = ["serve"]

_WORKERS = 64
"""As many threads as runm-metadata has."""


def serve(size: int) -> None:
    """Serve until the process is ended."""
    answer = bytes(size)
    handler = grpc.unary_unary_rpc_method_handler(lambda _request, _context: answer)
    server = grpc.server(
        ThreadPoolExecutor(_WORKERS), handlers=[grpc.method_handlers_generic_handler("echo", {"call": handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    Event().wait()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
