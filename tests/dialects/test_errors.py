"""The one table that says what a failed request means."""

from __future__ import annotations

from email.utils import formatdate

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._dialects.errors import body_failure, is_no_model, read_failure, read_request_id, unreadable
from batchkit.records import ERROR_KINDS, Failure, Scope

NOW = 1_800_000_000.0
ROW, PROVIDER, TRANSIENT = Scope.ROW, Scope.PROVIDER, Scope.TRANSIENT

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
ERROR_LIKE = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("message", "type", "code", "status", "details", "detail", "innererror", "metadata", "error"), JSON
    ),
)
BODY_LIKE = st.fixed_dictionaries({}, optional={"error": ERROR_LIKE | JSON, "type": st.just("error") | JSON})


def read(status, error, **headers):
    """Read an OpenAI-shaped error."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return read_failure(status, names, orjson.dumps({"error": error}), NOW)


@pytest.mark.parametrize(
    ("status", "error", "kind", "scope"),
    [
        (401, {"code": "invalid_api_key", "message": "Incorrect API key provided"}, "auth", PROVIDER),
        (403, {"type": "permission_error", "message": "no"}, "auth", PROVIDER),
        (402, {"type": "billing_error", "message": "no credit"}, "quota", PROVIDER),
        (429, {"code": "insufficient_quota", "message": "quota"}, "quota", PROVIDER),
        (429, {"type": "insufficient_quota", "code": None, "message": "quota"}, "quota", PROVIDER),
        (429, {"code": "project_spend_limit_exceeded", "message": "spend"}, "quota", PROVIDER),
        (429, {"type": "x", "details": {"error_code": "enforced_spend_limit_reached"}}, "quota", PROVIDER),
        (429, {"details": [{"violations": [{"quotaId": "GenerateRequestsPerDayX"}]}]}, "quota", PROVIDER),
        (429, {"details": [{"violations": [{"quotaId": "GenerateRequestsPerMinuteX"}]}]}, "rate_limited", TRANSIENT),
        (429, {"code": "rate_limit_exceeded", "message": "slow down"}, "rate_limited", TRANSIENT),
        (404, {"code": "model_not_found", "message": "no such model"}, "config", PROVIDER),
        (400, {"code": "context_length_exceeded", "message": "too long"}, "context_length", ROW),
        (400, {"message": "This model's maximum context length is 4096 tokens"}, "context_length", ROW),
        (400, {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}, "context_length", ROW),
        (400, {"type": "exceed_context_size_error", "message": "the request"}, "context_length", ROW),
        (422, {"message": "Please reduce the length of the messages"}, "context_length", ROW),
        (400, {"code": "content_filter", "message": "filtered"}, "filtered", ROW),
        (400, {"innererror": {"code": "ResponsibleAIPolicyViolation"}}, "filtered", ROW),
        (400, {"code": "invalid_value", "message": "bad"}, "config", ROW),
        (422, {"message": "bad"}, "config", ROW),
        (413, {"type": "request_too_large", "message": "big"}, "too_large", ROW),
        (408, {"message": "late"}, "timeout", TRANSIENT),
        (409, {"message": "conflict"}, "server", TRANSIENT),
        (500, {"message": "oops"}, "server", TRANSIENT),
        (502, {"message": "bad upstream"}, "server", TRANSIENT),
        (503, {"message": "overloaded"}, "server", TRANSIENT),
        (529, {"type": "overloaded_error", "message": "overloaded"}, "server", TRANSIENT),
        (405, {"message": "no POST"}, "config", ROW),
        (302, {"message": "elsewhere"}, "config", ROW),
    ],
)
def test_a_failure_has_its_kind_and_scope(status, error, kind, scope):
    """Status and body together say what happened and whom it concerns."""
    failure = read(status, error)
    assert (failure.kind, failure.scope, failure.status) == (kind, scope, status)
    assert failure.overloaded is (status in (503, 529))
    assert failure.refusable is (kind == "config" and scope is ROW)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "HTTP 500: Internal Server Error"),
        (b'{"error": "queue is full"}', "HTTP 500: queue is full"),
        (b'{"error": {"code": 500, "message": "Loading", "type": "x_error"}}', "HTTP 500 x_error: Loading"),
        (b'[{"error": {"code": 500, "message": "m", "status": "INTERNAL"}}]', "HTTP 500 INTERNAL: m"),
        (b'{"type": "error", "error": {"type": "api_error", "message": "m"}}', "HTTP 500 api_error: m"),
        (b'{"detail": "broken"}', "HTTP 500: broken"),
        (b'{"detail": [{"loc": ["body", "n", 0], "msg": "too small"}]}', "HTTP 500: body.n.0: too small"),
        (b'{"message": "plain"}', "HTTP 500: plain"),
        (b'{"error": {}}', "HTTP 500: Internal Server Error"),
        (b"[]", "HTTP 500: Internal Server Error"),
        (b'{"error": {"message": {"a": 1}}}', "HTTP 500: {'a': 1}"),
        (b"no healthy\n upstream", "HTTP 500: no healthy upstream"),
        (b"<html><head><style>p{}</style></head><h1>Bad &amp; gone</h1></html>", "HTTP 500: Bad & gone"),
        (b"<html><title>h | 520: unknown error</title><h1>Long</h1></html>", "HTTP 500: h | 520: unknown error"),
        (b'{"errors": [{"message": "m"}]}', "HTTP 500: m"),
        (b'{"message": {"detail": [{"loc": ["body", "n"], "msg": "no"}]}}', "HTTP 500: body.n: no"),
        (
            b'{"error": {"message": "upstream", "metadata": {"raw": "{\\"message\\": \\"m\\"}"}}}',
            "HTTP 500: upstream: m",
        ),
        (b'{"error": {"message": "upstream", "metadata": {"raw": "busy"}}}', "HTTP 500: upstream: busy"),
        (b'"text"', "HTTP 500: text"),
        (b"\xff\xfe", "HTTP 500: \ufffd\ufffd"),
    ],
)
def test_every_shape_of_body_gives_a_message(body, message):
    """JSON of any vendor, HTML, text and nothing are all told in one line."""
    assert read_failure(500, {}, body, NOW).message == message


@pytest.mark.parametrize("body", [b"x" * 10_000, b"<html>" + b"<" * 200_000, b"<p>" + b"word " * 10_000])
def test_a_message_is_short(body):
    """However long the body, its message fits a table."""
    message = read_failure(500, {}, body, NOW).message
    assert len(message) <= 300


def test_a_deep_body_is_read():
    """A body nested as deep as the JSON parser allows is read like any other."""
    deep = b"[" * 900 + b"]" * 900
    for body in (deep, b'{"error": %s}' % deep, b'{"detail": [%s]}' % deep, b'{"error": {"details": %s}}' % deep):
        assert read_failure(500, {}, body, NOW).kind == "server"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": formatdate(NOW + 30, usegmt=True)}, 30.0),
        ({"retry-after": formatdate(NOW - 30, usegmt=True)}, None),
        ({"retry-after": "Wed, 99 Foo 99999999 99:99:99 GMT"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
@pytest.mark.parametrize("status", [429, 503, 529])
def test_the_wait_a_provider_asks_for_is_read(headers, seconds, status):
    """Milliseconds, seconds and dates are understood, nonsense and the past are no wait."""
    assert read_failure(status, headers, b"", NOW).retry_after == seconds


@pytest.mark.parametrize("hours", [-3, 3])
def test_a_date_is_read_by_the_clock_it_was_written_by(hours):
    """A date to wait for goes by the reply's own date, however wrong the clock here is; without it, by that clock."""
    asked = {"retry-after": formatdate(NOW + 30, usegmt=True), "date": formatdate(NOW, usegmt=True)}
    assert read_failure(429, asked, b"", NOW + hours * 3600).retry_after == 30.0
    assert read_failure(429, asked | {"date": "yesterday"}, b"", NOW).retry_after == 30.0


