"""What each vendor demands of a request, and how it says no: an independent reading of their documentation. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any

import orjson

from batchkit._playground.fields import (
    ANTHROPIC_FIELDS,
    CHAT_FIELDS,
    GEMINI_CONFIG,
    GEMINI_FIELDS,
    MISTRAL_FIELDS,
    OLLAMA_FIELDS,
    RESPONSES_FIELDS,
)
from batchkit._playground.judge import Asked
from batchkit._playground.models import claude, gemini_thinking, gpt, groq_efforts
from batchkit._playground.schemas import schema_complaint
from batchkit._playground.unsupported import gemini_unknown
from batchkit._playground.wires import Refusal
from batchkit._playground.wires.base import bad, mapping, mappings, whole

__all__ = ["RuleBook", "surprises"]

_Body = Mapping[str, Any]
_Headers = Mapping[str, str]

_SettingRules = Callable[[_Body, _Headers, str, str | None], Iterator[Refusal]]
_TurnRules = Callable[[_Body, str, str | None], Iterator[Refusal]]

_HEADERS_WITH_RULES = ("x-api-key", "authorization", "anthropic-version")
_SETTINGS_KEPT = 64


class RuleBook:
    """The rules of one dialect, or of one vendor that speaks OpenAI's.

    What the requests of a run share is judged once: it remembers settings that broke no rule.
    """

    def __init__(self, dialect: str, vendor: str | None = None) -> None:
        self._vendor = vendor
        self._of_settings, self._of_turns, self._turns = _RULES[dialect]
        self._settled: set[tuple[object, ...]] = set()

    def broken(self, body: _Body, headers: _Headers, model: str) -> Refusal | None:
        """Find the first rule that a request breaks; ``None`` where it breaks none."""
        settings = {name: value for name, value in body.items() if name != self._turns}
        key = (orjson.dumps(settings), model, *map(headers.get, _HEADERS_WITH_RULES))
        if key not in self._settled:
            refusal = next(self._of_settings(settings, headers, model, self._vendor), None)
            if refusal is not None:
                return refusal
            if len(self._settled) >= _SETTINGS_KEPT:
                self._settled.clear()
            self._settled.add(key)
        return next(self._of_turns(body, model, self._vendor), None)


def surprises(dialect: str, vendor: str | None, body: _Body, asked: Asked) -> list[str]:
    """Say what of a request the vendor passes over in silence, so that its author is in for a surprise."""
    names = _IGNORED.get(vendor or dialect, frozenset())
    found = [f"{name}: passed over in silence" for name in sorted(names & body.keys())]
    form = mapping(body.get("response_format"))
    if vendor == "llama.cpp" and form.get("type") == "json_schema" and "schema" in form:
        found.append("response_format.schema: passed over in silence, it belongs into json_schema")
    if dialect == "ollama":
        found += _ollama_surprises(body, asked)
    return found


# ---- OpenAI chat completions and the vendors that speak them ----------------------------------------

_IGNORED: Mapping[str, Set[str]] = {
    "vllm": frozenset({"guided_json", "guided_choice", "guided_regex", "guided_grammar"}),
    "ollama-v1": frozenset({"max_completion_tokens", "tool_choice", "n", "logit_bias"}),
    "deepseek": frozenset({"max_completion_tokens"}),
}
_OPENAI_ITSELF = (None, "azure")
_NEEDS_THE_WORD_JSON = (None, "azure", "deepseek", "qwen")
_STRICT_SUBSETS = {None: "openai", "azure": "openai-older", "groq": "openai-older"}
_NEW_CAP_ONLY = re.compile(r"(gpt-[5-9]|o[1-9])\b")
_NO_STOP = ("o3", "o4-mini")
_SCHEMA_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ROLES = frozenset({"developer", "system", "user", "assistant", "tool", "function"})
_STRUCTURED_OUTPUTS = frozenset({"choice", "json", "regex", "grammar", "structural_tag", "json_object"})
_OLLAMA_EFFORTS = frozenset({"none", "low", "medium", "high", "max"})


def _chat(body: _Body, headers: _Headers, model: str, vendor: str | None) -> Iterator[Refusal]:
    yield from _chat_fields(body, vendor)
    yield from _chat_caps(body, model, vendor)
    if vendor is None:
        yield from _gpt(body, model, str(body.get("reasoning_effort") or ""))
    yield from _numbers(body, {"temperature": (0, 2), "top_p": (0, 1), "n": (1, 128)})
    yield from _logprobs(body, vendor)
    yield from _response_format(body, model, vendor)
    yield from _chat_tools(body, vendor)
    yield from _vendor(body, model, vendor)
    yield from _no_stream(body)


def _chat_fields(body: _Body, vendor: str | None) -> Iterator[Refusal]:
    if vendor == "mistral":
        for name in sorted(body.keys() - MISTRAL_FIELDS):
            yield Refusal(422, "Extra inputs are not permitted", param=name)
    if vendor in _OPENAI_ITSELF:
        for name in sorted(body.keys() - CHAT_FIELDS):
            yield bad(f"Unknown parameter: '{name}'.", "unknown_parameter", name)


def _messages(body: _Body, model: str, vendor: str | None) -> Iterator[Refusal]:
    messages = body.get("messages")
    wants_json = mapping(body.get("response_format")).get("type") == "json_object"
    if wants_json and vendor in _NEEDS_THE_WORD_JSON and not _says_json(messages):
        yield bad(
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
            None,
            "messages",
        )
    if messages == []:
        yield bad(
            "Invalid 'messages': empty array. Expected an array with minimum length 1.", "empty_array", "messages"
        )
    for place, message in enumerate(mappings(messages)):
        role = message.get("role")
        if str(role) not in _ROLES or (role == "developer" and vendor is not None):
            yield bad(f"Invalid value: {role!r}.", "invalid_value", f"messages[{place}].role")


def _chat_caps(body: _Body, model: str, vendor: str | None) -> Iterator[Refusal]:
    old, new = "max_tokens" in body, "max_completion_tokens" in body
    if vendor in _OPENAI_ITSELF and old and new:
        yield bad("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
    if vendor is None and old and _NEW_CAP_ONLY.match(model):
        yield bad(
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            "unsupported_parameter",
            "max_tokens",
        )
    for name in ("max_tokens", "max_completion_tokens"):
        yield from _at_least(body, name, 1)


def _gpt(body: _Body, model: str, effort: str) -> Iterator[Refusal]:
    known = gpt(model)
    if known is None:
        return
    if not known.chat:
        message = "This model is only supported in v1/responses and not in v1/chat/completions."
        yield Refusal(404, message, param="model")
    if effort and known.efforts is not None and not known.efforts:
        yield bad("Unrecognized request argument supplied: reasoning_effort", None, "reasoning_effort")
    yield from _effort_value("reasoning_effort", effort, None if known.efforts is None else known.efforts - {"max"})
    if "stop" in body and model.startswith(_NO_STOP):
        yield _no_such_parameter("stop")
    yield from _gpt_sampling(body, model, effort, ("temperature", "top_p", "logprobs", "top_logprobs"))


def _gpt_sampling(body: _Body, model: str, effort: str, names: Iterable[str]) -> Iterator[Refusal]:
    known = gpt(model)
    if known is None or known.sampling == "always":
        return
    if known.sampling == "while_off" and (effort or known.default) == "none":
        return
    yield from (_no_such_parameter(name) for name in names if name in body)


def _no_such_parameter(name: str) -> Refusal:
    return bad(f"Unsupported parameter: '{name}' is not supported with this model.", "unsupported_parameter", name)


def _effort_value(param: str, effort: str, taken: Set[str] | None) -> Iterator[Refusal]:
    if effort and taken is not None and effort not in taken:
        yield bad(
            f"Unsupported value: '{param}' does not support '{effort}' with this model. "
            f"Supported values are: {', '.join(repr(value) for value in sorted(taken))}.",
            "unsupported_value",
            param,
        )


def _logprobs(body: _Body, vendor: str | None) -> Iterator[Refusal]:
    if vendor == "groq":
        yield from (_no_such_parameter(name) for name in ("logprobs", "top_logprobs") if name in body)
    if vendor == "together":
        asked = body.get("logprobs", 0)
        if whole(asked) is None or not 0 <= asked <= 20:
            yield bad("logprobs: Input should be an integer from 0 to 20", None, "logprobs")
        return
    yield from _numbers(body, {"top_logprobs": (0, 20)})
    if "top_logprobs" in body and body.get("logprobs") is not True:
        yield bad("Invalid value for 'top_logprobs': requires 'logprobs' to be true.", None, "top_logprobs")


def _response_format(body: _Body, model: str, vendor: str | None) -> Iterator[Refusal]:
    if "response_format" not in body:
        return
    form = mapping(body["response_format"])
    kind, where = str(form.get("type")), "response_format"
    if kind not in ("text", "json_object", "json_schema"):
        yield bad(
            f"Invalid value: {kind!r}. Supported values are: 'json_object', 'json_schema', and 'text'.", None, where
        )
    if kind != "json_schema":
        return
    if vendor == "deepseek":
        yield bad("This response_format type is unavailable now")
    if vendor == "qwen" and model.startswith("qwen") and not model.startswith(("qwen3.7", "qwen3.8")):
        yield bad(f"'response_format.type' json_schema is not supported by {model}", "invalid_parameter_error")
    if vendor != "llama.cpp":
        yield from _named_schema(mapping(form.get("json_schema")), f"{where}.json_schema", _STRICT_SUBSETS.get(vendor))


def _named_schema(named: _Body, where: str, subset: str | None) -> Iterator[Refusal]:
    for name in ("name", "schema"):
        if not named.get(name):
            yield bad(f"Missing required parameter: '{where}.{name}'.", "missing_required_parameter", f"{where}.{name}")
    name = str(named.get("name"))
    if not _SCHEMA_NAME.fullmatch(name):
        yield bad(f"Invalid '{where}.name': string does not match pattern.", "invalid_value", f"{where}.name")
    if subset is not None and named.get("strict") is True:
        complaint = schema_complaint(subset, named.get("schema"))
        if complaint is not None:
            root = where.partition(".")[0] if where.startswith("response") else where
            yield bad(f"Invalid schema for {root} '{name}': {complaint}", "invalid_json_schema", root)


def _chat_tools(body: _Body, vendor: str | None) -> Iterator[Refusal]:
    functions = [mapping(tool.get("function")) for tool in mappings(body.get("tools"))]
    yield from _tools(functions, "tools[{}].function", _STRICT_SUBSETS.get(vendor))
    forced = mapping(mapping(body.get("tool_choice")).get("function")).get("name")
    yield from _forced(forced, functions, body)


def _tools(functions: list[_Body], where: str, subset: str | None) -> Iterator[Refusal]:
    for place, function in enumerate(functions):
        at = where.format(place)
        if not _SCHEMA_NAME.fullmatch(str(function.get("name", ""))):
            yield bad(f"Invalid '{at}.name': string does not match pattern.", "invalid_value", f"{at}.name")
        complaint = None
        if subset is not None and function.get("strict") is True:
            complaint = schema_complaint(subset, function.get("parameters"))
        if complaint is not None:
            yield bad(f"Invalid schema for function: {complaint}", "invalid_function_parameters", f"{at}.parameters")


def _forced(forced: Any, functions: list[_Body], body: _Body) -> Iterator[Refusal]:
    if forced is not None and forced not in [function.get("name") for function in functions]:
        yield bad(f"Invalid value for 'tool_choice': no function {forced!r} in 'tools'.", None, "tool_choice")
    if body.get("tool_choice") is not None and not functions:
        yield bad("Invalid value for 'tool_choice': only allowed when 'tools' are specified.", None, "tool_choice")


def _vendor(body: _Body, model: str, vendor: str | None) -> Iterator[Refusal]:
    rule = {
        "groq": _groq,
        "deepseek": _deepseek,
        "vllm": _vllm,
        "llama.cpp": _llama_cpp,
        "ollama-v1": _ollama_v1,
    }.get(str(vendor))
    if rule is not None:
        yield from rule(body, model)


def _groq(body: _Body, model: str) -> Iterator[Refusal]:
    if body.get("n", 1) != 1:
        yield bad("'n' : number must be at most 1", None, "n")
    yield from _effort_value("reasoning_effort", str(body.get("reasoning_effort") or ""), groq_efforts(model))


def _deepseek(body: _Body, model: str) -> Iterator[Refusal]:
    kind = mapping(body.get("thinking")).get("type", "enabled")
    if kind not in ("enabled", "disabled"):
        yield Refusal(
            422, f"thinking.type: unknown variant `{kind}`, expected `enabled` or `disabled`", param="thinking"
        )
    if kind == "enabled" and isinstance(body.get("tool_choice"), dict):
        yield bad("Thinking mode does not support this tool_choice", param="tool_choice")
    if kind == "enabled" and body.get("logprobs"):
        yield bad("Thinking mode does not support logprobs", param="logprobs")


def _vllm(body: _Body, model: str) -> Iterator[Refusal]:
    if "structured_outputs" not in body:
        return
    asked = mapping(body["structured_outputs"]).keys()
    unknown = sorted(asked - _STRUCTURED_OUTPUTS)
    if unknown:
        yield bad(f"StructuredOutputsParams got an unexpected keyword argument '{unknown[0]}'")
    if len(asked) != 1:
        yield bad("You can only use one kind of structured outputs constraint")


def _llama_cpp(body: _Body, model: str) -> Iterator[Refusal]:
    if "json_schema" in body and "grammar" in body:
        yield bad('Either "json_schema" or "grammar" can be specified, but not both')


def _ollama_v1(body: _Body, model: str) -> Iterator[Refusal]:
    yield from _effort_value("reasoning_effort", str(body.get("reasoning_effort") or ""), _OLLAMA_EFFORTS)


# ---- OpenAI responses -------------------------------------------------------------------------------

_MOVED = {
    "messages": "input",
    "response_format": "text.format",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}
_PART_TYPES = {"assistant": ("output_text", "refusal")}
_INPUT_PARTS = ("input_text", "input_image", "input_file", "input_json")


def _responses(body: _Body, headers: _Headers, model: str, vendor: str | None) -> Iterator[Refusal]:
    yield from _responses_fields(body)
    yield from _at_least(body, "max_output_tokens", 16)
    yield from _numbers(body, {"temperature": (0, 2), "top_p": (0, 1), "top_logprobs": (0, 20)})
    effort = str(mapping(body.get("reasoning")).get("effort") or "")
    known = gpt(model)
    if known is not None:
        if effort and known.efforts is not None and not known.efforts:
            yield _no_such_parameter("reasoning.effort")
        yield from _effort_value("reasoning.effort", effort, known.efforts)
        yield from _gpt_sampling(body, model, effort, ("temperature", "top_p", "top_logprobs"))
    yield from _text_format(body)
    tools = mappings(body.get("tools"))
    yield from _tools(tools, "tools[{}]", "openai")
    yield from _forced(mapping(body.get("tool_choice")).get("name"), tools, body)
    yield from _no_stream(body)


def _responses_fields(body: _Body) -> Iterator[Refusal]:
    for name in sorted(body.keys() - RESPONSES_FIELDS):
        if name in _MOVED:
            message = f"Unsupported parameter: '{name}'. In the Responses API, it is called '{_MOVED[name]}'."
            yield bad(message, "unsupported_parameter", name)
        yield bad(f"Unknown parameter: '{name}'.", "unknown_parameter", name)


def _input_items(body: _Body, model: str, vendor: str | None) -> Iterator[Refusal]:
    if mapping(mapping(body.get("text")).get("format")).get("type") == "json_object" and not _says_json(
        body.get("input")
    ):
        yield bad(
            "Response input messages must contain the word 'json' in some form to use 'text.format' of type "
            "'json_object'.",
            None,
            "input",
        )
    for place, item in enumerate(mappings(body.get("input"))):
        role = str(item.get("role"))
        if item.get("type", "message") == "message" and role not in ("user", "assistant", "system", "developer"):
            yield bad(f"Invalid value: {role!r}.", "invalid_value", f"input[{place}].role")
        for part in mappings(item.get("content")):
            if part.get("type") not in _PART_TYPES.get(role, _INPUT_PARTS):
                yield bad(f"Invalid value: {part.get('type')!r}.", "invalid_value", f"input[{place}].content[0].type")


def _text_format(body: _Body) -> Iterator[Refusal]:
    form = mapping(mapping(body.get("text")).get("format"))
    kind = str(form.get("type", "text"))
    if kind not in ("text", "json_object", "json_schema"):
        yield bad(f"Invalid value: {kind!r}.", "invalid_value", "text.format.type")
    if kind == "json_schema":
        yield from _named_schema(form, "text.format", "openai")


# ---- Anthropic --------------------------------------------------------------------------------------

_ANTHROPIC_VERSIONS = ("2023-06-01", "2026-10-21")
_ANTHROPIC_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_THINKING_TYPES = ("enabled", "disabled", "adaptive", "between_tools")


def _anthropic(body: _Body, headers: _Headers, model: str, vendor: str | None) -> Iterator[Refusal]:
    yield from _anthropic_headers(headers)
    for name in sorted(body.keys() - ANTHROPIC_FIELDS):
        yield bad(f"{name}: Extra inputs are not permitted", param=name)
    yield from _anthropic_cap(body, model)
    yield from _anthropic_blocks("system", body.get("system"))
    yield from _anthropic_sampling(body, headers, model)
    yield from _anthropic_thinking(body, model)
    yield from _anthropic_output(body, model)
    yield from _anthropic_tools(body, model)
    yield from _no_stream(body)


def _anthropic_headers(headers: _Headers) -> Iterator[Refusal]:
    if "x-api-key" in headers and "authorization" in headers:
        yield Refusal(401, "Only one of x-api-key and Authorization may be sent")
    version = headers.get("anthropic-version")
    if version and version not in _ANTHROPIC_VERSIONS:
        yield bad(f"anthropic-version: {version!r} is not a valid version")


def _anthropic_cap(body: _Body, model: str) -> Iterator[Refusal]:
    if "max_tokens" not in body:
        return
    cap, most = whole(body["max_tokens"]), claude(model).most
    if cap is None or cap < 0:
        yield bad("max_tokens: Input should be a valid integer, 0 or more", param="max_tokens")
    elif most is not None and cap > most:
        yield bad(f"max_tokens: {cap} > {most}, which is the maximum allowed number of output tokens for {model}")


def _anthropic_messages(body: _Body, model: str, vendor: str | None) -> Iterator[Refusal]:
    messages = mappings(body.get("messages"))
    if body.get("messages") == []:
        yield bad("messages: at least one message is required")
    for place, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if role == "system":
            yield bad(
                'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, '
                'not "system" as an input message role.'
            )
        if role not in ("user", "assistant"):
            yield bad(f"messages.{place}.role: Input should be 'user' or 'assistant'")
        if not content:
            yield bad(f"messages.{place}: all messages must have non-empty content")
        yield from _anthropic_blocks(f"messages.{place}.content", content)
    ends_with_assistant = bool(messages) and messages[-1].get("role") == "assistant"
    if ends_with_assistant and (not claude(model).prefill or mapping(body.get("output_config")).get("format")):
        yield bad(
            "This request does not support assistant message prefill. The conversation must end with a user message."
        )


def _anthropic_blocks(where: str, content: Any) -> Iterator[Refusal]:
    texts = (
        [content] if isinstance(content, str) else [part.get("text") for part in mappings(content) if "text" in part]
    )
    for text in texts:
        if not text:
            yield bad(f"{where}: text content blocks must be non-empty")
        elif isinstance(text, str) and not text.strip():
            yield bad(f"{where}: text content blocks must contain non-whitespace text")


def _anthropic_sampling(body: _Body, headers: _Headers, model: str) -> Iterator[Refusal]:
    known = claude(model)
    for name in ("temperature", "top_p", "top_k"):
        if name in body and not (known.sampling and headers.get("anthropic-version") != "2026-10-21"):
            yield bad(f"`{name}` is not supported by this model.", param=name)
    if not known.both and "temperature" in body and "top_p" in body:
        yield bad("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")
    yield from _numbers(body, {"temperature": (0, 1), "top_p": (0, 1)})


def _anthropic_thinking(body: _Body, model: str) -> Iterator[Refusal]:
    if "thinking" not in body:
        return
    known, thinking = claude(model), mapping(body["thinking"])
    kind = str(thinking.get("type"))
    if kind not in _THINKING_TYPES:
        yield bad(f"thinking: Input tag '{kind}' does not match any of the expected tags: {', '.join(_THINKING_TYPES)}")
    if known.thinking is not None and kind not in known.thinking:
        yield bad(f'"thinking.type.{kind}" is not supported for this model.', param="thinking")
    if kind == "enabled":
        budget = whole(thinking.get("budget_tokens"))
        if budget is None or budget < 1024:
            yield bad("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        elif budget >= (whole(body.get("max_tokens")) or 0):
            yield bad("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _anthropic_output(body: _Body, model: str) -> Iterator[Refusal]:
    config, known = mapping(body.get("output_config")), claude(model)
    effort = config.get("effort")
    if effort is not None and effort not in _ANTHROPIC_EFFORTS:
        yield bad(f"output_config.effort: Input should be {', '.join(_ANTHROPIC_EFFORTS)}", param="effort")
    off = mapping(body.get("thinking")).get("type") in ("disabled", "between_tools")
    if off and effort in ("xhigh", "max") and not known.highest_when_off:
        yield bad(f"output_config.effort: '{effort}' is not supported while thinking is disabled", param="effort")
    form = config.get("format")
    if form is None:
        return
    if not known.structured:
        yield bad("output_config.format: structured outputs are not supported by this model", param="output_config")
    if mapping(form).get("type") != "json_schema" or not isinstance(mapping(form).get("schema"), dict):
        yield bad("output_config.format: expected {'type': 'json_schema', 'schema': {...}}")
        return
    complaint = schema_complaint("anthropic", form["schema"])
    if complaint is not None:
        yield bad(f"output_config.format.schema: {complaint}", param="output_config")


def _anthropic_tools(body: _Body, model: str) -> Iterator[Refusal]:
    tools, choice = mappings(body.get("tools")), mapping(body.get("tool_choice"))
    for place, tool in enumerate(tools):
        if not _SCHEMA_NAME.fullmatch(str(tool.get("name", ""))):
            yield bad(f"tools.{place}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'")
        if mapping(tool.get("input_schema")).get("type") != "object":
            yield bad(f"tools.{place}.input_schema.type: Field required")
        complaint = schema_complaint("anthropic", tool.get("input_schema")) if tool.get("strict") is True else None
        if complaint is not None:
            yield bad(f"tools.{place}.input_schema: {complaint}")
    if sum(tool.get("strict") is True for tool in tools) > 20:
        yield bad("tools: at most 20 tools may be strict")
    if choice and not tools:
        yield bad("tool_choice may only be specified while providing tools")
    forced = choice.get("type") in ("tool", "any")
    if choice.get("type") == "tool" and choice.get("name") not in [tool.get("name") for tool in tools]:
        yield bad(f"tool_choice: tool {choice.get('name')!r} not found in provided tools")
    if forced and not claude(model).forced_tool:
        yield bad("tool_choice: forcing a tool is not supported by this model", param="tool_choice")
    if forced and mapping(body.get("thinking")).get("type") == "enabled":
        yield bad("Thinking may not be enabled when tool_choice forces tool use.", param="tool_choice")


# ---- Gemini -----------------------------------------------------------------------------------------

_THINKING_CONFIG = frozenset({"includeThoughts", "thinkingBudget", "thinkingLevel"})
_LEVELS = ("MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH")
_DATA_FIELDS = ("text", "inlineData", "fileData", "functionCall", "functionResponse")


def _gemini(body: _Body, headers: _Headers, model: str, vendor: str | None) -> Iterator[Refusal]:
    config = mapping(body.get("generationConfig"))
    thinking = mapping(config.get("thinkingConfig"))
    yield from _unknown_names(body, GEMINI_FIELDS, "")
    yield from _unknown_names(config, GEMINI_CONFIG, " at 'generation_config'")
    yield from _unknown_names(thinking, _THINKING_CONFIG, " at 'generation_config.thinking_config'")
    if "systemInstruction" in body and not mappings(mapping(body["systemInstruction"]).get("parts")):
        yield bad("* GenerateContentRequest.system_instruction.parts: contents.parts must not be empty.")
    yield from _gemini_schemas(config)
    yield from _gemini_thinking(thinking, model)
    yield from _at_least(config, "maxOutputTokens", 1)
    yield from _numbers(config, {"temperature": (0, 2), "topP": (0, 1), "candidateCount": (1, 8)})
    if ("responseLogprobs" in config or "logprobs" in config) and model.startswith("gemini-"):
        yield bad(f"Logprobs is not enabled for models/{model}", param="responseLogprobs")


def _unknown_names(found: _Body, known: Set[str], where: str) -> Iterator[Refusal]:
    for name in sorted(found.keys() - known):
        yield gemini_unknown(name, where)


def _gemini_contents(body: _Body, model: str, vendor: str | None) -> Iterator[Refusal]:
    for place, item in enumerate(mappings(body.get("contents"))):
        if item.get("role", "user") not in ("user", "model"):
            yield bad("Please use a valid role: user, model.", param="role")
        parts = mappings(item.get("parts"))
        if not parts:
            yield bad(f"* GenerateContentRequest.contents[{place}].parts: contents.parts must not be empty.")
        for part in parts:
            if not any(part.get(name) for name in _DATA_FIELDS):
                yield bad(
                    f"* GenerateContentRequest.contents[{place}].parts[0].data: required oneof field 'data' must have "
                    "one initialized field"
                )


def _gemini_schemas(config: _Body) -> Iterator[Refusal]:
    mime = config.get("responseMimeType", "text/plain")
    if "responseSchema" in config and "responseJsonSchema" in config:
        yield bad("Only one of response_schema and response_json_schema may be set.", param="responseSchema")
    for name, subset in (("responseSchema", "openapi"), ("responseJsonSchema", "gemini")):
        if name not in config:
            continue
        if mime not in ("application/json", "text/x.enum"):
            yield bad(f"{name} is set, so response_mime_type must be application/json.", param="responseMimeType")
        complaint = schema_complaint(subset, config[name])
        if complaint is not None:
            yield bad(complaint, param=name)


def _gemini_thinking(thinking: _Body, model: str) -> Iterator[Refusal]:
    takes_level, takes_minimal, takes_zero = gemini_thinking(model)
    level = str(thinking.get("thinkingLevel", "LOW")).upper()
    if "thinkingLevel" in thinking and "thinkingBudget" in thinking:
        yield bad("You can only set only one of thinking budget and thinking level.", param="thinkingLevel")
    if level not in _LEVELS:
        yield bad(
            f"Invalid value at 'generation_config.thinking_config.thinking_level': {level!r}", param="thinkingLevel"
        )
    if "thinkingLevel" in thinking and not takes_level:
        yield bad("Thinking level is not supported for this model.", param="thinkingLevel")
    if level == "MINIMAL" and not takes_minimal:
        yield bad("Thinking level MINIMAL is not supported for this model.", param="thinkingLevel")
    if thinking.get("thinkingBudget") == 0 and not takes_zero:
        yield bad("Budget 0 is invalid. This model only works in thinking mode.", param="thinkingBudget")


# ---- Ollama -----------------------------------------------------------------------------------------

_OLLAMA_CONTEXT = 4096
"""Tokens of context where nobody asks for another number and the graphics card is small."""
_WHOLE_OPTIONS = ("num_ctx", "num_predict", "seed", "top_k")
_NUMBER_OPTIONS = ("temperature", "top_p", "repeat_penalty")


def _ollama(body: _Body, headers: _Headers, model: str, vendor: str | None) -> Iterator[Refusal]:
    form = body.get("format", "")
    if not isinstance(form, dict) and form not in ("", "json"):
        yield bad(f'invalid format: {form!r}; expected "json" or a valid JSON Schema object', param="format")
    think = body.get("think", False)
    if not isinstance(think, bool) and think not in ("low", "medium", "high", "max"):
        yield bad(
            f'invalid think value: {think!r} (must be "high", "medium", "low", "max", true, or false)', param="think"
        )
    yield from _numbers(body, {"top_logprobs": (0, 20)})
    options = mapping(body.get("options"))
    for name in _WHOLE_OPTIONS:
        if whole(options.get(name, 0)) is None:
            yield bad(f'option "{name}" must be of type integer', param=name)
    for name in _NUMBER_OPTIONS:
        if not _is_number(options.get(name, 0)):
            yield bad(f'option "{name}" must be of type float32', param=name)


def _ollama_messages(body: _Body, model: str, vendor: str | None) -> Iterator[Refusal]:
    for message in mappings(body.get("messages")):
        if message.get("role") not in ("system", "user", "assistant", "tool"):
            yield bad(f"invalid role: {message.get('role')!r}")
        if not isinstance(message.get("content", ""), str):
            yield bad("json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string")


def _ollama_surprises(body: _Body, asked: Asked) -> list[str]:
    found = [f"{name}: passed over in silence" for name in sorted(body.keys() - OLLAMA_FIELDS)]
    if "stream" not in body:
        found.append("stream: is missing, so the reply is a stream of JSON lines")
    context = whole(mapping(body.get("options")).get("num_ctx")) or _OLLAMA_CONTEXT
    if asked.input_tokens > context:
        found.append(f"num_ctx: {asked.input_tokens} tokens of prompt are cut to {context} in silence")
    return found


_RULES: Mapping[str, tuple[_SettingRules, _TurnRules, str]] = {
    "openai": (_chat, _messages, "messages"),
    "responses": (_responses, _input_items, "input"),
    "anthropic": (_anthropic, _anthropic_messages, "messages"),
    "gemini": (_gemini, _gemini_contents, "contents"),
    "ollama": (_ollama, _ollama_messages, "messages"),
}
"""Dialect -> the rules of what a run's requests share, the rules of the conversation, and its field."""

# ---- what several of them share ---------------------------------------------------------------------


def _numbers(body: _Body, ranges: Mapping[str, tuple[float, float]]) -> Iterator[Refusal]:
    for name, (least, most) in ranges.items():
        value = body.get(name)
        if value is None:
            continue
        if not _is_number(value):
            yield bad(f"Invalid type for '{name}': expected a number.", "invalid_type", name)
        elif not least <= value <= most:
            yield bad(f"Invalid '{name}': expected a value from {least} to {most}, but got {value}.", None, name)


def _at_least(body: _Body, name: str, least: int) -> Iterator[Refusal]:
    value = body.get(name)
    if value is None:
        return
    if whole(value) is None:
        yield bad(f"Invalid type for '{name}': expected an integer.", "invalid_type", name)
    elif value < least:
        yield bad(
            f"Invalid '{name}': integer below minimum value. Expected a value >= {least}, but got {value} instead.",
            "integer_below_min_value",
            name,
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _no_stream(body: _Body) -> Iterator[Refusal]:
    if body.get("stream"):
        yield bad("This playground does not stream.", param="stream")


def _says_json(messages: Any) -> bool:
    return "json" in str(messages).lower()
