"""The names that vendors know: the fields of a request, and the keywords of a schema. Pure."""

from __future__ import annotations

__all__ = [
    "ANTHROPIC_FIELDS",
    "ANTHROPIC_SCHEMA_REFUSES",
    "CHAT_FIELDS",
    "GEMINI_CONFIG",
    "GEMINI_FIELDS",
    "GEMINI_SCHEMA_TAKES",
    "MISTRAL_FIELDS",
    "OLLAMA_FIELDS",
    "OPENAI_SCHEMA_REFUSES",
    "OPENAPI_SCHEMA_TAKES",
    "RESPONSES_FIELDS",
]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


CHAT_FIELDS = _names(
    """
    model messages max_tokens max_completion_tokens reasoning_effort temperature top_p n stop seed logit_bias
    logprobs top_logprobs service_tier prompt_cache_key prompt_cache_options prompt_cache_retention
    safety_identifier verbosity metadata store response_format tools tool_choice parallel_tool_calls stream
    stream_options user presence_penalty frequency_penalty modalities audio prediction web_search_options
    functions function_call
    """
)
MISTRAL_FIELDS = _names(
    """
    model messages max_tokens temperature top_p random_seed safe_prompt response_format stop stream tools
    tool_choice parallel_tool_calls presence_penalty frequency_penalty n prediction prompt_mode logprobs
    top_logprobs prompt_cache_key service_tier reasoning_effort metadata guardrails
    """
)
RESPONSES_FIELDS = _names(
    """
    model input instructions max_output_tokens max_tool_calls store reasoning include top_logprobs text
    temperature top_p tools tool_choice parallel_tool_calls previous_response_id conversation metadata
    service_tier stream stream_options truncation user prompt prompt_cache_key prompt_cache_options
    prompt_cache_retention safety_identifier background context_management
    """
)
ANTHROPIC_FIELDS = _names(
    """
    model max_tokens messages system temperature top_p top_k stop_sequences stream metadata tools tool_choice
    thinking output_config output_format service_tier cache_control container context_management mcp_servers
    inference_geo speed
    """
)
GEMINI_FIELDS = _names(
    """
    model contents systemInstruction generationConfig safetySettings tools toolConfig cachedContent serviceTier
    store
    """
)
GEMINI_CONFIG = _names(
    """
    stopSequences responseMimeType responseSchema responseJsonSchema responseModalities candidateCount
    maxOutputTokens temperature topP topK seed presencePenalty frequencyPenalty responseLogprobs logprobs
    speechConfig thinkingConfig imageConfig mediaResolution enableEnhancedCivicAnswers
    """
)
OLLAMA_FIELDS = _names(
    """
    model messages stream format keep_alive tools options think truncate shift logprobs top_logprobs
    """
)
OPENAI_SCHEMA_REFUSES = _names(
    """
    allOf not if then else dependentRequired dependentSchemas dependencies oneOf patternProperties propertyNames
    minProperties maxProperties contains minContains maxContains uniqueItems unevaluatedItems
    unevaluatedProperties default
    """
)
ANTHROPIC_SCHEMA_REFUSES = _names(
    """
    minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength maxItems uniqueItems
    contains minContains maxContains minProperties maxProperties patternProperties propertyNames oneOf not if
    then else dependentRequired dependentSchemas unevaluatedItems unevaluatedProperties
    """
)
GEMINI_SCHEMA_TAKES = _names(
    """
    $id $defs $ref $anchor type format title description enum items prefixItems minItems maxItems minimum
    maximum anyOf oneOf properties additionalProperties required propertyOrdering
    """
)
OPENAPI_SCHEMA_TAKES = _names(
    """
    type format title description nullable enum items minItems maxItems minimum maximum anyOf properties
    required propertyOrdering minProperties maxProperties minLength maxLength pattern example default
    """
)
