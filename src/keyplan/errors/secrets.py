"""Sealed secrets that do not open: their key is not here, or is another one."""

from keyplan.errors.tree import CorruptionError, KeyplanError
from keyplan.grpc_status import GrpcStatus

__all__ = ["SecretKeyError", "UnopenedSecretError"]


class SecretKeyError(KeyplanError):
    """A sealed secret cannot be opened, since its key is not here. The record can be read, replaced and deleted all the same.

    Facts: `problem`, `table`, `raw_key`, `field`, `key_id`, `remedy`, as far as they are known.
    """

    code = "secret-key"
    summary = "the key of a sealed secret is not here"
    exit_code = 12
    http_status = 503
    grpc_status = GrpcStatus.FAILED_PRECONDITION


class UnopenedSecretError(CorruptionError):
    """A sealed secret does not open with the key of its id: the key is another one, or the secret is not what was sealed there.

    Nobody but who sealed it can tell which. The record can be read, replaced and deleted all the same. Facts: `problem`,
    `table`, `raw_key`, `field`, `key_id`, `remedy`, as far as they are known.
    """

    code = "secret-unopened"
    summary = "a sealed secret does not open with this key"
