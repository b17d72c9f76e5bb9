"""What HEPnOS's containers refuse. A missing child is a KeyError as well, a bad number a ValueError, a wrong type a TypeError.

Codes and paragraphs are those of keyplan's errors that they extend; a missing product is no error but None.
"""

from keyplan.errors import ConflictError, EngineError, InvalidKeyError, InvalidRecordError, KeyplanError, NotFoundError

__all__ = [
    "BatchError",
    "DeletedError",
    "InvalidLabelError",
    "InvalidNameError",
    "InvalidNumberError",
    "ItemLostError",
    "MissingError",
    "ProcessingError",
    "TypeMismatchError",
]


class MissingError(NotFoundError, KeyError):
    """There is no such data set, run, subrun, event or product. Facts: `table`, `key`: its path, "nova/2019 12096 1 7"."""


class DeletedError(MissingError):
    """The data set that a handle is of was deleted; nothing was written. One that has its name by now is another.

    Facts: `table`, `key`: its full name, what was asked for in it, or its UUID; `problem` where its deletion is not finished.
    """

    code = "dataset-deleted"
    summary = "the data set was deleted; what has its name by now is another: ask for it by its name"
    http_status = 410


class InvalidNumberError(InvalidKeyError, ValueError):
    """Not the number of a run, subrun or event: these are whole numbers from 0 to 2**64 - 2."""


class InvalidNameError(InvalidKeyError, ValueError):
    """Not the name of a data set: it is empty, holds a slash or a NUL, or lies deeper than 256 levels."""


class InvalidLabelError(InvalidKeyError, ValueError):
    """Not the label of a product: it holds a "#" or is too long."""


class TypeMismatchError(InvalidRecordError, TypeError):
    """A value is not of the type that it is to be stored or loaded as. Facts: `type`, `problem`."""


class BatchError(EngineError):
    """Some writes of a batch failed. Facts: `failed`, the raw keys in hex; `problem`. What was flushed before is written."""


class ItemLostError(ConflictError):
    """The lease of a taken item was over before it was acknowledged: it is another's. Facts: `queue`, `number`."""

    summary = "the item is another's by now"


class ProcessingError(KeyplanError):
    """The function failed for an event. Facts: `dataset`, `run`, `subrun`, `event`, `error`: the kind of the error."""
