"""What an answer that is no completion means: one table for all vendors.

Compatible servers mix the vendors' shapes freely, so no dialect has a table of its own.
"""

from __future__ import annotations

import email.utils
import html
import math
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson

from batchkit._dialects.base import as_mapping, sent_at
from batchkit.records import Failure, Scope

__all__ = ["body_failure", "is_no_model", "read_failure", "read_request_id", "unreadable"]

_LONGEST_MESSAGE = 300
_LONGEST_EXCERPT = 4000

# Bodies may nest deeper than Python's own repr can follow.
_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = _LONGEST_MESSAGE

# ---- the vendors' words, as codes -------------------------------------------------------------

_QUOTA = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "enforced_spend_limit_reached",
        "contract_spend_limit_reached",
        "exceeded_current_quota_error",
        "billing_error",
        "BILLING_DISABLED",
        "Arrearage",
        "AllocationQuota.FreeTierOnly",
    }
)
_WRONG_KEY = frozenset(
    {
        "API_KEY_INVALID",
        "API_KEY_SERVICE_BLOCKED",
        "CONSUMER_SUSPENDED",
        "SERVICE_DISABLED",
        "authentication_error",
        "invalid_api_key",
    }
)
_FILTERED = frozenset(
    {
        "ResponsibleAIPolicyViolation",
        "bio_policy",
        "content_filter",
        "content_policy_violation",
        "data_inspection_failed",
        "DataInspectionFailed",
        "invalid_prompt",
        "misalignment_policy_violation",
    }
)
_TOO_LONG = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_TOO_LARGE = frozenset({"image_dimensions_too_large", "request_too_large"})
_OVERLOADED = frozenset({"engine_overloaded_error", "overloaded_error", "server_is_overloaded"})
_UNLUCKY = frozenset({"json_validate_failed", "tool_use_failed"})
"""The model wrote nonsense that the server checked: another draw may be better."""
_NO_MODEL = frozenset({"DeploymentNotFound", "model_not_found"})

_STATUS_OF_NAME = {
    "invalid_request_error": 400,
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "UNAUTHENTICATED": 401,
    "billing_error": 402,
    "permission_error": 403,
    "PERMISSION_DENIED": 403,
    "data_residency_mismatch": 403,
    "not_found_error": 404,
    "NOT_FOUND": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "timeout_error": 504,
    "DEADLINE_EXCEEDED": 504,
    "overloaded_error": 529,
    **dict.fromkeys(_TOO_LONG | _FILTERED | _TOO_LARGE | _UNLUCKY, 400),
    **dict.fromkeys(_NO_MODEL, 404),
    **dict.fromkeys(_OVERLOADED, 503),
}
"""What a vendor's word for an error would have been as an HTTP status."""

# ---- the vendors' words, in messages ----------------------------------------------------------


def _any_of(*phrases: str) -> re.Pattern[str]:
    return re.compile("|".join(phrases), re.IGNORECASE)


