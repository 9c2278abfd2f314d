"""Everything that can go wrong at a vendor, by name, as each vendor puts it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from batchkit._playground.wires import WIRES, Refusal, Said

__all__ = ["DATE", "FAILURES", "Failure", "Inside", "Raw", "Silence", "Twist", "dialect_of", "find_failure"]

DATE = "{date}"
"""Stands in a header for the HTTP date of one second from now."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes that are sent as they are."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inside:
    """An error that comes with HTTP 200."""

    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Twist:
    """The usual reply, but for one thing."""

    change: Callable[[Said], Said]


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer: the connection is closed (``drop``) or stays open (``hang``)."""

    fate: str


Failure = Refusal | Raw | Inside | Twist | Silence
_Row = dict[str, Failure]


def dialect_of(speaker: str) -> str:
    """Say in which dialect a dialect or a vendor, a key of a row of `FAILURES`, speaks."""
    return speaker if speaker in WIRES else "openai"


def find_failure(name: str, dialect: str, vendor: str | None = None) -> Failure:
    """Find a failure in the words of a vendor, else in those of the dialect.

    Raises
    ------
    KeyError
        There is no such failure, or not in this dialect.
    """
    row = FAILURES[name]
    return row[vendor] if vendor is not None and vendor in row else row[dialect]


# ---- how rows are written ---------------------------------------------------------------------------


def _row(
    openai: Failure | None = None,
    anthropic: Failure | None = None,
    gemini: Failure | None = None,
    ollama: Failure | None = None,
    responses: Failure | None = None,
    **vendors: Failure,
) -> _Row:
    """Write a row; responses are as chat completions unless told otherwise."""
    row = {
        "openai": openai,
        "responses": responses or openai,
        "anthropic": anthropic,
        "gemini": gemini,
        "ollama": ollama,
        **vendors,
    }
    return {speaker: failure for speaker, failure in row.items() if failure is not None}


def _all(failure: Failure) -> _Row:
    return dict.fromkeys(WIRES, failure)


def _with(row: _Row, headers: Mapping[str, str]) -> _Row:
    refusals = {speaker: failure for speaker, failure in row.items() if isinstance(failure, Refusal)}
    return {speaker: replace(refusal, headers={**refusal.headers, **headers}) for speaker, refusal in refusals.items()}


def _google(kind: str, **content: Any) -> dict[str, Any]:
    return {"@type": f"type.googleapis.com/google.rpc.{kind}", **content}


def _quota_failure(quota: str, *more: dict[str, Any]) -> list[dict[str, Any]]:
    metric = "generativelanguage.googleapis.com/generate_content_free_tier_requests"
    return [_google("QuotaFailure", violations=[{"quotaMetric": metric, "quotaId": quota}]), *more]


# ---- keys, rights and money -------------------------------------------------------------------------

_QUOTA_CODES = {
    "insufficient_quota": "You exceeded your current quota, please check your plan and billing details.",
    "billing_hard_limit_reached": "Billing hard limit has been reached.",
    "credit_balance_exhausted": "Your credit balance is exhausted.",
    "organization_spend_limit_exceeded": "Your organization has reached its spend limit.",
    "project_spend_limit_exceeded": "Your project has reached its spend limit.",
    "organization_usage_limit_exceeded": "Your organization has reached its usage limit.",
}
_SPEND_CODES = {
    "enforced_spend_limit_reached": "You have reached your workspace's spend limit.",
    "contract_spend_limit_reached": "You have reached your contract's spend limit.",
}
_NO_MONEY = "Your account has no credit left."
_PER_DAY = Refusal(
    429,
    "You exceeded your current quota, please check your plan and billing details.",
    details=_quota_failure("GenerateRequestsPerDayPerProjectPerModel-FreeTier", _google("RetryInfo", retryDelay="34s")),
)


def _openai_quota(code: str) -> Refusal:
    return Refusal(429, _QUOTA_CODES[code], code, kind="insufficient_quota")


def _anthropic_quota(code: str) -> Refusal:
    return Refusal(429, _SPEND_CODES[code], details={"error_code": code})


_ACCOUNT: dict[str, _Row] = {
    "wrong_key": {dialect: wire.wrong_key() for dialect, wire in WIRES.items()},
    "key_quoted": _row(
        openai=Refusal(401, "Incorrect API key provided: {key}.", "invalid_api_key"),
        anthropic=Refusal(401, "invalid x-api-key: {key}"),
        gemini=Refusal(401, "Request had invalid authentication credentials: {key}."),
        ollama=Refusal(401, "unauthorized: {key}"),
    ),
    "unauthenticated": _row(
        gemini=Refusal(401, "Request had invalid authentication credentials."),
    ),
    "forbidden": _row(
        openai=Refusal(
            403,
            "Country, region, or territory not supported",
            "unsupported_country_region_territory",
            kind="request_forbidden",
        ),
        anthropic=Refusal(403, "Your API key does not have permission to use the specified resource."),
        gemini=Refusal(403, "Permission denied: the Generative Language API has not been used in project 1 before."),
        ollama=Refusal(403, "access denied"),
    ),
    "billing": _row(
        openai=Refusal(402, _NO_MONEY),
        anthropic=Refusal(402, _NO_MONEY),
        gemini=Refusal(402, "Your prepayment credits are depleted.", kind="FAILED_PRECONDITION"),
        ollama=Refusal(402, "this model requires a subscription"),
        deepseek=Refusal(402, "Insufficient Balance", "invalid_request_error", kind="unknown_error"),
        openrouter=Refusal(402, "Insufficient credits. Add more using https://openrouter.ai/settings/credits"),
        mistral=Refusal(402, "You have no credits left.", kind="payment_required"),
    ),
    "low_credit": _row(
        anthropic=Refusal(
            400, "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."
        ),
    ),
    "quota": _row(
        openai=_openai_quota("insufficient_quota"),
        anthropic=_anthropic_quota("enforced_spend_limit_reached"),
        gemini=_PER_DAY,
    ),
    "quota_by_type": _row(
        openai=Refusal(429, "You exceeded your current quota.", kind="insufficient_quota"),
        moonshot=Refusal(429, "Your account is not active.", kind="exceeded_current_quota_error"),
    ),
    **{code: _row(openai=_openai_quota(code)) for code in _QUOTA_CODES},
    **{code: _row(anthropic=_anthropic_quota(code)) for code in _SPEND_CODES},
    "daily_quota": _row(gemini=_PER_DAY),
}

# ---- limits and overload ----------------------------------------------------------------------------

_RATE_LIMIT = _row(
    openai=Refusal(
        429,
        "Rate limit reached for requests.",
        "rate_limit_exceeded",
        kind="requests",
        headers={"x-ratelimit-limit-requests": "5000", "x-ratelimit-remaining-requests": "0"},
    ),
    anthropic=Refusal(
        429,
        "This request would exceed your organization's rate limit.",
        headers={"anthropic-ratelimit-requests-limit": "60", "anthropic-ratelimit-requests-remaining": "0"},
    ),
    gemini=Refusal(
        429,
        "Resource has been exhausted (e.g. check quota).",
        details=_quota_failure("GenerateRequestsPerMinutePerProjectPerModel"),
    ),
    ollama=Refusal(429, "too many requests"),
)
_OVERLOADED = _row(
    openai=Refusal(
        503, "The server is currently overloaded.", "server_is_overloaded", kind="service_unavailable_error"
    ),
    anthropic=Refusal(529, "Overloaded"),
    gemini=Refusal(503, "The model is overloaded. Please try again later."),
    ollama=Refusal(503, "server busy, please try again.  maximum pending requests exceeded"),
    **{"llama.cpp": Refusal(503, "Loading model", kind="unavailable_error")},
)

_LIMITS: dict[str, _Row] = {
    "rate_limit": _RATE_LIMIT,
    "rate_limit_seconds": _with(_RATE_LIMIT, {"retry-after": "1"}),
    "rate_limit_ms": _with(_RATE_LIMIT, {"retry-after-ms": "30"}),
    "rate_limit_date": _with(_RATE_LIMIT, {"retry-after": DATE}),
    "rate_limit_long": _with(_RATE_LIMIT, {"retry-after": "86400"}),
    "rate_limit_delay": _row(
        gemini=Refusal(
            429,
            "Resource has been exhausted. Please retry in 0.05s.",
            details=_quota_failure(
                "GenerateRequestsPerMinutePerProjectPerModel", _google("RetryInfo", retryDelay="0.05s")
            ),
        ),
    ),
    "rate_limit_text": _row(
        openai=Refusal(429, "Rate limit reached for requests. Please try again in 30ms.", "rate_limit_exceeded"),
    ),
    "slow_down": _row(openai=Refusal(429, "Slow down.", "slow_down")),
    "ramp_limit": _row(
        openai=Refusal(429, "Traffic grew too fast.", "ramp_limit_exceeded", headers={"retry-after": "1"}),
    ),
    "overloaded": _OVERLOADED,
    "overloaded_seconds": _with(_OVERLOADED, {"retry-after": "1"}),
    "capacity": _row(groq=Refusal(498, "Flex tier capacity exceeded.", "capacity_exceeded")),
}

# ---- servers that fail ------------------------------------------------------------------------------

_SERVER_ERROR = "The server had an error while processing your request."
_CLOUDFLARE = b"""<!DOCTYPE html><html><head><title>api | 520: Web server is returning an unknown error</title></head>
<body><h1>Error 520</h1><p>Ray ID: 0000000000000000</p></body></html>"""
_NGINX = b"<html><head><title>502 Bad Gateway</title></head><body><center>nginx</center></body></html>"

_SERVERS: dict[str, _Row] = {
    "server_error": _all(Refusal(500, _SERVER_ERROR)),
    "bad_gateway": _all(Refusal(502, "Bad gateway.")),
    "gateway_timeout": _all(Refusal(504, "The request timed out.")),
    "request_timeout": _all(Refusal(408, "The request took too long to arrive.")),
    "conflict": _all(Refusal(409, "The request conflicted with another one.")),
    "should_retry": _all(Refusal(400, "Try again.", headers={"x-should-retry": "true"})),
    "should_not_retry": _all(Refusal(500, _SERVER_ERROR, headers={"x-should-retry": "false"})),
    "cloudflare": _all(Raw(520, _CLOUDFLARE, "text/html; charset=UTF-8", {"server": "cloudflare"})),
    "nginx": _all(Raw(502, _NGINX, "text/html")),
    "empty_error": _all(Raw(502, b"", "text/plain")),
    "json_text": _all(Raw(500, b'"upstream connect error"')),
    "json_list": _all(
        Raw(500, b'[{"error":{"code":500,"message":"Internal error encountered.","status":"INTERNAL"}}]')
    ),
    "detail_text": _all(Raw(500, b'{"detail":"Internal Server Error"}')),
    "message_only": _all(Raw(500, b'{"message":"Internal Server Error"}')),
    "error_text": _all(Raw(500, b'{"error":"something went wrong"}')),
    "foreign_error": {
        **_all(
            Raw(
                529, b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}'
            )
        ),
        "anthropic": Raw(
            429, b'{"error":{"message":"Slow down.","type":"requests","param":null,"code":"rate_limit_exceeded"}}'
        ),
    },
    "drop": _all(Silence("drop")),
    "hang": _all(Silence("hang")),
}

# ---- requests that are turned away ------------------------------------------------------------------

_FILTERED = {
    "code": "ResponsibleAIPolicyViolation",
    "content_filter_result": {"hate": {"filtered": True, "severity": "high"}},
}
_TOO_LONG = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens."

_REQUESTS: dict[str, _Row] = {
    "context_length": _row(
        openai=Refusal(
            400, f"{_TOO_LONG} Please reduce the length of the messages.", "context_length_exceeded", "messages"
        ),
        responses=Refusal(
            400, "Your input exceeds the context window of this model.", "context_length_exceeded", "input"
        ),
        anthropic=Refusal(400, "prompt is too long: 210000 tokens > 200000 maximum"),
        gemini=Refusal(400, "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576)."),
        ollama=Refusal(400, "the input length exceeds the context length"),
        vllm=Refusal(400, _TOO_LONG),
    ),
    "invalid_request": _row(
        openai=Refusal(400, "Invalid value for 'seed'.", "invalid_value", "seed"),
        anthropic=Refusal(400, "metadata.user_id: String should have at most 256 characters"),
        gemini=Refusal(400, "Invalid value at 'generation_config.top_k' (TYPE_INT32)"),
        ollama=Refusal(400, 'option "seed" must be of type integer'),
    ),
    "unknown_model": {dialect: wire.unknown_model("no-such-model") for dialect, wire in WIRES.items()},
    "wrong_path": _row(
        openai=Raw(404, b"404 page not found", "text/plain"),
        anthropic=Raw(404, b'{"detail":"Not Found"}'),
        gemini=Raw(404, b"<html><title>Error 404 (Not Found)!!1</title></html>", "text/html"),
        ollama=Raw(404, b"404 page not found", "text/plain"),
    ),
    "too_large": _all(Refusal(413, "Request exceeds the maximum size")),
    "unprocessable": _row(
        openai=Raw(422, b'{"detail":[{"type":"missing","loc":["body","messages"],"msg":"Field required"}]}'),
        anthropic=Refusal(422, "The request could not be processed."),
        gemini=Refusal(422, "The request could not be processed.", kind="INVALID_ARGUMENT"),
        ollama=Refusal(422, "the request could not be processed"),
        mistral=Refusal(422, "Extra inputs are not permitted", param="store"),
    ),
    "content_filter": _row(
        openai=Refusal(
            400, "The response was filtered due to the prompt triggering a content policy.", "content_filter", "prompt"
        ),
        azure=Refusal(
            400,
            "The response was filtered due to the prompt triggering a content policy.",
            "content_filter",
            "prompt",
            details=_FILTERED,
        ),
    ),
    "moderation": _row(
        openrouter=Refusal(
            403,
            "Your chosen model requires moderation and your input was flagged.",
            details={"reasons": ["violence"], "flagged_input": "...", "provider_name": "OpenAI"},
        ),
    ),
    "json_validate_failed": _row(
        groq=Refusal(400, "Failed to validate JSON. See 'failed_generation' for more details.", "json_validate_failed"),
    ),
    "schema_too_complex": _row(
        anthropic=Refusal(400, "output_config.format.schema: Schema is too complex for compilation."),
    ),
}

# ---- HTTP 200 that is no answer ---------------------------------------------------------------------


def _failed(code: str, message: str) -> Raw:
    body = (
        f'{{"id":"resp_1","object":"response","status":"failed","error":{{"code":"{code}","message":"{message}"}},'
        '"output":[],"usage":null}'
    )
    return Raw(200, body.encode())


_BLOCKED = b'{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"promptTokenCount":9}}'

_BODIES: dict[str, _Row] = {
    "error_in_200": _all(Inside(Refusal(502, "The upstream provider failed."))),
    "failed_server_error": _row(responses=_failed("server_error", "An error occurred.")),
    "failed_rate_limit": _row(responses=_failed("rate_limit_exceeded", "Rate limit reached.")),
    "failed_invalid_prompt": _row(responses=_failed("invalid_prompt", "Invalid prompt.")),
    "failed_policy": _row(responses=_failed("bio_policy", "Your account is blocked from this content.")),
    "prompt_blocked": _row(gemini=Raw(200, _BLOCKED)),
    "garbage": _all(Raw(200, b"<html><body>upstream hiccup</body></html>", "text/html")),
    "empty_body": _all(Raw(200, b"")),
    "null_body": _all(Raw(200, b"null")),
    "list_body": _all(Raw(200, b"[]")),
    "text_body": _all(Raw(200, b'"ok"')),
    "cut_json": _all(Raw(200, b'{"id":"1","choices":[{"mess')),
    "wrong_shape": _row(
        openai=Raw(200, b'{"choices":[{"message":"none","finish_reason":7}],"usage":"many"}'),
        responses=Raw(200, b'{"status":7,"output":[{"type":"message","content":7},"none"],"usage":"many"}'),
        anthropic=Raw(200, b'{"content":7,"stop_reason":7,"usage":"many"}'),
        gemini=Raw(200, b'{"candidates":["none"],"usageMetadata":"many"}'),
        ollama=Raw(200, b'{"message":"none","done_reason":7,"eval_count":"many"}'),
    ),
}


# ---- replies that are no answers, or hard to read ---------------------------------------------------

_SORRY = "I cannot help with that."
_THOUGHT = "Let me see what this is about."


def _text(said: Said, text: str, **changes: Any) -> Said:
    return replace(said, text=text, arguments=None, **changes)


def _ending(reason: str, *, empty: bool = False) -> Twist:
    return Twist(lambda said: _text(said, "", finish=reason) if empty else replace(said, finish=reason))


def _refuse(said: Said) -> Said:
    return replace(said, refusal=_SORRY)


def _refuse_in_words(said: Said) -> Said:
    return _text(said, _SORRY, finish="refusal")


def _truncate(said: Said) -> Said:
    return _text(said, said.text[: len(said.text) // 2], truncated=True)


def _think_until_truncated(said: Said) -> Said:
    return _text(said, "", truncated=True, thought=_THOUGHT)


def _say_nothing(said: Said) -> Said:
    return _text(said, "")


def _only_think(said: Said) -> Said:
    return _text(said, "", thought=_THOUGHT)


def _call_a_tool(said: Said) -> Said:
    return replace(said, text='{"query": "parcels"}', arguments={"query": "parcels"}, call="look_up")


def _say_two_things(said: Said) -> Said:
    return _text(said, f'{said.text}\n{{"label": "something else"}}')


def _fence(said: Said) -> Said:
    return _text(said, f"```json\n{said.text}\n```")


def _think_in_the_text(said: Said) -> Said:
    return _text(said, f"<think>\n{_THOUGHT} {{\n</think>\n\n{said.text}")


def _wrap_in_prose(said: Said) -> Said:
    return _text(said, f"Sure! Here is the answer:\n{said.text}\nLet me know if you need more.")


def _mistake_the_types(said: Said) -> Said:
    return _text(said, '{"label": {"name": 17}, "confidence": "high"}')


def _say_no_label(said: Said) -> Said:
    return _text(said, '{"label": "no such label", "confidence": 0.5}')


_REPLIES: dict[str, _Row] = {
    "refusal": _row(openai=Twist(_refuse), anthropic=Twist(_refuse_in_words)),
    "filtered": _row(
        openai=_ending("content_filter", empty=True),
        gemini=_ending("SAFETY", empty=True),
    ),
    "recitation": _row(gemini=_ending("RECITATION", empty=True)),
    "malformed": _row(
        gemini=_ending("MALFORMED_RESPONSE", empty=True),
        openrouter=_ending("error", empty=True),
        mistral=_ending("error", empty=True),
        deepseek=_ending("insufficient_system_resource", empty=True),
    ),
    "account_limited": _row(gemini=_ending("PUP_LIMITED_DISABLED", empty=True)),
    "pause_turn": _row(anthropic=_ending("pause_turn", empty=True)),
    "strange_finish": {
        **{dialect: _ending("tired") for dialect in WIRES if dialect != "responses"},
        "together": _ending("eos"),
    },
    "truncated": _all(Twist(_truncate)),
    "truncated_empty": _all(Twist(_think_until_truncated)),
    "empty": _all(Twist(_say_nothing)),
    "thinking_only": _all(Twist(_only_think)),
    "tool_call": _all(Twist(_call_a_tool)),
    "two_objects": _all(Twist(_say_two_things)),
    "fenced": _all(Twist(_fence)),
    "think_text": _all(Twist(_think_in_the_text)),
    "prose": _all(Twist(_wrap_in_prose)),
    "wrong_types": _all(Twist(_mistake_the_types)),
    "wrong_label": _all(Twist(_say_no_label)),
}

FAILURES: Mapping[str, Mapping[str, Failure]] = {
    **_ACCOUNT,
    **_LIMITS,
    **_SERVERS,
    **_REQUESTS,
    **_BODIES,
    **_REPLIES,
}
"""Name of a failure -> dialect, or vendor where it has words of its own -> what comes."""
