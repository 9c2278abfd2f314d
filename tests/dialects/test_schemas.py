"""A schema as each vendor takes it."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._dialects.schemas import for_anthropic, for_gemini, for_openai, with_schema

REWRITES = (for_openai, for_anthropic, for_gemini)
SCALAR = st.sampled_from(
    [
        {"type": "string", "minLength": 1, "pattern": "^a", "default": "a"},
        {"type": "integer", "minimum": 1, "maximum": 5, "title": "N"},
        {"enum": ["a", "b"]},
        {"const": "a", "description": "first"},
        {"type": "boolean", "enum": [True]},
        {"type": "string", "format": "uri"},
        {"$ref": "#/$defs/x", "description": "there"},
        {"type": ["string", "null"]},
        True,
        {},
    ]
)


def objects(inner):
    """Draw objects whose fields are drawn from ``inner``."""
    fields = st.dictionaries(st.sampled_from(["minimum", "type", "a", "$ref"]), inner, max_size=3)
    return st.builds(
        lambda fields, needed: {"type": "object", "properties": fields, "required": list(fields)[:needed]},
        fields,
        st.integers(0, 3),
    )


SCHEMA = objects(
    st.recursive(
        SCALAR,
        lambda inner: (
            objects(inner)
            | st.fixed_dictionaries({"type": st.just("array"), "items": inner, "minItems": st.integers(0, 3)})
            | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)})
            | st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=2)})
            | st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)})
        ),
        max_leaves=8,
    )
)


def within(schema):
    """Yield a schema and every schema inside it."""
    if not isinstance(schema, dict):
        return
    yield schema
    for keyword in ("properties", "$defs"):
        for part in schema.get(keyword, {}).values():
            yield from within(part)
    for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for part in schema.get(keyword, []):
            yield from within(part)
    yield from within(schema.get("items"))


@pytest.mark.parametrize("rewrite", REWRITES)
@given(schema=SCHEMA)
def test_a_schema_is_never_changed(rewrite, schema):
    """What the user gave is the same afterwards, and the copy keeps every field and is plain JSON."""
    before = copy.deepcopy(schema)
    sent = rewrite(schema)
    assert schema == before
    assert list(sent["properties"]) == list(schema["properties"])
    assert json.loads(json.dumps(sent)) == sent


@given(schema=SCHEMA)
def test_openai_gets_closed_objects_with_all_fields_required(schema):
    """Each object is closed, each field required, and no keyword is there that strict mode refuses."""
    for part in within(for_openai(schema)):
        if part.get("type") == "object":
            assert part["additionalProperties"] is False
            assert part["required"] == list(part["properties"])
        assert part.keys().isdisjoint({"default", "oneOf", "minLength", "title"})
        assert "$ref" not in part or len(part) == 1


@given(schema=SCHEMA)
def test_anthropic_gets_no_bounds(schema):
    """Each object is closed, what was optional stays so, and no bound is left."""
    for part in within(for_anthropic(schema)):
        if part.get("type") == "object":
            assert part["additionalProperties"] is False
        assert part.keys().isdisjoint({"minimum", "maximum", "minLength", "pattern", "oneOf", "default"})
        assert part.get("minItems", 0) in (0, 1)
    assert for_anthropic(schema)["required"] == schema["required"]


@given(schema=SCHEMA)
def test_gemini_gets_its_subset(schema):
    """Only keywords that it knows are left, fields keep their order, and a reference stands alone."""
    for part in within(for_gemini(schema)):
        assert part.keys().isdisjoint({"const", "default", "title", "pattern", "minLength", "allOf"})
        assert "$ref" not in part or all(keyword.startswith("$") for keyword in part)
        assert part.get("propertyOrdering", list(part.get("properties", {}))) == list(part.get("properties", {}))


@pytest.mark.parametrize(
    ("rewrite", "schema", "sent"),
    [
        (for_openai, {"type": "number", "minimum": 0, "maximum": 1}, {"type": "number", "minimum": 0, "maximum": 1}),
        (for_openai, {"allOf": [{"$ref": "#/$defs/x"}], "default": 1}, {"$ref": "#/$defs/x"}),
        (for_openai, {"oneOf": [{"type": "null"}]}, {"anyOf": [{"type": "null"}]}),
        (
            for_openai,
            {"type": "object", "properties": {"a": {"enum": ["x"]}, "b": {"anyOf": [{"type": "null"}]}}},
            {
                "type": "object",
                "properties": {"a": {"anyOf": [{"enum": ["x"]}, {"type": "null"}]}, "b": {"anyOf": [{"type": "null"}]}},
                "required": ["a", "b"],
                "additionalProperties": False,
            },
        ),
        (for_anthropic, {"type": "array", "minItems": 2, "items": {"type": "string"}}, None),
        (
            for_anthropic,
            {"$defs": {"x": {"type": "object", "properties": {}}}, "anyOf": [{"$ref": "#/$defs/x"}]},
            {
                "$defs": {"x": {"type": "object", "properties": {}, "additionalProperties": False}},
                "anyOf": [{"$ref": "#/$defs/x"}],
            },
        ),
        (
            for_gemini,
            {"anyOf": [{"const": "a", "description": "A"}, {"const": "b"}]},
            {"enum": ["a", "b"], "type": "string"},
        ),
        (for_gemini, {"type": "boolean", "enum": [True]}, {"type": "boolean"}),
        (for_gemini, {"$ref": "#/$defs/x", "description": "d"}, {"$ref": "#/$defs/x"}),
    ],
)
def test_a_rule_in_detail(rewrite, schema, sent):
    """Each vendor's own rule gives the schema written down here."""
    assert rewrite(schema) == (sent or {"type": "array", "items": {"type": "string"}})


@pytest.mark.parametrize("system", ["", "Label it."])
def test_a_schema_in_words_says_json(system):
    """In the prompt a schema stands whole, after the instructions, with the word that JSON modes ask for."""
    said = with_schema(system, {"type": "object"})
    assert said.startswith(system)
    assert "json" in said.lower()
    assert said.endswith('{"type":"object"}')
