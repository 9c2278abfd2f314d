"""What of JSON Schema each vendor takes for structured output, and what it says to the rest. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from batchkit._playground.fields import (
    ANTHROPIC_SCHEMA_REFUSES,
    GEMINI_SCHEMA_TAKES,
    OPENAI_SCHEMA_REFUSES,
    OPENAPI_SCHEMA_TAKES,
)

__all__ = ["schema_complaint"]

_Schema = Mapping[str, Any]
_Node = tuple[str, Any, int]
"""Where a schema stands, the schema itself, and how many objects it stands in."""

_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_LENGTHS = frozenset({"minLength", "maxLength"})
_LOOKAROUND = re.compile(r"\(\?<?[=!]")
_OPENAPI_TYPES = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL", "TYPE_UNSPECIFIED"})
_MAPS_OF_SCHEMAS = ("properties", "$defs", "definitions", "patternProperties")
_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE_SCHEMAS = ("items", "not", "additionalProperties")


def schema_complaint(subset: str, schema: Any) -> str | None:
    """Say what is wrong with a schema by the rules of ``subset``, and ``None`` where nothing is.

    Subsets are ``openai`` (strict), ``openai-older`` (the same without lengths of texts),
    ``anthropic``, ``gemini`` (``responseJsonSchema``) and ``openapi`` (``responseSchema``).
    """
    return next(_CHECKS[subset](schema), None)


def _openai(schema: Any) -> Iterator[str]:
    yield from _openai_root(schema)
    yield from _openai_sizes(schema)
    for where, node, depth in _nodes(schema):
        if depth >= 10 and _object(node, "properties"):
            yield f"In context={where}, schema exceeds 10 levels of nesting."
        yield from _openai_node(where, node)


def _openai_older(schema: Any) -> Iterator[str]:
    for where, node, _ in _nodes(schema):
        yield from (f"In context={where}, '{name}' is not permitted." for name in _LENGTHS & node.keys())
    yield from _openai(schema)


def _openai_root(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict) or schema.get("type") != "object" or "anyOf" in schema:
        yield "schema must be a JSON Schema of 'type: \"object\"', and not anyOf."


def _openai_node(where: str, node: _Schema) -> Iterator[str]:
    for name in sorted(OPENAI_SCHEMA_REFUSES & node.keys()):
        yield f"In context={where}, '{name}' is not permitted."
    reference = node.get("$ref")
    if reference is not None and len(node) > 1:
        yield f"In context={where}, $ref cannot have keywords beside it."
    if reference is not None and not (reference == "#" or str(reference).startswith("#/$defs/")):
        yield f"In context={where}, reference {reference!r} is not permitted; use # or #/$defs/..."
    if node.get("type") == "object" or "properties" in node:
        yield from _openai_object(where, node)
    if node.get("type") == "array" and not _is_typed(node.get("items")):
        yield f"In context={where}, array schema missing items with a type."
    if "format" in node and str(node["format"]) not in _FORMATS:
        yield f"In context={where}, {node['format']!r} is not a valid format."
    if _LOOKAROUND.search(str(node.get("pattern", ""))):
        yield f"In context={where}, lookaround is not permitted in a pattern."
    texts = [value for value in _list(node, "enum") if isinstance(value, str)]
    if len(texts) > 250 and sum(map(len, texts)) > 15_000:
        yield f"In context={where}, an enum of more than 250 values exceeds 15000 characters."


def _openai_object(where: str, node: _Schema) -> Iterator[str]:
    if node.get("additionalProperties") is not False:
        yield f"In context={where}, 'additionalProperties' is required to be supplied and to be false."
    required = _list(node, "required")
    missing = [name for name in _object(node, "properties") if name not in required]
    if missing:
        yield (
            f"In context={where}, 'required' is required to be supplied and to be an array including every key "
            f"in properties. Missing '{missing[0]}'."
        )


def _openai_sizes(schema: Any) -> Iterator[str]:
    properties = enums = characters = 0
    for _, node, _ in _nodes(schema):
        names, values = list(_object(node, "properties")), [*_list(node, "enum"), *_list(node, "const")]
        properties += len(names)
        enums += len(_list(node, "enum"))
        characters += sum(len(str(text)) for text in (*names, *values, *_object(node, "$defs")))
    if properties > 5000:
        yield f"schema has {properties} properties, more than 5000."
    if enums > 1000:
        yield f"schema has {enums} enum values, more than 1000."
    if characters > 120_000:
        yield f"schema has {characters} characters in names and values, more than 120000."


def _anthropic(schema: Any) -> Iterator[str]:
    optional = unions = 0
    for where, node, _ in _nodes(schema):
        yield from _anthropic_node(where, node)
        properties, required = _object(node, "properties"), _list(node, "required")
        optional += sum(name not in required for name in properties)
        unions += sum(_is_union(inner) for inner in properties.values())
    if _is_recursive(schema):
        yield "Recursive schemas are not supported"
    if optional > 24:
        yield f"Schemas contains too many optional parameters ({optional}), which would make grammar compilation slow"
    if unions > 16:
        yield f"Schemas contains too many parameters with union types ({unions} parameters with type arrays or anyOf)"


def _anthropic_node(where: str, node: _Schema) -> Iterator[str]:
    if (node.get("type") == "object" or "properties" in node) and node.get("additionalProperties") is not False:
        yield f"{where}: For 'object' type, 'additionalProperties' must be explicitly set to false"
    for name in sorted(ANTHROPIC_SCHEMA_REFUSES & node.keys()):
        yield f"{where}: For '{node.get('type', 'any')}' type, property '{name}' is not supported"
    if node.get("minItems", 0) not in (0, 1):
        yield f"{where}: For 'array' type, 'minItems' values other than 0 or 1 are not supported"
    if "format" in node and str(node["format"]) not in _FORMATS | {"uri"}:
        yield f"{where}: For 'string' type, format '{node['format']}' is not supported"
    if any(isinstance(value, dict | list) for value in _list(node, "enum")):
        yield f"{where}: enum values must be strings, numbers, booleans or null"


def _gemini(schema: Any) -> Iterator[str]:
    for where, node, _ in _nodes(schema):
        for name in sorted(node.keys() - GEMINI_SCHEMA_TAKES):
            yield f"{where}: Unknown name \"{name}\" at 'generation_config.response_json_schema': not supported."
        if "$ref" in node and any(not name.startswith("$") for name in node):
            yield f"{where}: $ref may stand beside keywords that begin with $ only."
        if any(isinstance(value, bool) or not isinstance(value, str | int | float) for value in _list(node, "enum")):
            yield f"{where}: enum values must be strings or numbers."


def _openapi(schema: Any) -> Iterator[str]:
    for where, node, _ in _nodes(schema):
        for name in sorted(node.keys() - OPENAPI_SCHEMA_TAKES):
            yield f"{where}: Unknown name \"{name}\" at 'generation_config.response_schema': Cannot find field."
        kind = node.get("type", "OBJECT")
        if not isinstance(kind, str) or kind.upper() not in _OPENAPI_TYPES:
            yield f"{where}: Invalid value at 'generation_config.response_schema.type': {kind!r}"
        if not all(isinstance(value, str) for value in _list(node, "enum")):
            yield f"{where}: Invalid value at 'generation_config.response_schema.enum' (TYPE_STRING)"


_CHECKS: Mapping[str, Callable[[Any], Iterator[str]]] = {
    "openai": _openai,
    "openai-older": _openai_older,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "openapi": _openapi,
}


def _nodes(schema: Any, where: str = "()", depth: int = 0) -> Iterator[_Node]:
    """Walk through all schemas inside a schema, itself first."""
    if not isinstance(schema, dict):
        return
    yield where, schema, depth
    for keyword in _MAPS_OF_SCHEMAS:
        for name, value in _object(schema, keyword).items():
            yield from _nodes(value, f"{where[:-1]}'{keyword}', '{name}', )", depth + 1)
    for keyword in _LISTS_OF_SCHEMAS:
        for place, value in enumerate(_list(schema, keyword)):
            yield from _nodes(value, f"{where[:-1]}'{keyword}', '{place}', )", depth)
    for keyword in _SINGLE_SCHEMAS:
        yield from _nodes(schema.get(keyword), f"{where[:-1]}'{keyword}', )", depth)


def _list(node: _Schema, keyword: str) -> list[Any]:
    value = node.get(keyword)
    if keyword == "const":
        return [value] if keyword in node else []
    return value if isinstance(value, list) else []


def _object(node: _Schema, keyword: str) -> dict[str, Any]:
    value = node.get(keyword)
    return value if isinstance(value, dict) else {}


def _is_typed(items: Any) -> bool:
    return isinstance(items, dict) and not items.keys().isdisjoint({"type", "enum", "const", "anyOf", "$ref"})


def _is_union(schema: Any) -> bool:
    return isinstance(schema, dict) and ("anyOf" in schema or isinstance(schema.get("type"), list))


def _is_recursive(schema: Any) -> bool:
    definitions = _object(schema, "$defs") if isinstance(schema, dict) else {}
    reach = {f"#/$defs/{name}": _references(inner) for name, inner in definitions.items()}
    if "#" in _references(schema):
        return True
    for name in reach:
        seen: set[str] = set()
        ahead = set(reach[name])
        while ahead:
            if name in ahead:
                return True
            seen |= ahead
            ahead = {further for one in ahead for further in reach.get(one, ())} - seen
    return False


def _references(schema: Any) -> set[str]:
    return {str(node["$ref"]) for _, node, _ in _nodes(schema) if "$ref" in node}
