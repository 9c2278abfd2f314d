"""JSON schemas as each vendor takes them: copies without what it refuses, since answers are checked here anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

__all__ = ["for_anthropic", "for_gemini", "for_openai", "with_schema"]

Schema = Mapping[str, Any]

_NAMED = ("properties", "$defs", "definitions")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_REFUSED_BY_OPENAI = frozenset(
    {
        "default", "title", "examples", "not", "if", "then", "else", "dependentRequired", "dependentSchemas",
        "patternProperties", "propertyNames", "minProperties", "maxProperties", "contains", "minContains",
        "maxContains", "uniqueItems", "unevaluatedItems", "unevaluatedProperties", "minLength", "maxLength",
        "discriminator", "$schema",
    }
)  # fmt: skip
_TAKEN_BY_ANTHROPIC = frozenset(
    {
        "type", "description", "title", "enum", "const", "format", "properties", "required", "additionalProperties",
        "items", "minItems", "anyOf", "allOf", "$defs", "definitions", "$ref",
    }
)  # fmt: skip
_TAKEN_BY_GEMINI = frozenset(
    {
        "$id", "$defs", "$ref", "$anchor", "type", "format", "description", "enum", "items", "prefixItems",
        "minItems", "maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties", "additionalProperties",
        "required",
    }
)  # fmt: skip
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})


def for_openai(schema: Schema) -> dict[str, Any]:
    """Copy a schema into OpenAI's strict subset: closed objects whose fields are all required.

    A field that may be absent may be null instead.

    Examples
    --------
    >>> for_openai({"type": "object", "properties": {"a": {"type": "string"}}})["properties"]
    {'a': {'type': ['string', 'null']}}
    """
    return _copied(schema, _to_openai)


def for_anthropic(schema: Schema) -> dict[str, Any]:
    """Copy a schema without what Anthropic refuses, such as the bounds of numbers, its objects closed.

    Examples
    --------
    >>> for_anthropic({"type": "number", "minimum": 0})
    {'type': 'number'}
    """
    return _copied(schema, _to_anthropic)


def for_gemini(schema: Schema) -> dict[str, Any]:
    """Copy a schema into the subset of Gemini's ``responseJsonSchema``, its fields in the order given.

    Examples
    --------
    >>> for_gemini({"const": "a", "default": "a"})
    {'enum': ['a']}
    """
    return _copied(schema, _to_gemini)


def with_schema(system: str, schema: Schema) -> str:
    """Add a schema to the instructions, for models that cannot be held to one.

    Examples
    --------
    >>> print(with_schema("Label the text.", {"type": "object"}))
    Label the text.
    <BLANKLINE>
    Answer in JSON, with one JSON object that fits this JSON schema and nothing else:
    {"type":"object"}
    """
    form = orjson.dumps(dict(schema)).decode()
    asked = f"Answer in JSON, with one JSON object that fits this JSON schema and nothing else:\n{form}"
    return f"{system}\n\n{asked}" if system else asked


def _copied(schema: Schema, rewrite: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Copy a schema, every schema within rewritten before the one around it."""
    copy = dict(schema)
    for keyword in _NAMED:
        if isinstance(schema.get(keyword), Mapping):
            copy[keyword] = {name: _inner(part, rewrite) for name, part in schema[keyword].items()}
    for keyword in _LISTED:
        if isinstance(schema.get(keyword), list):
            copy[keyword] = [_inner(part, rewrite) for part in schema[keyword]]
    for keyword in ("items", "additionalProperties"):
        if keyword in schema:
            copy[keyword] = _inner(schema[keyword], rewrite)
    return rewrite(copy)


def _inner(part: Any, rewrite: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    # True and False are schemas too.
    return _copied(part, rewrite) if isinstance(part, Mapping) else part


def _to_openai(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {keyword: value for keyword, value in schema.items() if keyword not in _REFUSED_BY_OPENAI}
    kept = _one_of_as_any_of(_all_of_merged(_known_format(kept, _FORMATS)))
    if _is_object(kept):
        fields = kept.get("properties", {})
        needed = kept.get("required", ())
        kept["properties"] = {name: part if name in needed else _or_null(part) for name, part in fields.items()}
        kept["required"] = list(fields)
        kept["additionalProperties"] = False
    if "$ref" in kept and len(kept) > 1:
        reference = {"$ref": kept.pop("$ref")}
        kept["anyOf"] = [reference]
    return kept


def _to_anthropic(schema: dict[str, Any]) -> dict[str, Any]:
    kept = _one_of_as_any_of(dict(schema))
    kept = {keyword: value for keyword, value in kept.items() if keyword in _TAKEN_BY_ANTHROPIC}
    kept = _known_format(kept, _FORMATS | {"uri"})
    if kept.get("minItems", 0) not in (0, 1):
        del kept["minItems"]
    if _is_object(kept):
        kept["additionalProperties"] = False
    return kept


def _to_gemini(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return {keyword: value for keyword, value in schema.items() if keyword.startswith("$")}
    kept = {keyword: value for keyword, value in schema.items() if keyword in _TAKEN_BY_GEMINI}
    if "const" in schema:
        kept["enum"] = [schema["const"]]
    kept = _choices_as_enum(kept)
    if not all(_is_string_or_number(value) for value in kept.get("enum", ())):
        del kept["enum"]
    if len(kept.get("properties", ())) > 1:
        kept["propertyOrdering"] = list(kept["properties"])
    return kept


def _is_object(schema: Schema) -> bool:
    return schema.get("type") == "object" or isinstance(schema.get("properties"), Mapping)


def _is_string_or_number(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _one_of_as_any_of(schema: dict[str, Any]) -> dict[str, Any]:
    if "oneOf" in schema and "anyOf" not in schema:
        schema["anyOf"] = schema.pop("oneOf")
    schema.pop("oneOf", None)
    return schema


def _all_of_merged(schema: dict[str, Any]) -> dict[str, Any]:
    """Write an ``allOf`` of one schema, as pydantic makes them, without it."""
    parts = schema.pop("allOf", [])
    return {**parts[0], **schema} if len(parts) == 1 and isinstance(parts[0], dict) else schema


def _known_format(schema: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    if schema.get("format", "date") not in known:
        del schema["format"]
    return schema


def _or_null(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema and "const" not in schema:
        return schema if kind == "null" else {**schema, "type": [kind, "null"]}
    if isinstance(kind, list) and "null" in kind:
        return schema
    if isinstance(schema.get("anyOf"), list):
        nullable = any(isinstance(part, dict) and part.get("type") == "null" for part in schema["anyOf"])
        return schema if nullable else {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return {"anyOf": [schema, {"type": "null"}]}


def _choices_as_enum(schema: dict[str, Any]) -> dict[str, Any]:
    """Write alternatives that are single values as one enumeration: as alternatives they are not enforced."""
    for keyword in ("anyOf", "oneOf"):
        parts = schema.get(keyword)
        if isinstance(parts, list) and parts and all(isinstance(part, dict) and "enum" in part for part in parts):
            values: Iterable[Any] = (value for part in parts for value in part["enum"])
            del schema[keyword]
            schema["enum"] = list(dict.fromkeys(values))
            if all(isinstance(value, str) for value in schema["enum"]):
                schema.setdefault("type", "string")
    return schema