@pytest.mark.parametrize(("delay", "seconds"), [("34s", 34.0), ("0.5s", 0.5), ("later", None), (34, None)])
def test_a_wait_inside_the_body_is_read(delay, seconds):
    """Gemini writes the wait into the error's details."""
    details = [{"@type": "x.ErrorInfo"}, {"@type": "x.RetryInfo", "retryDelay": delay}, "text"]
    assert read(429, {"message": "m", "details": details}).retry_after == seconds


def test_a_failure_nobody_retries_has_no_wait():
    """A wait is given only with failures that pass."""
    assert read(401, {"message": "no"}, retry_after="5").retry_after is None


@pytest.mark.parametrize(("status", "kind"), [(500, "server"), (503, "server"), (429, "rate_limited")])
def test_a_provider_can_forbid_to_ask_again(status, kind):
    """With x-should-retry false a passing failure is this row's end."""
    failure = read(status, {"message": "m"}, x_should_retry="false")
    assert (failure.kind, failure.scope, failure.refusable) == (kind, ROW, False)


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("Please try again in 1.2s.", 1.2),
        ("Please try again in 20ms. Visit https://example.com", 0.02),
        ("try again in 1m26.4s", 86.4),
        ("Try again in 1h2m3s", 3723.0),
        ("Please retry after 27 seconds.", 27.0),
        ("Please retry in 34.07s.", 34.07),
        ("try again in about 3 minutes", 180.0),
        ("try again in 500 milliseconds", 0.5),
        ("try again in 0s", None),
        ("try again in 2 fortnights", None),
        ("please try again later", None),
        ("wait 5s", None),
    ],
)
def test_a_wait_in_words_is_read(message, seconds):
    """What a message says about when to try again is understood, with any unit."""
    assert read(429, {"message": message}).retry_after == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("status", "error", "scope"),
    [
        (400, {"message": "once more"}, TRANSIENT),
        (429, {"code": "insufficient_quota"}, PROVIDER),
        (401, {"message": "no"}, PROVIDER),
        (400, {"code": "content_filter"}, ROW),
        (400, {"code": "context_length_exceeded"}, ROW),
    ],
)
def test_a_provider_can_ask_to_be_asked_again(status, error, scope):
    """With x-should-retry true a request called invalid may pass, but no quota, key or filter does."""
    assert read(status, error, x_should_retry="true").scope is scope