_SAYS_TOO_LONG = _any_of(
    "maximum context length",
    "context (?:length|window|limit)",
    "available context size",
    "(?:prompt|input) is too long",
    "input (?:token count|length)",
    "number of tokens allowed",
    "reduce the length",
    "too many tokens",
)
_SAYS_NO_CREDIT = _any_of(
    "credit balance is too low",
    "insufficient (?:account )?(?:balance|credit)",
    r"account (?:is )?in good standing",
    "free-models-per-day",
    # Google's way to say that this model is not in the free tier at all.
    r"\blimit: 0\b",
)
_SAYS_WRONG_KEY = _any_of(r"api[ _-]?key (?:is )?(?:not valid|invalid|expired)", r"(?:incorrect|invalid) api[ _-]?key")
_SAYS_NO_MODEL = _any_of(
    r"\bmodels?\b.{0,120}?(?:does not exist|not exist\b|not found)",
    r"(?:not a valid|invalid|unknown|no such) model\b(?! (?:parameter|argument|output))",
    "unable to access model",
    "invalid model identifier",
    r"no endpoints found for\b",
)
_SAYS_UNLUCKY = _any_of("failed to (?:generate|validate) json")
_SAYS_NEVER_HERE = _any_of("requires more system memory", "does not support chat", "location is not supported")
_WAIT = re.compile(r"(?:try again|retry) (?:in|after) (?:about )?((?:\d+(?:\.\d+)?\s?[a-z]+\s?)+)", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s?(ms|milliseconds?|h|hours?|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])")
_UNITS = (("ms", 1e-3), ("mil", 1e-3), ("m", 60.0), ("h", 3600.0), ("s", 1.0))
_PARAM = re.compile(
    r"(?:un(?:supported|known|recognized|expected)|invalid)[^'\"`:]{0,40}?(?:parameter|argument|field|value|property|name)"
    r"[^'\"`:]{0,20}:?\s?['\"`]([\w.\[\]]+)['\"`]",
    re.IGNORECASE,
)
_LEADING_PARAM = re.compile(r"([a-z]\w*(?:\.\w+)*): ")
_PAGE = re.compile(r"<(?:!doctype|html|head|title|body|h1|p)\b", re.IGNORECASE)
_TITLE = re.compile(r"<title\b[^>]*>([^<]*\w[^<]*)</title", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Report:
    """What an error body says, whatever shape it has."""

    message: str = ""
    names: tuple[str, ...] = ()
    """The vendor's words for the error, most specific first."""
    number: int | None = None
    """An HTTP status given inside the body."""
    details: tuple[Mapping[str, Any], ...] = ()
    request_id: str | None = None
    param: str | None = None
    moderated: bool = False
    """A gateway's own moderation refused the text."""

    def named(self, words: frozenset[str]) -> bool:
        return not words.isdisjoint(self.names)


def read_failure(status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
    """Say what an HTTP answer other than 200 means.

    Parameters
    ----------
    status : int
        The HTTP status.
    headers : mapping of str to str
        The response headers, case-insensitive or with lower-case keys.
    body : bytes
        The response body: JSON in any vendor's shape, HTML, text or nothing.
    now : float
        Seconds since the epoch, against which a ``Retry-After`` date is read where the reply has no ``Date``.

    Returns
    -------
    Failure
        Its scope says whether to ask again, give up this row, or stop this provider. Of kind
        ``invalid_answer`` and transient is what the provider's own check of the reply threw
        away: it is worth asking again once.

    Examples
    --------
    >>> read_failure(401, {}, b'{"error": {"code": "invalid_api_key", "message": "Wrong key"}}', 0.0).message
    'HTTP 401 invalid_api_key: Wrong key'
    """
    report = _read_report(_parse(body))
    return _judge(
        status,
        report,
        _message(f"HTTP {status}", status, report),
        http_status=status,
        request_id=read_request_id(headers) or report.request_id,
        retry_after=_retry_after(headers, sent_at(headers, now)) or _retry_delay(report),
        should_retry={"true": True, "false": False}.get(headers.get("x-should-retry", "").lower()),
    )


def body_failure(body: Any) -> Failure | None:
    """Say what an error inside an HTTP 200 body means; None where there is no error in it."""
    if type(body) is list and len(body) == 1:
        body = body[0]
    found = as_mapping(body)
    if not found.get("error") and found.get("type") != "error":
        return None
    report = _read_report(found)
    status = report.number or next((_STATUS_OF_NAME[name] for name in report.names if name in _STATUS_OF_NAME), None)
    status = status or _status_of_words(report.message)
    return _judge(
        status,
        report,
        _message("HTTP 200, error", status, report),
        http_status=200,
        request_id=report.request_id,
        retry_after=_retry_delay(report),
    )


def unreadable(problem: str) -> Failure:
    """Build the failure for an HTTP 200 body that is no reply in its dialect."""
    return Failure("server", f"HTTP 200, but {problem}"[:_LONGEST_MESSAGE], Scope.TRANSIENT, status=200)


def read_request_id(headers: Mapping[str, str]) -> str | None:
    """Return the vendor's id of a request, which its support asks for, if there is one."""
    for name in ("x-request-id", "request-id", "apim-request-id", "cf-ray"):
        found = headers.get(name)
        if found:
            return found
    return None


def is_no_model(message: str) -> bool:
    """Say whether an error says, in any vendor's words, that there is no such model.

    Examples
    --------
    >>> is_no_model("model 'qwen9' not found, try pulling it first")
    True
    """
    return any(name in message for name in _NO_MODEL) or _SAYS_NO_MODEL.search(message) is not None


# ---- the table --------------------------------------------------------------------------------


def _judge(
    status: int,
    report: _Report,
    message: str,
    *,
    http_status: int,
    request_id: str | None,
    retry_after: float | None,
    should_retry: bool | None = None,
) -> Failure:
    kind, scope = _classify(status, report)
    if should_retry is False and scope is Scope.TRANSIENT:
        scope = Scope.ROW
    if should_retry and kind == "config" and scope is Scope.ROW:
        scope = Scope.TRANSIENT
    return Failure(
        kind,
        message,
        scope,
        status=http_status,
        request_id=request_id,
        retry_after=retry_after if scope is Scope.TRANSIENT else None,
        overloaded=kind == "server" and (status in (498, 503, 529) or report.named(_OVERLOADED)),
        refusable=kind == "config" and scope is Scope.ROW,
        param=report.param,
        code=report.names[0] if report.names else None,
    )


def _classify(status: int, report: _Report) -> tuple[str, Scope]:
    said = report.message
    if _is_out_of_credit(status, report):
        return "quota", Scope.PROVIDER
    if report.named(_WRONG_KEY) or (status == 400 and _SAYS_WRONG_KEY.search(said)):
        return "auth", Scope.PROVIDER
    if report.moderated:
        return "refused", Scope.ROW
    if _SAYS_NEVER_HERE.search(said):
        return "config", Scope.PROVIDER
    match status:
        case 401 | 403:
            return "auth", Scope.PROVIDER
        case 404 | 407 | 501:
            return "config", Scope.PROVIDER
        case 400 | 413 | 422:
            return _classify_request(status, report)
        case 429 if not report.named(_OVERLOADED):
            return "rate_limited", Scope.TRANSIENT
        case 408:
            return "timeout", Scope.TRANSIENT
        case _ if status in (409, 429, 498, 499) or status >= 500:
            return "server", Scope.TRANSIENT
        case _:
            return "config", Scope.ROW


def _classify_request(status: int, report: _Report) -> tuple[str, Scope]:
    """Say what is wrong with a request that the provider calls invalid."""
    said = report.message
    if report.named(_UNLUCKY) or _SAYS_UNLUCKY.search(said):
        return "invalid_answer", Scope.TRANSIENT
    if report.named(_FILTERED):
        return "filtered", Scope.ROW
    if report.named(_TOO_LONG) or (status != 413 and _SAYS_TOO_LONG.search(said)):
        return "context_length", Scope.ROW
    if status == 413 or report.named(_TOO_LARGE):
        return "too_large", Scope.ROW
    if report.named(_NO_MODEL) or report.param == "model" or is_no_model(said):
        return "config", Scope.PROVIDER
    return "config", Scope.ROW


def _is_out_of_credit(status: int, report: _Report) -> bool:
    if status == 402 or report.named(_QUOTA):
        return True
    if status == 429 and any("PerDay" in name for name in report.names):
        return True
    return status in (400, 403, 429) and _SAYS_NO_CREDIT.search(report.message) is not None


def _status_of_words(message: str) -> int:
    """Guess the status of an error that comes without status and code."""
    if _SAYS_NO_MODEL.search(message):
        return 404
    if _SAYS_TOO_LONG.search(message):
        return 400
    # An unknown error is taken for the server's: asking again is cheap, losing a row is not.
    return 500


# ---- reading bodies ---------------------------------------------------------------------------


def _parse(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:_LONGEST_EXCERPT].decode("utf-8", "replace")


def _read_report(body: Any, *, nested: bool = False) -> _Report:
    if isinstance(body, list) and body:
        body = body[0]
    outer = as_mapping(body)
    error = outer.get("error") or outer.get("errors") or body
    if isinstance(error, list) and error and isinstance(error[0], dict):
        error = error[0]
    request_id = _word(outer.get("request_id"))
    if not isinstance(error, dict):
        return _Report(_text(error), request_id=request_id)
    details = error.get("details")
    reasons = [as_mapping(detail).get("reason") for detail in _items(details)]
    inner = as_mapping(error.get("innererror") or error.get("inner_error"))
    code = error.get("code")
    words = [
        as_mapping(details).get("error_code"), *_quotas(details), *reasons,
        code, inner.get("code"), error.get("type"), error.get("status"),
    ]  # fmt: skip
    names = tuple(name for name in map(_word, words) if name)
    message = _text(error.get("message") or error.get("detail") or error.get("error") or None)
    metadata = as_mapping(error.get("metadata"))
    upstream = _Report() if nested else _read_upstream(metadata.get("raw"))
    return _Report(
        message=f"{message}: {upstream.message}" if upstream.message else message,
        names=names + upstream.names,
        number=_http_error(code) or _http_error(error.get("statusCode")),
        details=tuple(as_mapping(detail) for detail in _items(details)),
        request_id=request_id,
        param=_param(error, message, is_anthropic=outer.get("type") == "error") or upstream.param,
        moderated="flagged_input" in metadata or bool(metadata.get("reasons")),
    )


def _quotas(details: Any) -> list[str]:
    """Name the quotas that Google says were exceeded, those of a day first."""
    violations = (violation for detail in _items(details) for violation in _items(as_mapping(detail).get("violations")))
    names = (_word(as_mapping(violation).get("quotaId")) for violation in violations)
    return sorted((name for name in names if name), key=lambda name: "PerDay" not in name)


def _read_upstream(raw: Any) -> _Report:
    """Read the error that a gateway passes on from the provider behind it."""
    if not isinstance(raw, str):
        return _Report()
    return _read_report(_parse(raw[:_LONGEST_EXCERPT].encode("utf-8", "replace")), nested=True)


def _param(error: Mapping[str, Any], message: str, *, is_anthropic: bool) -> str | None:
    """Find the field of the request that an error is about."""
    given = _word(error.get("param"))
    if given is not None:
        return given
    for place in (error.get("message"), error):
        for complaint in _items(as_mapping(place).get("detail")):
            steps = [str(step) for step in _items(as_mapping(complaint).get("loc")) if isinstance(step, str | int)]
            if steps:
                return ".".join(steps).removeprefix("body.")
    for detail in _items(error.get("details")):
        for violation in _items(as_mapping(detail).get("fieldViolations")):
            field = _word(as_mapping(violation).get("field"))
            if field is not None:
                return field
    found = _PARAM.search(message[:_LONGEST_EXCERPT]) or (_LEADING_PARAM.match(message) if is_anthropic else None)
    return found.group(1) if found else None


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value and not value.isdigit() else None


def _http_error(code: Any) -> int | None:
    number = int(code) if isinstance(code, str) and re.fullmatch(r"[0-9]{3}", code) else code
    return number if type(number) is int and 400 <= number <= 599 else None


def _text(value: Any) -> str:
    """Write down what an error body gives as its message: text, or a list of complaints."""
    if value is None:
        return ""
    if isinstance(value, dict) and isinstance(value.get("detail"), list):
        value = value["detail"]
    if isinstance(value, list):
        return "; ".join(_complaint(item) for item in value[:5])
    return _complaint(value)


def _complaint(value: Any) -> str:
    if isinstance(value, str):
        return value
    found = as_mapping(value)
    message = found.get("msg") or found.get("message")
    if not isinstance(message, str):
        return _shown.repr(value)
    place = ".".join(str(step) for step in _items(found.get("loc")) if isinstance(step, str | int))
    return f"{place}: {message}" if place else message


def _message(happened: str, status: int, report: _Report) -> str:
    name = f" {report.names[0]}" if report.names else ""
    said = _without_tags(report.message[:_LONGEST_EXCERPT]) or _phrase(status)
    text = " ".join(f"{happened}{name}: {said}".split()).removesuffix(":")
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"


def _without_tags(text: str) -> str:
    if not _PAGE.search(text):
        return text
    title = _TITLE.search(text)
    if title is not None:
        return html.unescape(title.group(1)).strip()
    text = re.sub(r"<(script|style)\b.*?(?:</\1>|$)", " ", text, flags=re.IGNORECASE | re.DOTALL)
    return html.unescape(re.sub(r"<[^<>]*>", " ", text)).strip()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


# ---- reading waits ----------------------------------------------------------------------------


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        seconds = _number(headers.get(name))
        if seconds is not None:
            return seconds * unit
    date = headers.get("retry-after") or ""
    try:
        parsed = email.utils.parsedate_tz(date)
        wait = email.utils.mktime_tz(parsed) - now if parsed else 0.0
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return wait if wait > 0 else None


def _retry_delay(report: _Report) -> float | None:
    """Return the wait that a body asks for: Google's ``RetryInfo`` (``"34s"``), else what the message says."""
    delays = (detail.get("retryDelay") for detail in report.details)
    for delay in delays:
        if isinstance(delay, str) and delay.endswith("s"):
            return _number(delay[:-1])
    asked = _WAIT.search(report.message[:_LONGEST_EXCERPT])
    if asked is None:
        return None
    parts = _DURATION.findall(asked.group(1).lower())
    return _number(str(sum(float(number) * _seconds_in(unit) for number, unit in parts)))


def _seconds_in(unit: str) -> float:
    return next(seconds for start, seconds in _UNITS if unit.startswith(start))


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0 else None
