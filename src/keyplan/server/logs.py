"""The server's log: a line for each event on standard error, JSON where that is not a terminal.

Never in it: tokens, values, and a request's query and body, which may hold both.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

__all__ = ["LOGGER", "configure_logs"]

LOGGER: Final = logging.getLogger("keyplan.server")
"""The server's logger. What is said beside the message goes into `extra={"facts": {...}}`."""


def configure_logs(*, level: str, is_json: bool | None = None) -> None:
    """Send what keyplan and uvicorn log to standard error; `is_json` None: JSON unless that is a terminal."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if (is_json if is_json is not None else not sys.stderr.isatty()) else TextLines())
    # Why: nobody prints them, and finding them out is a third of a line's cost; without a source file, the caller neither.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001  # the documented way
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("keyplan").setLevel(level.upper())
    logging.captureWarnings(capture=True)
    # Why: it warns of each request that is no HTTP or wants a websocket, and whoever sends them would fill the log.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts: dict[str, Any] = getattr(record, "facts", {})
    return facts


_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)
"""Why not json: a line for each request is a tenth of what a small request costs."""


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, then the facts."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= _facts(record)
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        try:
            return _ENCODER.encode(line).decode()
        except UnicodeEncodeError:
            # Why: a file's name may be no text, and a line that is written otherwise is better than none.
            return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """For people: the time, the message, the facts as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        facts = "".join(f" {name}={_shown(value)}" for name, value in _facts(record).items())
        text = f"{time} {record.levelname.lower():7} {_shown(record.getMessage())}{facts}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _shown(value: object) -> str:
    """Text without a terminal's control characters."""
    text = str(value)
    return text if text.isprintable() else text.encode("unicode_escape", "surrogatepass").decode()