@pytest.mark.parametrize(
    ("error", "param"),
    [
        ({"param": "max_tokens", "message": "m"}, "max_tokens"),
        ({"param": None, "message": "Unsupported parameter: 'temperature' is not supported"}, "temperature"),
        ({"message": "Invalid JSON payload received. Unknown name \"foo\" at 'x': Cannot find field."}, "foo"),
        ({"message": "Unknown parameter: `a.b[0]`."}, "a.b[0]"),
        ({"message": "thinking: not here"}, None),
        ({"details": [{"fieldViolations": [{"field": "contents"}]}]}, "contents"),
        ({"message": {"detail": [{"loc": ["body", "seed"], "msg": "no"}]}}, "seed"),
        ({"message": "nothing of the kind"}, None),
    ],
)
def test_the_field_that_is_complained_about_is_found(error, param):
    """The field of the request that an error names is known, in any vendor's way to name it."""
    assert read(400, error).param == param


@pytest.mark.parametrize(
    ("message", "is_so"),
    [
        ("The model `x` does not exist or you do not have access to it.", True),
        ("model 'qwen3' not found, try pulling it first", True),
        ("models/x is not found for API version v1beta", True),
        ("Model Not Exist", True),
        ("Invalid model: x", True),
        ("x/y is not a valid model ID", True),
        ("Unable to access model x", True),
        ("No endpoints found for x/y.", True),
        ("No endpoints found that can handle the requested parameters.", False),
        ("This model does not support response format `json_schema`.", False),
        ("Unsupported parameter: 'max_tokens' is not supported with this model.", False),
        ("Invalid model output field", False),
        ("Not Found", False),
    ],
)
def test_a_missing_model_is_told_in_many_words(message, is_so):
    """Every vendor's way to say that there is no such model is understood, and nothing else is taken for it."""
    assert is_no_model(message) is is_so


@pytest.mark.parametrize(
    ("headers", "body", "found"),
    [
        ({"x-request-id": "req_1"}, b"", "req_1"),
        ({"request-id": "req_2"}, b"", "req_2"),
        ({"apim-request-id": "req_4"}, b"", "req_4"),
        ({"cf-ray": "8c-FRA"}, b"", "8c-FRA"),
        ({}, b'{"type": "error", "error": {"type": "api_error"}, "request_id": "req_3"}', "req_3"),
        ({"request-id": "req_2"}, b'{"error": {}, "request_id": "req_3"}', "req_2"),
        ({}, b"", None),
    ],
)
def test_the_request_id_is_kept(headers, body, found):
    """The id that a vendor's support asks for is found in headers or body."""
    assert read_failure(500, headers, body, NOW).request_id == found


