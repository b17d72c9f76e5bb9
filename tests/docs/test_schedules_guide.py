"""The guide of schedules: its example, typed as it stands, prints what it says, and the string that is printed replays."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from keyplan.testing.schedules import Exploration, replay
from tests.docs.markdown import blocks

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "schedules.md"


def test_the_lost_update_is_printed_as_the_guide_says_and_replays() -> None:
    found_blocks = list(blocks(GUIDE.read_text()))
    code = next(block.code for block in found_blocks if block.language == "python")
    promised = next(block.code for block in found_blocks if block.language == "text")
    namespace: dict[str, Any] = {"__name__": "guide"}
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code, str(GUIDE), "exec"), namespace)
    assert _without_time(printed.getvalue()) == _without_time(promised)
    found = namespace["found"]
    assert isinstance(found, Exploration)
    string = next(line for line in printed.getvalue().splitlines() if line.startswith("kps1:"))
    outcome = replay(found.scenario, string)
    assert outcome.script in printed.getvalue()
    assert outcome.failure == printed.getvalue().splitlines()[-1]


def _without_time(text: str) -> list[str]:
    """The lines without the time that it took, and without what the set-up's digest is."""
    shown = re.sub(r"[\d,]+ ms", "TIME", text)
    shown = re.sub(r"kps1:[^:]*:", "kps1:DIGEST:", shown)
    return [line.rstrip() for line in shown.strip().splitlines()]
