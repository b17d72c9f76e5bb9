"""A layout inferred from a store: what its keys are made of, decided from evidence, with the evidence."""

from typing import TYPE_CHECKING, Final

from keyplan.lazy_names import lazy_names

if TYPE_CHECKING:
    from keyplan.maintenance.inference.decisions import Confidence
    from keyplan.maintenance.inference.found import Note
    from keyplan.maintenance.inference.inferring import Inference, infer, infer_keys
    from keyplan.maintenance.inference.suggestions import Suggestion

__all__ = ["Confidence", "Inference", "Note", "Suggestion", "infer", "infer_keys"]

_MODULES: Final = {
    "decisions": ("Confidence",),
    "found": ("Note",),
    "inferring": ("Inference", "infer", "infer_keys"),
    "suggestions": ("Suggestion",),
}
"""Imported when a name is first used. Why: most commands need a few of them."""

if not TYPE_CHECKING:  # Why: type checkers would take every misspelt name for one that this function knows.
    __getattr__ = lazy_names(__name__, _MODULES)
