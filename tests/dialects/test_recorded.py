"""Every vendor's answers and errors as its documentation shows them: one file each, every line of them judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchkit._dialects import DIALECTS
from batchkit._dialects.errors import read_failure
from batchkit._dialects.hints import advise
from batchkit._dialects.profiles import PROFILES
from batchkit.records import Completion, Endpoint, Failure, Text, Usage

NOW = 1_800_000_000.0
VENDORS = {
    path.stem: json.loads(path.read_text("utf-8")) for path in Path(__file__).with_name("recorded").glob("*.json")
}
LINES = {
    kind: [
        pytest.param(vendor, line, id=f"{name}: {line['name']}")
        for name, vendor in sorted(VENDORS.items())
        for line in vendor[kind]
    ]
    for kind in ("failures", "answers")
}


def as_bytes(body):
    """Write a body as it comes over the wire; what is no JSON comes as it is."""
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def endpoint_of(vendor):
    """Build the endpoint that a file is about."""
    return Endpoint(vendor["vendor"], vendor["model"], vendor["base_url"], key="k")


def test_every_vendor_has_a_file():
    """Each row of the vendors' table is recorded, except a second address of one that is."""
    assert {vendor["vendor"] for vendor in VENDORS.values()} == PROFILES.keys() - {"ollama-v1"}


@pytest.mark.parametrize(("vendor", "line"), LINES["failures"])
def test_a_failure_is_read(vendor, line):
    """Status, headers and body of a failure give its kind, whom it concerns, and how long to wait."""
    expect = dict(line["expect"])
    failure = read_failure(line["status"], line["headers"], as_bytes(line["body"]), NOW)
    assert (failure.kind, failure.scope.value) == (expect.pop("kind"), expect.pop("scope"))
    assert failure.retry_after == pytest.approx(expect.pop("retry_after"))
    assert {name: getattr(failure, name) for name in expect} == expect


@pytest.mark.parametrize(("vendor", "line"), LINES["failures"])
def test_advice_is_given_once(vendor, line):
    """Advice adds to what the provider said, and not again when it stands there already."""
    failure = read_failure(line["status"], line["headers"], as_bytes(line["body"]), NOW)
    advised = advise(failure, endpoint_of(vendor))
    assert advised.message.startswith(failure.message)
    assert advise(advised, endpoint_of(vendor)) == advised
    assert len(advised.message) < 700


@pytest.mark.parametrize(("vendor", "line"), LINES["answers"])
def test_an_answer_is_read(vendor, line):
    """The body of an HTTP 200 is a completion with its usage counted, or a failure."""
    expect = line["expect"]
    result = DIALECTS[vendor["dialect"]].decode(line["body"])
    if "kind" in expect:
        assert isinstance(result, Failure)
        assert (result.kind, result.scope.value, result.status) == (expect["kind"], expect["scope"], 200)
        return
    assert isinstance(result, Completion)
    assert result.finish == expect["finish"]
    said = result.reply.text if isinstance(result.reply, Text) else result.reply.value
    assert said == expect.get("value", expect.get("text"))
    assert result.usage == Usage(*expect.get("usage", result.usage))
    assert result.request_id == expect.get("request_id", result.request_id)


@pytest.mark.parametrize("name", VENDORS)
def test_nothing_breaks_on_another_vendors_answer(name):
    """Each dialect reads every vendor's bodies without an exception."""
    bodies = [line["body"] for vendor in VENDORS.values() for kind in ("failures", "answers") for line in vendor[kind]]
    decode = DIALECTS[VENDORS[name]["dialect"]].decode
    assert all(isinstance(decode(body), Completion | Failure) for body in bodies)
