"""What to do about a failure, in one or two sentences, for the vendor at hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from batchkit._dialects import DIALECTS
from batchkit._dialects.errors import is_no_model
from batchkit._dialects.profiles import PROFILES, dialect_name, is_local, is_own
from batchkit.records import Endpoint, Failure

__all__ = ["advise", "key_problem"]


@dataclass(frozen=True, slots=True)
class _Desk:
    """Where a vendor is dealt with outside of its API."""

    title: str
    keys: str
    billing: str
    models: str = ""
    """A page that lists them, which a browser can show without a key."""


_DESKS: Mapping[str, _Desk] = {
    "openai": _Desk(
        "OpenAI",
        "https://platform.openai.com/api-keys",
        "https://platform.openai.com/settings/organization/billing",
        "https://platform.openai.com/docs/models",
    ),
    "anthropic": _Desk(
        "Anthropic",
        "https://platform.claude.com/settings/keys",
        "https://platform.claude.com/settings/billing",
        "https://platform.claude.com/docs/en/about-claude/models/overview",
    ),
    "gemini": _Desk(
        "Google",
        "https://aistudio.google.com/apikey",
        "https://aistudio.google.com/usage",
        "https://ai.google.dev/gemini-api/docs/models",
    ),
    "azure": _Desk("Azure", "https://ai.azure.com", "https://portal.azure.com"),
    "ollama": _Desk("Ollama", "https://ollama.com/settings/keys", "https://ollama.com/settings"),
    "groq": _Desk(
        "Groq",
        "https://console.groq.com/keys",
        "https://console.groq.com/settings/billing",
        "https://console.groq.com/docs/models",
    ),
    "mistral": _Desk(
        "Mistral",
        "https://console.mistral.ai/api-keys",
        "https://admin.mistral.ai",
        "https://docs.mistral.ai/getting-started/models",
    ),
    "deepseek": _Desk(
        "DeepSeek",
        "https://platform.deepseek.com/api_keys",
        "https://platform.deepseek.com/top_up",
        "https://api-docs.deepseek.com/quick_start/pricing",
    ),
    "openrouter": _Desk(
        "OpenRouter",
        "https://openrouter.ai/settings/keys",
        "https://openrouter.ai/settings/credits",
        "https://openrouter.ai/models",
    ),
    "together": _Desk(
        "Together",
        "https://api.together.ai/settings/api-keys",
        "https://api.together.ai/settings/billing",
        "https://docs.together.ai/docs/serverless-models",
    ),
    "qwen": _Desk(
        "DashScope",
        "https://modelstudio.console.alibabacloud.com",
        "https://modelstudio.console.alibabacloud.com",
        "https://www.alibabacloud.com/help/en/model-studio/models",
    ),
}

_KEYS = (
    (re.compile(r"sk-ant-"), "anthropic"),
    (re.compile(r"sk-or-"), "openrouter"),
    (re.compile(r"sk-(?:proj|svcacct|admin)-"), "openai"),
    (re.compile(r"gsk_"), "groq"),
    (re.compile(r"AIza"), "gemini"),
    (re.compile(r"tgp_"), "together"),
)
_PLACEHOLDER = re.compile(r"<.*>|\.{3}|^(?:sk-)?x+$|your.{0,3}(?:api.{0,3})?key|^(?:sk-)?\*+$", re.IGNORECASE)
_NO_COUNTRY = re.compile(r"unsupported_country|location is not supported|country, region", re.IGNORECASE)
_PLAIN_HTTP = re.compile(r"wrong.version.number|record layer failure", re.IGNORECASE)
_EXPIRED = re.compile(r"has expired|not yet valid", re.IGNORECASE)
_OTHER_NAME = re.compile(r"(?:hostname|ip address) mismatch", re.IGNORECASE)
_ABOUT_PROXY = re.compile(r"the proxy (?:at \S+ is not reachable|refused)")
_LOADING = re.compile(r"loading model|model is (?:still )?loading", re.IGNORECASE)
_METHODS = r"/(?:chat/completions|responses|messages|api/chat)$"
_START = {
    "ollama": "Start Ollama: open its app or run `ollama serve`.",
    "vllm": "Start it with `vllm serve MODEL`.",
    "llama.cpp": "Start it with `llama-server -m FILE.gguf`.",
    "lm-studio": "Start its server with `lms server start`.",
}
_PORTS = {11434: "ollama", 1234: "lm-studio"}


def advise(failure: Failure, endpoint: Endpoint, url: str | None = None) -> Failure:
    """Add to a failure's message what to do about it; nothing where there is nothing to do.

    Parameters
    ----------
    failure : Failure
        Of any kind. Advice that stands in the message already is not repeated.
    endpoint : Endpoint
        Whom it came from.
    url : str, optional
        Where the request was posted to, where that is not the vendor's usual address.

    Examples
    --------
    >>> endpoint = Endpoint("ollama", "qwen3", "http://localhost:11434")
    >>> advise(Failure("config", "HTTP 404: model 'qwen3' not found", status=404), endpoint).message
    "HTTP 404: model 'qwen3' not found. Run `ollama pull qwen3`, or name one of those that `ollama list` shows."
    """
    find = _ADVICE.get(failure.kind)
    advice = find(failure, endpoint, url or _address(endpoint)) if find is not None else None
    if not advice or advice in failure.message:
        return failure
    said = failure.message.rstrip()
    return replace(failure, message=f"{said}{'' if said[-1:] in ('.', '!', '?', '…') else '.'} {advice}")


def key_problem(key: str, vendor: str | None = None) -> str | None:
    """Say what is wrong with an API key at first sight, without showing it; None where nothing is.

    Parameters
    ----------
    key : str
        As given, or as found in the environment.
    vendor : str, optional
        Whose key it should be; give it only where the base URL is the vendor's own.

    Examples
    --------
    >>> key_problem("'sk-123'")
    'the key stands in quotes. Leave them out.'
    """
    stripped = key.strip()
    if not stripped:
        return "the key is empty."
    if stripped[0] in "'\"`“”‘’" or stripped[-1] in "'\"`“”‘’":
        return "the key stands in quotes. Leave them out."
    if re.match(r"bearer\s", stripped, re.IGNORECASE):
        return "the key begins with 'Bearer'. Give the key alone."
    if re.match(r"(?:export\s+)?[A-Z][A-Z0-9_]*=", stripped):
        return "the key has its variable's name in front. Give what stands after the '='."
    if _PLACEHOLDER.search(key):
        return "the key is a placeholder. Put your own in its place."
    if any(character.isspace() for character in key):
        place = "in it" if any(character.isspace() for character in stripped) else "at its end or beginning"
        return f"the key has white space or a line break {place}. Copy it again, in one piece."
    if not (key.isascii() and key.isprintable()):
        return "the key holds a character that no key has, such as a typographic dash. Copy it again from its page."
    owner = next((owner for start, owner in _KEYS if start.match(key)), None)
    if owner is None or vendor is None or owner == vendor or vendor not in _DESKS:
        return None
    return f"the key looks like one of {_DESKS[owner].title}, not of {_DESKS[vendor].title}."


# ---- by kind ----------------------------------------------------------------------------------


def _about_auth(failure: Failure, endpoint: Endpoint, url: str) -> str:
    if _NO_COUNTRY.search(failure.message):
        return _about_country(endpoint)
    variables = " or ".join(PROFILES[endpoint.vendor].key_env)
    desk = _DESKS.get(endpoint.vendor)
    if not endpoint.key:
        return f"This server wants a key: {f'set {variables}, or ' if variables else ''}pass api_key=."
    if desk is None or not is_own(endpoint) or is_local(endpoint.base_url):
        return f"The server at {_host(endpoint)} does not take this key: is it the one for this address?"
    if endpoint.vendor == "azure":
        return (
            "The key and the address must be of one Azure resource: look both up under 'Keys and Endpoint' "
            f"at {desk.billing}, and set {variables} and base_url=."
        )
    if endpoint.vendor == "qwen":
        return (
            f"A key works in its own region only: for one of Beijing, Virginia or Hong Kong give base_url= with "
            f"dashscope, dashscope-us or cn-hongkong.dashscope in place of dashscope-intl. Else check {variables}; "
            f"keys are made at {desk.keys}."
        )
    if failure.status == 403:
        return f"The key is known but may not do this: see its rights at {desk.keys}, or use another in {variables}."
    return f"Check {variables} (or api_key=): copy the whole key, or make a new one at {desk.keys}."


def _about_quota(failure: Failure, endpoint: Endpoint, url: str) -> str:
    desk = _DESKS.get(endpoint.vendor)
    if "PerDay" in failure.message or "free-models-per-day" in failure.message or "PerDay" in (failure.code or ""):
        return "The free requests of this day are used up. Go on tomorrow, switch on billing, or use another model."
    if desk is None or not is_own(endpoint):
        return "Asking again does not help: the account there needs credit or a higher limit."
    return f"Asking again does not help: add credit or raise the limit at {desk.billing}."


def _about_config(failure: Failure, endpoint: Endpoint, url: str) -> str | None:
    if _NO_COUNTRY.search(failure.message):
        return _about_country(endpoint)
    if failure.status == 407:
        return _about_proxy(failure, endpoint)
    if "requires more system memory" in failure.message:
        return "Take a smaller model, or a smaller window with extra_body={'options': {'num_ctx': 4096}}."
    if "v1/responses" in failure.message:
        return "Pass endpoint='responses'."
    if failure.param == "model" or is_no_model(failure.message):
        return _about_model(endpoint, url)
    if failure.status == 404:
        return f"Is the address right? It was posted to {url}: base_url={endpoint.base_url!r} " + (
            "names its version twice."
            if _is_doubled(endpoint)
            else "may lack a part, such as `/v1`, or have one too many."
        )
    return _about_parameter(failure, endpoint)


def _about_model(endpoint: Endpoint, url: str) -> str:
    model, vendor = endpoint.model, endpoint.vendor
    if _server(endpoint) == "ollama" and "ollama.com" not in endpoint.base_url:
        return f"Run `ollama pull {model}`, or name one of those that `ollama list` shows."
    if vendor == "azure":
        return "Give the name of your deployment, not of its model; both stand at https://ai.azure.com."
    listed = _DESKS[vendor].models if vendor in _DESKS and is_own(endpoint) else ""
    listed = listed or (url.rpartition("/")[0] if vendor == "gemini" else re.sub(_METHODS, "/models", url))
    return f"Is the model's name {model!r} right, and may this key use it? The models there are listed at {listed}"


def _about_parameter(failure: Failure, endpoint: Endpoint) -> str | None:
    named = (failure.param or "").replace("[", ".").split(".")
    theirs = next((name for name in named if name in endpoint.extra_body), None)
    if theirs is not None:
        return f"Leave {theirs!r} out of extra_body=, or correct it."
    if "temperature" in named and endpoint.temperature is not None:
        return "Leave temperature= out."
    if not {"reasoning", "reasoning_effort", "thinking", "effort"}.isdisjoint(named) and endpoint.reasoning is not None:
        return "Leave reasoning= out, or give an effort that this model knows."
    return None


def _about_rate(failure: Failure, endpoint: Endpoint, url: str) -> str:
    return "Set rpm= and max_concurrency= to what your plan allows (free ones often: rpm=10, max_concurrency=2)."


def _about_connection(failure: Failure, endpoint: Endpoint, url: str) -> str | None:
    if failure.tls and _PLAIN_HTTP.search(failure.message):
        return "The server speaks plain http: write http:// in base_url=."
    if failure.tls and _EXPIRED.search(failure.message):
        return "Its certificate is out of date, or this machine's clock is wrong: tell whoever runs the server."
    if failure.tls and _OTHER_NAME.search(failure.message):
        return f"Its certificate is for another name: is base_url={endpoint.base_url!r} right?"
    if failure.tls:
        return (
            "Behind a company's firewall, or with a certificate of your own, set the environment variable "
            "SSL_CERT_FILE to the PEM file of whoever signed it (in a notebook: %env SSL_CERT_FILE=/path/to/file.pem), "
            "and run again."
        )
    if not failure.unreached:
        return None
    if _ABOUT_PROXY.match(failure.message):
        return _about_proxy(failure, endpoint)
    if is_local(endpoint.base_url):
        return _START.get(_server(endpoint), "Start the server first.")
    if "." not in _host(endpoint) or not is_own(endpoint):
        return f"Is base_url={endpoint.base_url!r} right, and that server reachable from here?"
    return (
        "Is this machine online? Behind a company's proxy set the environment variable HTTPS_PROXY to its address "
        "(in a notebook: %env HTTPS_PROXY=http://host:port), and run again."
    )


def _about_proxy(failure: Failure, endpoint: Endpoint) -> str:
    variable = f"{urlsplit(endpoint.base_url).scheme.upper()}_PROXY"
    if "HTTP 407" in failure.message:
        return f"Put the proxy's user name and password into {variable}: http://user:password@host:port."
    return f"Is {variable} right? To go without the proxy, unset it, or put {_host(endpoint)} into NO_PROXY."


def _about_timeout(failure: Failure, endpoint: Endpoint, url: str) -> str | None:
    if is_local(endpoint.base_url):
        return "A first request also waits for the model to be loaded: raise timeout=, or lower max_concurrency=."
    return None


def _about_server(failure: Failure, endpoint: Endpoint, url: str) -> str | None:
    if _LOADING.search(failure.message):
        return "The server is still loading its model: wait until it is ready, or raise deadline=."
    if failure.overloaded and is_local(endpoint.base_url):
        return "Lower max_concurrency= to what this server does at once."
    return None


def _about_length(failure: Failure, endpoint: Endpoint, url: str) -> str | None:
    if _server(endpoint) == "ollama" and endpoint.vendor == "ollama":
        return "A larger window takes more memory: extra_body={'options': {'num_ctx': 65536}}."
    return None


def _about_country(endpoint: Endpoint) -> str:
    title = _DESKS[endpoint.vendor].title if endpoint.vendor in _DESKS else "This vendor"
    return (
        f"{title} does not serve the country this machine, or its proxy or VPN, is in: use another route or provider."
    )


_ADVICE: Mapping[str, Callable[[Failure, Endpoint, str], str | None]] = {
    "auth": _about_auth,
    "quota": _about_quota,
    "config": _about_config,
    "rate_limited": _about_rate,
    "connection": _about_connection,
    "timeout": _about_timeout,
    "server": _about_server,
    "context_length": _about_length,
}


def _server(endpoint: Endpoint) -> str:
    """Name the program that most likely is, or should be, at an address."""
    vendor = endpoint.vendor.removesuffix("-v1")
    if vendor != "openai-compatible":
        return vendor
    return _PORTS.get(urlsplit(endpoint.base_url).port or 0, vendor)


def _host(endpoint: Endpoint) -> str:
    return urlsplit(endpoint.base_url.strip()).netloc


def _address(endpoint: Endpoint) -> str:
    return DIALECTS[dialect_name(endpoint)].url(endpoint)


def _is_doubled(endpoint: Endpoint) -> bool:
    segments = [segment for segment in urlsplit(endpoint.base_url).path.split("/") if segment]
    return any(re.fullmatch(r"v\d\w*", segment) and segments.count(segment) > 1 for segment in segments)
