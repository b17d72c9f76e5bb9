"""A layout inferred from a store: what its keys are made of, decided from evidence, with the evidence."""

from keyplan.maintenance.inference.decisions import Confidence
from keyplan.maintenance.inference.found import Note
from keyplan.maintenance.inference.infer import Inference, infer, infer_keys
from keyplan.maintenance.inference.suggestions import Suggestion

__all__ = ["Confidence", "Inference", "Note", "Suggestion", "infer", "infer_keys"]