def test_the_request_id_of_an_answer_is_read_from_its_headers():
    """Answers that are no failures have a request id too."""
    assert read_request_id({"request-id": "req_1"}) == "req_1"
    assert read_request_id({}) is None


@pytest.mark.parametrize(
    ("body", "kind", "scope"),
    [
        ({"error": {"code": 429, "message": "slow down"}}, "rate_limited", TRANSIENT),
        ({"error": {"code": "502", "message": "bad upstream"}}, "server", TRANSIENT),
        ({"error": {"code": 402, "message": "no credit"}}, "quota", PROVIDER),
        ({"error": {"code": "insufficient_quota", "message": "quota"}}, "quota", PROVIDER),
        ({"error": {"code": "context_length_exceeded", "message": "long"}}, "context_length", ROW),
        ({"error": {"type": "authentication_error", "message": "key"}}, "auth", PROVIDER),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}, "server", TRANSIENT),
        ({"error": "something"}, "server", TRANSIENT),
        ({"error": "model 'x' not found"}, "config", PROVIDER),
        ({"error": "the prompt is too long: 9 > 8"}, "context_length", ROW),
        ([{"error": {"code": 429, "message": "slow down"}}], "rate_limited", TRANSIENT),
        ({"error": True}, "server", TRANSIENT),
        ({"type": "error"}, "server", TRANSIENT),
    ],
)
def test_an_error_inside_a_200_is_a_failure(body, kind, scope):
    """What the body calls an error is one, whatever the status said."""
    failure = body_failure(body)
    assert failure is not None
    assert (failure.kind, failure.scope, failure.status) == (kind, scope, 200)
    assert failure.message.startswith("HTTP 200, error")


@pytest.mark.parametrize("body", [{}, {"error": None}, {"error": {}}, {"type": "message"}, [], None, "error", 3])
def test_a_body_without_error_is_no_failure(body):
    """An absent or empty error is none."""
    assert body_failure(body) is None


def test_an_overload_inside_a_200_is_told_apart():
    """An overloaded provider is recognised in the body too."""
    failure = body_failure({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    assert failure is not None
    assert failure.overloaded


def test_an_unreadable_reply_may_be_asked_again():
    """A 200 that is no reply is the server's fault and may pass."""
    failure = unreadable("its body is no JSON.")
    assert (failure.kind, failure.scope, failure.status) == ("server", TRANSIENT, 200)
    assert failure.message == "HTTP 200, but its body is no JSON."


HEADERS = st.dictionaries(
    st.sampled_from(["retry-after", "retry-after-ms", "x-should-retry", "x-request-id", "request-id"]), st.text()
)
DATE_LIKE = st.text("0123456789:, +-MonJanGMT", max_size=40)


@given(st.integers(0, 999), HEADERS, st.binary())
def test_reading_bytes_never_raises(status, headers, body):
    """Any status with any headers and any bytes is a failure of a known kind with a short message."""
    failure = read_failure(status, headers, body, NOW)
    assert isinstance(failure, Failure)
    assert failure.kind in ERROR_KINDS
    assert 0 < len(failure.message) < 420
    assert failure.retry_after is None or failure.retry_after > 0


@given(st.integers(100, 599), DATE_LIKE, BODY_LIKE | ERROR_LIKE | st.lists(BODY_LIKE) | JSON)
def test_reading_a_body_never_raises(status, date, body):
    """Any JSON, with the vendors' fields in any shape, is a failure of a known kind."""
    try:
        raw = orjson.dumps(body)
    except TypeError:
        raw = repr(body).encode("utf-8", "replace")
    assert read_failure(status, {"retry-after": date}, raw, NOW).kind in ERROR_KINDS


@given(BODY_LIKE | JSON)
def test_reading_an_error_in_a_200_never_raises(body):
    """Any JSON is either without an error or a failure of a known kind."""
    failure = body_failure(body)
    assert failure is None or failure.kind in ERROR_KINDS
