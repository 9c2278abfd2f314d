"""Every failure at every vendor, over HTTP: how its rows end, whether it is asked again, and with how many requests."""

from __future__ import annotations

import warnings
from collections import Counter

import pandas as pd
import pytest

import batchkit as bk
from batchkit._engine import registry
from batchkit._logic import pacing
from batchkit._playground import Server
from batchkit._playground.failures import FAILURES, dialect_of
from batchkit._playground.wires import VENDORS, WIRES

ROWS, SLOTS, RETRIES = 5, 2, 2

# What becomes of five rows, two at a time, at a provider that fails like this: the kind they end with ("-": they are
# answered), how a row is asked again ("no"; "once", with the complaint or more room; "counts": as often as max_retries
# says; "free": max_retries=0 does not bar it), whether the provider is stopped, and the requests that arrive in all.
# A failure that is "free" happens once to each row, any other one every time. Two requests are in flight when a
# provider is stopped; a request that is called invalid is tried with three rows.
TABLE = """
wrong_key                             auth            no      stopped   2
key_quoted                            auth            no      stopped   2
unauthenticated                       auth            no      stopped   2
forbidden                             auth            no      stopped   2
account_limited                       auth            no      stopped   2
billing                               quota           no      stopped   2
low_credit                            quota           no      stopped   2
quota                                 quota           no      stopped   2
quota_by_type                         quota           no      stopped   2
insufficient_quota                    quota           no      stopped   2
billing_hard_limit_reached            quota           no      stopped   2
credit_balance_exhausted              quota           no      stopped   2
organization_spend_limit_exceeded     quota           no      stopped   2
project_spend_limit_exceeded          quota           no      stopped   2
organization_usage_limit_exceeded     quota           no      stopped   2
enforced_spend_limit_reached          quota           no      stopped   2
contract_spend_limit_reached          quota           no      stopped   2
daily_quota                           quota           no      stopped   2

rate_limit                            -               free    goes-on  10
rate_limit_seconds                    -               free    goes-on  10
rate_limit_ms                         -               free    goes-on  10
rate_limit_date                       -               free    goes-on  10
rate_limit_delay                      -               free    goes-on  10
rate_limit_text                       -               free    goes-on  10
rate_limit_long                       rate_limited    no      stopped   2
slow_down                             -               free    goes-on  10
ramp_limit                            -               free    goes-on  10
overloaded                            -               free    goes-on  10
overloaded_seconds                    -               free    goes-on  10
capacity                              -               free    goes-on  10
foreign_error                         -               free    goes-on  10

server_error                          server          counts  goes-on  15
bad_gateway                           server          counts  goes-on  15
gateway_timeout                       server          counts  goes-on  15
request_timeout                       timeout         counts  goes-on  15
conflict                              server          counts  goes-on  15
should_retry                          config          counts  goes-on  15
should_not_retry                      server          no      goes-on   5
cloudflare                            server          counts  goes-on  15
nginx                                 server          counts  goes-on  15
empty_error                           server          counts  goes-on  15
json_text                             server          counts  goes-on  15
json_list                             server          counts  goes-on  15
detail_text                           server          counts  goes-on  15
message_only                          server          counts  goes-on  15
error_text                            server          counts  goes-on  15
drop                                  connection      counts  goes-on  15
hang                                  timeout         counts  goes-on  15

context_length                        context_length  no      goes-on   5
invalid_request                       config          no      stopped   3
unknown_model                         config          no      stopped   2
wrong_path                            config          no      stopped   2
too_large                             too_large       no      goes-on   5
unprocessable                         config          no      stopped   3
content_filter                        filtered        no      goes-on   5
moderation                            refused         no      goes-on   5
json_validate_failed                  invalid_answer  once    goes-on  10

error_in_200                          server          counts  goes-on  15
failed_server_error                   server          counts  goes-on  15
failed_rate_limit                     -               free    goes-on  10
failed_invalid_prompt                 filtered        no      goes-on   5
failed_policy                         filtered        no      goes-on   5
prompt_blocked                        filtered        no      goes-on   5
garbage                               server          counts  goes-on  15
empty_body                            server          counts  goes-on  15
null_body                             server          counts  goes-on  15
list_body                             server          counts  goes-on  15
text_body                             server          counts  goes-on  15
cut_json                              server          counts  goes-on  15
wrong_shape                           server          counts  goes-on  15

refusal                               refused         no      goes-on   5
filtered                              filtered        no      goes-on   5
recitation                            filtered        no      goes-on   5
malformed                             server          counts  goes-on  15
pause_turn                            server          counts  goes-on  15
strange_finish                        -               no      goes-on   5
truncated                             truncated       once    goes-on  10
truncated_empty                       truncated       once    goes-on  10
empty                                 invalid_answer  once    goes-on  10
thinking_only                         invalid_answer  once    goes-on  10
tool_call                             invalid_answer  once    goes-on  10
two_objects                           -               no      goes-on   5
fenced                                -               no      goes-on   5
think_text                            -               no      goes-on   5
prose                                 -               no      goes-on   5
wrong_types                           invalid_answer  once    goes-on  10
wrong_label                           invalid_answer  once    goes-on  10
"""
EXPECTED = {
    name: (kind, again, stops, int(sent))
    for name, kind, again, stops, sent in map(str.split, filter(None, TABLE.splitlines()))
}
ELSEWHERE = {"schema_too_complex"}
"""A request that can be made otherwise: tests/test_refusals.py."""
AT_EVERY_VENDOR = [
    "wrong_key", "rate_limit_ms", "server_error", "cloudflare", "error_in_200", "drop", "context_length",
    "invalid_request", "unprocessable", "unknown_model", "wrong_path", "empty", "truncated", "tool_call", "think_text",
]  # fmt: skip
"""Failures that each vendor puts into a shape of its own, or that meet a way to ask of its own."""

