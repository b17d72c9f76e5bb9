"""The key space registry over HTTP: the built-in service."""

from keyplan.server.service import Service, ServiceContext

__all__ = ["build"]


def build(_context: ServiceContext) -> Service:
    """Return the service of the registry of the server's store."""
    return Service("keyspaces")
