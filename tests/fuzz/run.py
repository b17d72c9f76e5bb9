"""The long form: `python -m tests.fuzz.run TARGET MINUTES` fuzzes one target, tells what it found, and keeps what is new.

With atheris (the extra `fuzz`) inputs are led by what they reach in keyplan; without it Hypothesis draws them. Both run in a
process of their own, which may be ended for what it takes: its findings and inputs lie in a folder.
"""

import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, settings

atheris: Any = import_module("atheris") if find_spec("atheris") else None
CHILD: Final = "--child"
IS_LED: Final = atheris is not None and CHILD in sys.argv

# Why: what is imported in this block is watched by atheris.
with atheris.instrument_imports(include=["keyplan"]) if IS_LED else nullcontext():
    from keyplan.engine.clock import SYSTEM_CLOCK
    from tests.fuzz.corpus import keep, kept, reached
    from tests.fuzz.mutation import inputs
    from tests.fuzz.targets import INPUT_BYTES_MAX, TARGETS
    from tests.fuzz.watchdog import SECONDS_MAX, run_watched

__all__ = ["Findings", "fuzz"]

ROOT: Final = Path(__file__).resolve().parents[2]
MEMORY_MIB_MAX: Final = 1_536
KEPT_INPUTS_MAX: Final = 60
KEPT_INPUT_BYTES_MAX: Final = 400
CANDIDATES_MAX: Final = 1_500


class _Noting:
    """Hands a failure of its block to `note`, and goes on: every kind of failure is what is looked for."""

    def __init__(self, note: Callable[[Exception], None]) -> None:
        self._note = note

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self._note(error)
        return True


class Findings:
    """Runs a target and goes on after a failure: one input for each place that failed, the shortest."""

    def __init__(self, name: str, folder: Path) -> None:
        self._target = TARGETS[name]
        self._folder = folder
        self._lengths: dict[str, int] = {}
        self.inputs = 0

    def try_input(self, data: bytes) -> None:
        """Run the target on the input, and note a failure."""
        self.inputs += 1
        with _Noting(lambda error: self._note(data, error)):
            run_watched(self._target, data)

    def _note(self, data: bytes, error: Exception) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        place = next((frame for frame in reversed(frames) if "/keyplan/" in frame.filename), frames[-1])
        known = f"{type(error).__name__} {Path(place.filename).name} {place.lineno}"
        if len(data) < self._lengths.get(known, INPUT_BYTES_MAX + 1):
            self._lengths[known] = len(data)
            text = "".join(traceback.format_exception(error, limit=-4))
            (self._folder / f"{known.replace(' ', '-')}.finding").write_text(f"{data!r}\n{text}")


def _led_by_coverage(name: str, seconds: int, folder: Path) -> None:
    findings = Findings(name, folder)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-rss_limit_mb={MEMORY_MIB_MAX}",
        f"-timeout={2 * SECONDS_MAX:.0f}",
        f"-artifact_prefix={folder}/stopped-",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(folder / "inputs")], findings.try_input)
    atheris.Fuzz()


def _drawn(name: str, seconds: int, folder: Path) -> None:
    findings = Findings(name, folder)
    until = SYSTEM_CLOCK.monotonic() + seconds

    @settings(
        max_examples=1_000,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs((*TARGETS[name].seeds, *kept(name))))
    def draw(data: bytes) -> None:
        findings.try_input(data)

    while SYSTEM_CLOCK.monotonic() < until:
        draw()
    print(f"stat::number_of_executed_units: {findings.inputs}", file=sys.stderr)


def _worth_keeping(name: str, candidates: Iterable[bytes]) -> list[bytes]:
    """Return the inputs that reach what neither the seeds nor those before them reach, the shortest first."""
    target = TARGETS[name]
    known = {arc for seed in target.seeds for arc in reached(target, seed)}
    worth: list[bytes] = []
    short = {raw for raw in candidates if len(raw) <= KEPT_INPUT_BYTES_MAX}
    for data in sorted(short, key=lambda raw: (len(raw), raw))[:CANDIDATES_MAX]:
        if len(worth) == KEPT_INPUTS_MAX:
            break
        with suppress(Exception):  # Why: a failure was told as a finding, and is kept by a test of its own.
            arcs = reached(target, data)
            if not arcs <= known:
                known |= arcs
                worth.append(data)
    return worth


def fuzz(name: str, minutes: float) -> int:
    """Fuzz the target in a process of its own, print what was found, and keep what is new. Return the number of findings."""
    with tempfile.TemporaryDirectory(prefix=f"keyplan-fuzz-{name}-") as temporary:
        folder = Path(temporary)
        (folder / "inputs").mkdir()
        for number, data in enumerate((*TARGETS[name].seeds, *kept(name))):
            (folder / "inputs" / f"seed-{number}").write_bytes(data)
        how = "atheris" if atheris else "hypothesis"
        program = [sys.executable, "-m", "tests.fuzz.run", CHILD, name, str(int(minutes * 60)), temporary]
        done = subprocess.run(
            program, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, check=False
        )
        tried = [line for line in done.stderr.splitlines() if "number_of_executed_units" in line or "peak_rss" in line]
        findings = sorted(folder.glob("*.finding")) + sorted(folder.glob("stopped-*"))
        for finding in findings:
            print(f"--- {finding.name}\n{finding.read_bytes().decode(errors='replace')}")
        print(f"{name}: {how}, {minutes:g} minutes, {len(findings)} findings; {'; '.join(tried) or done.stderr[-500:]}")
        found = [path.read_bytes() for path in (folder / "inputs").iterdir() if not path.name.startswith("seed-")]
        keep(name, _worth_keeping(name, [*kept(name), *found]))
        return len(findings)


if __name__ == "__main__":
    if sys.argv[1] == CHILD:
        (_led_by_coverage if atheris else _drawn)(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    else:
        sys.exit(1 if fuzz(sys.argv[1], float(sys.argv[2])) else 0)