CASES = [
    *((name, speaker) for name in EXPECTED for speaker in FAILURES[name]),
    *((name, vendor) for name in AT_EVERY_VENDOR for vendor in VENDORS if vendor not in FAILURES[name]),
]


def script(text, nth):
    """Fail as the row's text says: once where asking again is free, else always."""
    name = text.split()[0]
    return "ok" if EXPECTED[name][1] == "free" and nth > 1 else name


def first(text, labels):
    """Answer with the first label."""
    return labels[0] if labels else "yes"


def provider(server, name, speaker):
    """Make a provider with limits of its own: its model's name is that of the case."""
    settings = {"vendor": None} if speaker == "moonshot" else {}
    return server.provider(
        f"{name}-{speaker}",
        name=f"{name} {speaker}",
        max_concurrency=ROWS if name == "hang" else SLOTS,
        max_retries=0 if EXPECTED[name][1] == "free" else RETRIES,
        timeout=2.0 if name == "hang" else 60.0,
        deadline=60.0,
        **settings,
    )


def run(play, cases):
    """Ask the rows of all cases, each of its own provider, and return them and who was stopped."""
    route = bk.by("case", {case: provider(play[case[1]], *case) for case in cases})
    df = pd.DataFrame([(case, f"{' '.join(case)} {row}") for case in cases for row in range(ROWS)])
    df.columns = ["case", "text"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bk.BatchkitWarning)  # one per stopped provider
        out = df.llm.classify("text", ["yes", "no"], route=route, progress=False, details="full")
    return out, bk.last_run().summary["stopped"]


@pytest.fixture(scope="module")
def outcomes():
    """Let every vendor fail in every way, all in one run, and say per case what was seen."""
    speakers = sorted({speaker for _, speaker in CASES})
    servers = {
        speaker: Server(dialect_of(speaker), vendor=speaker if speaker in VENDORS else None, script=script)
        for speaker in speakers
    }
    registry._known.clear()
    with bk.playground(answer=first, **servers) as play, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pacing, "_CEILINGS", (0.002,))  # how often is under test, not how long it takes
        patch.setenv("BATCHKIT_JOURNAL", "off")
        # A time-out needs a server that is not busy with everything else.
        patient = run(play, [case for case in CASES if case[0] != "hang"])
        hasty = run(play, [case for case in CASES if case[0] == "hang"])
        records = {speaker: play[speaker] for speaker in speakers}
    # Once the servers are closed: one logs a request that was given up only when it sees that its client has gone.
    sent = Counter(tuple(request.text.split()[:2]) for server in records.values() for request in server.requests)
    violations = {speaker: server.violations for speaker, server in records.items()}
    registry._known.clear()
    rows, stopped = (pd.concat(parts) for parts in zip(patient, hasty, strict=True))
    return {"rows": rows, "stopped": stopped, "sent": sent, "violations": violations}


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_a_failure_is_dealt_with(outcomes, case):
    """A failure ends in the kind it stands for, after as many requests as it is worth, and stops whom it should."""
    kind, _, stops, sent = EXPECTED[case[0]]
    rows = outcomes["rows"][outcomes["rows"]["case"] == case]
    stopped = outcomes["stopped"][" ".join(case)]
    assert set(rows["label_error"].astype(object).fillna("-")) == {kind}, rows["label_message"].tolist()
    assert (pd.notna(stopped), outcomes["sent"][case]) == (stops == "stopped", sent)
    assert (rows["label"] == "yes").all() if kind == "-" else rows["label_message"].str.len().between(10, 700).all()


def test_no_rule_was_broken(outcomes):
    """Whatever went wrong, no request broke one of its vendor's rules, the repeated ones included."""
    assert not any(outcomes["violations"].values()), outcomes["violations"]


def test_the_table_is_whole():
    """Every failure of the catalogue is in the table, for each of its speakers."""
    assert EXPECTED.keys() | ELSEWHERE == FAILURES.keys()
    assert {speaker for _, speaker in CASES} == {*WIRES, *VENDORS}
