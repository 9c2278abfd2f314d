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

from batchkit._dialects.base import as_mapping
from batchkit.records import Failure, Scope

__all__ = ["body_failure", "read_failure", "read_request_id", "unreadable"]

_LONGEST_MESSAGE = 300
_LONGEST_EXCERPT = 4000

# Bodies may nest deeper than Python's own repr can follow.
_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = _LONGEST_MESSAGE

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
    }
)
_FILTERED = frozenset({"content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation"})
_TOO_LONG = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_TOO_LONG_WORDS = (
    "maximum context length",
    "available context size",
    "prompt is too long",
    "input token count",
    "number of tokens allowed",
    "reduce the length",
)
_STATUS_OF_NAME = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
    **dict.fromkeys(_TOO_LONG | _FILTERED, 400),
}
"""What a vendor's word for an error would have been as an HTTP status."""


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
        Seconds since the epoch, against which a ``Retry-After`` date is read.

    Returns
    -------
    Failure
        Its scope says whether to ask again, give up this row, or stop this provider.

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
        retry_after=_retry_after(headers, now) or _retry_delay(report),
        may_retry=headers.get("x-should-retry") != "false",
    )


def body_failure(body: Any) -> Failure | None:
    """Say what an error inside an HTTP 200 body means; None where there is no error in it."""
    found = as_mapping(body)
    if not found.get("error") and found.get("type") != "error":
        return None
    report = _read_report(found)
    # An unknown error is taken for the server's: asking again is cheap, losing a row is not.
    status = report.number or next((_STATUS_OF_NAME[name] for name in report.names if name in _STATUS_OF_NAME), 500)
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
    return headers.get("x-request-id") or headers.get("request-id") or None


# ---- the table --------------------------------------------------------------------------------


def _judge(
    status: int,
    report: _Report,
    message: str,
    *,
    http_status: int,
    request_id: str | None,
    retry_after: float | None,
    may_retry: bool = True,
) -> Failure:
    kind, scope = _classify(status, report)
    if scope is Scope.TRANSIENT and not may_retry:
        scope = Scope.ROW
    return Failure(
        kind,
        message,
        scope,
        status=http_status,
        request_id=request_id,
        retry_after=retry_after if scope is Scope.TRANSIENT else None,
        overloaded=status in (503, 529),
        refusable=kind == "config" and scope is Scope.ROW,
    )


def _classify(status: int, report: _Report) -> tuple[str, Scope]:
    if status == 402 or report.named(_QUOTA) or (status == 429 and _is_daily(report)):
        return "quota", Scope.PROVIDER
    match status:
        case 401 | 403:
            return "auth", Scope.PROVIDER
        case 404:
            return "config", Scope.PROVIDER
        case 400 | 422 if _is_too_long(report):
            return "context_length", Scope.ROW
        case 400 | 422 if report.named(_FILTERED):
            return "filtered", Scope.ROW
        case 413:
            return "too_large", Scope.ROW
        case 429:
            return "rate_limited", Scope.TRANSIENT
        case 408:
            return "timeout", Scope.TRANSIENT
        case _ if status == 409 or status >= 500:
            return "server", Scope.TRANSIENT
        case _:
            return "config", Scope.ROW


def _is_too_long(report: _Report) -> bool:
    message = report.message.lower()
    return report.named(_TOO_LONG) or any(words in message for words in _TOO_LONG_WORDS)


def _is_daily(report: _Report) -> bool:
    return any(
        "PerDay" in (_word(as_mapping(violation).get("quotaId")) or "")
        for detail in report.details
        for violation in _items(detail.get("violations"))
    )


# ---- reading bodies and headers ---------------------------------------------------------------


def _parse(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:_LONGEST_EXCERPT].decode("utf-8", "replace")


def _read_report(body: Any) -> _Report:
    if isinstance(body, list) and body:
        body = body[0]
    outer = as_mapping(body)
    error = outer.get("error") or body
    if not isinstance(error, dict):
        return _Report(_text(error), request_id=_word(outer.get("request_id")))
    details = error.get("details")
    inner = as_mapping(error.get("innererror") or error.get("inner_error"))
    code = error.get("code")
    names = (as_mapping(details).get("error_code"), code, inner.get("code"), error.get("type"), error.get("status"))
    return _Report(
        message=_text(error.get("message") or error.get("detail") or error.get("error") or None),
        names=tuple(name for name in map(_word, names) if name),
        number=_http_error(code),
        details=tuple(as_mapping(detail) for detail in _items(details)),
        request_id=_word(outer.get("request_id")),
    )


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
    if isinstance(value, list):
        return "; ".join(_complaint(item) for item in value[:5])
    return _complaint(value)


def _complaint(value: Any) -> str:
    if isinstance(value, str):
        return value
    message = as_mapping(value).get("msg")
    if not isinstance(message, str):
        return _shown.repr(value)
    place = ".".join(str(step) for step in _items(value.get("loc")) if isinstance(step, str | int))
    return f"{place}: {message}" if place else message


def _message(happened: str, status: int, report: _Report) -> str:
    name = f" {report.names[0]}" if report.names else ""
    said = _without_tags(report.message[:_LONGEST_EXCERPT]) or _phrase(status)
    text = " ".join(f"{happened}{name}: {said}".split()).removesuffix(":")
    if len(text) > _LONGEST_MESSAGE:
        text = text[: _LONGEST_MESSAGE - 1] + "…"
    if status == 404:
        text += " (Is the model's name right? Is base_url right, or is its `/v1` missing?)"
    return text


def _without_tags(text: str) -> str:
    if not re.search(r"<(?:!doctype|html|head|title|body|h1|p)\b", text, re.IGNORECASE):
        return text
    text = re.sub(r"<(script|style)\b.*?(?:</\1>|$)", " ", text, flags=re.IGNORECASE | re.DOTALL)
    return html.unescape(re.sub(r"<[^<>]*>", " ", text)).strip()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


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
    """Return the wait of Gemini's ``RetryInfo``, written as ``"34s"``."""
    delays = (detail.get("retryDelay") for detail in report.details)
    return next((_number(delay[:-1]) for delay in delays if isinstance(delay, str) and delay.endswith("s")), None)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0 else None
