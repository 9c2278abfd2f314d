"""The subsets of JSON Schema that vendors take: what is right passes, and each rule refuses what breaks it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._playground.schemas import schema_complaint

SUBSETS = ["openai", "openai-older", "anthropic", "gemini", "openapi"]
LABEL = {"type": "string", "enum": ["a", "b"]}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text() | st.sampled_from(["type", "properties", "items", "anyOf", "enum", "required", "$ref", "$defs"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def _object(properties: dict, **more: object) -> dict:
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False, **more}


def _deep(levels: int) -> dict:
    return LABEL if levels == 0 else _object({"x": _deep(levels - 1)})


NODE = _object({"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}})
GOOD = _object({"label": LABEL, "tags": {"type": "array", "items": LABEL}})


@pytest.mark.parametrize(
    ("subset", "schema"),
    [
        *((subset, GOOD) for subset in ("openai", "openai-older", "anthropic", "gemini")),
        ("openai", _object({"confidence": {"type": "number", "minimum": 0, "maximum": 1}})),
        ("openai", _object({"name": {"type": "string", "minLength": 1, "pattern": "^a(?:b)"}})),
        ("openai", _object({"name": {"type": ["string", "null"]}, "day": {"type": "string", "format": "date"}})),
        ("openai", _object({"n": {"$ref": "#/$defs/node"}}, **{"$defs": {"node": NODE}})),
        ("openai", _deep(10)),
        ("openai", _object({"x": {"type": "string", "enum": [str(number) for number in range(1000)]}})),
        ("anthropic", _object({"x": {"enum": ["a", 1, True, None]}, "url": {"type": "string", "format": "uri"}})),
        ("anthropic", {**_object({"x": LABEL}), "required": []}),
        ("anthropic", _object({"n": {"$ref": "#/$defs/leaf"}}, **{"$defs": {"leaf": LABEL}})),
        ("anthropic", _object({"x": {"type": "array", "items": LABEL, "minItems": 1}})),
        ("gemini", {"type": "object", "properties": {"x": {"enum": ["a", 1]}}, "propertyOrdering": ["x"]}),
        ("openapi", {"type": "OBJECT", "properties": {"x": {"type": "STRING", "enum": ["a"], "nullable": True}}}),
    ],
)
def test_what_a_vendor_takes_passes(subset, schema):
    """A schema within the vendor's subset meets no complaint."""
    assert schema_complaint(subset, schema) is None


@pytest.mark.parametrize(
    ("subset", "schema", "says"),
    [
        ("openai", LABEL, "'type: \"object\"'"),
        ("openai", {**GOOD, "anyOf": [GOOD]}, "not anyOf"),
        ("openai", {**GOOD, "additionalProperties": True}, "'additionalProperties'"),
        ("openai", {**GOOD, "required": ["label"]}, "Missing 'tags'"),
        ("openai", _object({"x": {"type": "object", "properties": {}}}), "'properties', 'x'"),
        ("openai", _object({"x": {"oneOf": [LABEL]}}), "'oneOf' is not permitted"),
        ("openai", _object({"x": {**LABEL, "default": "a"}}), "'default' is not permitted"),
        ("openai", _object({"x": {"type": "array"}}), "items"),
        ("openai", _object({"x": {"type": "array", "items": {}}}), "items"),
        ("openai", _object({"x": {"type": "string", "format": "uri"}}), "'uri'"),
        ("openai", _object({"x": {"type": "string", "pattern": "a(?!b)"}}), "lookaround"),
        ("openai", _object({"x": {"$ref": "#/$defs/y", "title": "X"}}, **{"$defs": {"y": LABEL}}), "beside it"),
        ("openai", _object({"x": {"$ref": "other.json"}}), "other.json"),
        ("openai", _deep(11), "10 levels"),
        ("openai", _object({"x": {"type": "string", "enum": [str(n) for n in range(1001)]}}), "1001 enum values"),
        ("openai", _object({"x": {"type": "string", "enum": [f"{n:060}" for n in range(251)]}}), "15000 characters"),
        ("openai", _object({f"p{n}": LABEL for n in range(5001)}), "5001 properties"),
        ("openai", _object({"x" * 120_001: {"type": "string"}}), "more than 120000"),
        ("openai-older", _object({"x": {"type": "string", "maxLength": 5}}), "'maxLength' is not permitted"),
        ("anthropic", {**GOOD, "additionalProperties": None}, "must be explicitly set to false"),
        ("anthropic", _object({"x": {"type": "number", "minimum": 0}}), "'minimum' is not supported"),
        ("anthropic", _object({"x": {"type": "string", "maxLength": 5}}), "'maxLength' is not supported"),
        ("anthropic", _object({"x": {"type": "array", "items": LABEL, "minItems": 2}}), "'minItems'"),
        ("anthropic", _object({"x": {"type": "string", "format": "color"}}), "'color'"),
        ("anthropic", _object({"x": {"enum": [["a"]]}}), "enum values"),
        ("anthropic", _object({"n": {"$ref": "#/$defs/node"}}, **{"$defs": {"node": NODE}}), "Recursive"),
        ("anthropic", _object({"n": {"$ref": "#"}}), "Recursive"),
        ("anthropic", {**_object({f"p{n}": LABEL for n in range(25)}), "required": []}, "optional parameters (25)"),
        ("anthropic", _object({f"p{n}": {"type": ["string", "null"]} for n in range(17)}), "(17 parameters"),
        ("gemini", _object({"x": {"const": "a"}}), '"const"'),
        ("gemini", _object({"x": {"type": "string", "pattern": "a"}}), '"pattern"'),
        ("gemini", _object({"x": {"enum": [True]}}), "strings or numbers"),
        ("gemini", _object({"x": {"$ref": "#/$defs/y", "title": "X"}}, **{"$defs": {"y": LABEL}}), "beside keywords"),
        ("openapi", GOOD, '"additionalProperties"'),
        ("openapi", {"type": ["string", "null"]}, "type"),
        ("openapi", {"type": "INTEGER", "enum": [1]}, "TYPE_STRING"),
    ],
)
def test_what_a_vendor_refuses_is_named(subset, schema, says):
    """A schema outside the vendor's subset is met with a complaint that names what is wrong."""
    assert says in schema_complaint(subset, schema)


@given(st.sampled_from(SUBSETS), json_values)
def test_no_schema_is_a_surprise(subset, schema):
    """Any JSON at all is either taken or complained about."""
    assert isinstance(schema_complaint(subset, schema), str | None)
