"""Addresses, headers and text as all dialects need them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._dialects.base import canonical_url, check_base_url, is_versioned, join_url, merge_headers, output_cap
from batchkit.records import Brief, Endpoint


@pytest.mark.parametrize("base", ["https://h", "https://h/", "https://h/v1", "https://h/v1/", " https://h/v1/messages"])
def test_every_spelling_of_a_base_url_gives_one_address(base):
    """Version, slash and path are appended only where they are missing."""
    assert join_url(base, "v1", "messages") == "https://h/v1/messages"


@pytest.mark.parametrize(
    ("base", "version", "path", "address"),
    [
        ("http://localhost:1234", "v1", "chat/completions", "http://localhost:1234/v1/chat/completions"),
        ("http://[::1]:8080/v1", "v1", "chat/completions", "http://[::1]:8080/v1/chat/completions"),
        ("https://h/compatible-mode/v1", "v1", "chat/completions", "https://h/compatible-mode/v1/chat/completions"),
        ("https://h/openai", "v1", "chat/completions", "https://h/openai/v1/chat/completions"),
        ("https://h/v1/chat", "v1", "chat/completions", "https://h/v1/chat/completions"),
        ("https://h/v1/v1", "v1", "messages", "https://h/v1/v1/messages"),
        ("https://h/api/paas/v4/", "", "chat/completions", "https://h/api/paas/v4/chat/completions"),
    ],
)
def test_a_longer_path_is_kept(base, version, path, address):
    """A gateway's own path stays in front of what is appended."""
    assert join_url(base, version, path) == address


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("http://127.0.0.1:8000/v1/messages", "http://localhost:8000/v1/messages"),
        ("http://[::1]:8000/v1/messages", "http://localhost:8000/v1/messages"),
        ("http://0.0.0.0:8000/v1/messages", "http://localhost:8000/v1/messages"),
        ("http://LOCALHOST/v1", "http://localhost/v1"),
        ("https://API.Example.com:443/v1?api-version=1", "https://api.example.com/v1?api-version=1"),
        ("http://h:443/V1", "http://h:443/V1"),
        ("http://[2001:DB8::1]:80/v1", "http://[2001:db8::1]/v1"),
        ("http://127.0.0.2/v1", "http://127.0.0.2/v1"),
    ],
)
def test_an_address_has_one_canonical_spelling(url, canonical):
    """Names of this machine, capitals in the host and a usual port do not make another place; anything else does."""
    assert canonical_url(url) == canonical
    assert canonical_url(canonical) == canonical


@given(st.lists(st.text("abcv12", min_size=1), max_size=4))
def test_joining_twice_changes_nothing(segments):
    """An address that is complete stays as it is."""
    once = join_url("/".join(["https://h", *segments]), "v1", "chat/completions")
    assert once.endswith("/v1/chat/completions")
    assert join_url(once, "v1", "chat/completions") == once


@pytest.mark.parametrize(
    ("base", "versioned"),
    [
        ("https://h/v1beta/openai/", True),
        ("https://h/api/paas/v4", True),
        ("https://h/v1", True),
        ("https://h/openai", False),
        ("https://v1.example.com", False),
        ("https://h/vendor", False),
    ],
)
def test_a_version_is_found_anywhere_in_the_path(base, versioned):
    """A version segment counts wherever it stands, a host or a word does not."""
    assert is_versioned(base) is versioned


@pytest.mark.parametrize("url", ["https://h", "http://localhost:1234/v1/", "http://[::1]:8080", " https://h/a/b "])
def test_a_base_url_that_works_is_not_complained_about(url):
    """A plain http(s) address is accepted."""
    assert check_base_url(url) is None


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (None, "must be a text"),
        ("  ", "is empty"),
        ("localhost:1234", "Did you mean 'http://localhost:1234'"),
        ("api.example.com/v1", "has no http"),
        ("http:/h", "has no http:// or https://."),
        ("ftp://h/v1", "must start with http:// or https://, not 'ftp://'"),
        ("https:///v1", "names no host"),
        ("https://a b/v1", "names no host"),
        ("https://h:port/v1", "is no address"),
        ("http://[::1/v1", "is no address"),
        ("https://h/v1#top", "plain address"),
    ],
)
def test_a_base_url_that_cannot_work_is_explained(url, why):
    """The message says what is wrong with the address."""
    assert why in (check_base_url(url) or "")


@pytest.mark.parametrize("url", ["https://me:secret@h/v1", "https://h/v1?key=secret", "me:secret@h"])
def test_a_key_in_the_base_url_is_refused_without_showing_it(url):
    """A secret in an address is neither accepted nor repeated."""
    message = check_base_url(url)
    assert message is not None
    assert "api_key=" in message
    assert "secret" not in message


def test_the_users_headers_win_in_any_case():
    """A header of the user replaces ours however it is spelt."""
    merged = merge_headers({"Authorization": "ours", "Content-Type": "json"}, {"authorization": "theirs", "X": "1"})
    assert merged == {"Content-Type": "json", "authorization": "theirs", "X": "1"}


@pytest.mark.parametrize(
    ("users", "thinks", "cap"), [(None, False, 50), (None, True, 50 + 4096), (9, False, 9), (9, True, 9)]
)
def test_a_thinking_model_gets_room_unless_the_user_says_how_much(users, thinks, cap):
    """The user's cap is sent as it is; the brief's is widened for thinking."""
    endpoint = Endpoint("openai", "m", "https://h", max_output_tokens=users)
    assert output_cap(Brief("", max_output_tokens=50), endpoint, thinks) == cap
