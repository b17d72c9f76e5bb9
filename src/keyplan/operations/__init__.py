"""Operations, each declared once: what is asked for, what is answered, who may ask, and how both stand in HTTP."""

from keyplan.operations.declare import (
    AnswerForm,
    BodyForm,
    CallerKind,
    In,
    Operation,
    Parameter,
    Place,
    WordForm,
    operation,
    operations_of,
)
from keyplan.operations.description import described
from keyplan.operations.schema import Components, Schema, Some, schema_of
from keyplan.operations.wire import (
    Asked,
    ask,
    body_type,
    read_answer,
    read_body,
    read_words,
    whole_number,
    words,
    write_answer,
)

__all__ = [
    "AnswerForm",
    "Asked",
    "BodyForm",
    "CallerKind",
    "Components",
    "In",
    "Operation",
    "Parameter",
    "Place",
    "Schema",
    "Some",
    "WordForm",
    "ask",
    "body_type",
    "described",
    "operation",
    "operations_of",
    "read_answer",
    "read_body",
    "read_words",
    "schema_of",
    "whole_number",
    "words",
    "write_answer",
]
