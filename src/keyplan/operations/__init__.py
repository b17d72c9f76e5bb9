"""Operations, each declared once: what is asked for, what is answered, who may ask, and how both stand in HTTP or gRPC."""

from keyplan.operations.declare import (
    AnswerForm,
    BodyForm,
    CallerKind,
    Declared,
    In,
    Operation,
    Parameter,
    Place,
    WordForm,
    operation,
    operations_of,
)
from keyplan.operations.description import described
from keyplan.operations.rpc import Rpc, rpc, rpcs_of, service_table
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
    "Declared",
    "In",
    "Operation",
    "Parameter",
    "Place",
    "Rpc",
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
    "rpc",
    "rpcs_of",
    "schema_of",
    "service_table",
    "whole_number",
    "words",
    "write_answer",
]
