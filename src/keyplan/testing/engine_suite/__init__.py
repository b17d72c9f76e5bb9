"""The conformance suite: what an engine promises, as tests. An engine's test file subclasses EngineSuite and adds a fixture.

    class TestMyEngine(EngineSuite):
        @pytest.fixture
        def engine(self):
            with MyEngine() as engine:
                yield engine

The tests cannot be overridden; see `promise` for what else a subclass may supply. Needs pytest and hypothesis.
"""

import pytest

# Why: so that a failing assertion of the suite shows its values in an engine's own test run.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "closing", "commits", "guards", "leases", "limits", "lineage", "loads", "many", "model", "promise", "races",
            "reads", "scans", "sharing", "sizes", "stillness", "watches",
        )
    )
)  # fmt: skip

from keyplan.testing.engine_suite.closing import ClosePromises  # noqa: E402
from keyplan.testing.engine_suite.commits import CommitPromises  # noqa: E402
from keyplan.testing.engine_suite.guards import GuardPromises  # noqa: E402
from keyplan.testing.engine_suite.leases import LeasePromises  # noqa: E402
from keyplan.testing.engine_suite.limits import LimitPromises  # noqa: E402
from keyplan.testing.engine_suite.lineage import LineagePromises  # noqa: E402
from keyplan.testing.engine_suite.loads import LoadPromises  # noqa: E402
from keyplan.testing.engine_suite.many import ManyKeysPromises  # noqa: E402
from keyplan.testing.engine_suite.model import ModelPromises  # noqa: E402
from keyplan.testing.engine_suite.promise import Promise, eventually  # noqa: E402
from keyplan.testing.engine_suite.races import RacePromises  # noqa: E402
from keyplan.testing.engine_suite.reads import ReadPromises  # noqa: E402
from keyplan.testing.engine_suite.scans import ScanPromises  # noqa: E402
from keyplan.testing.engine_suite.sharing import SharingPromises  # noqa: E402
from keyplan.testing.engine_suite.sizes import SizePromises  # noqa: E402
from keyplan.testing.engine_suite.stillness import StillnessPromises  # noqa: E402
from keyplan.testing.engine_suite.watches import WatchPromises  # noqa: E402

__all__ = ["EngineSuite", "Promise", "eventually"]


class EngineSuite(
    ReadPromises,
    StillnessPromises,
    ScanPromises,
    CommitPromises,
    GuardPromises,
    WatchPromises,
    LeasePromises,
    LimitPromises,
    LineagePromises,
    LoadPromises,
    ManyKeysPromises,
    ClosePromises,
    SharingPromises,
    RacePromises,
    SizePromises,
    ModelPromises,
):
    """Every promise. Subclass once per engine and supply the `engine` fixture; override nothing else."""
