"""Traffic that exists already as a kvpolicy trace without text: what `simulate` and `advise` read.

    pieces      a request's body as runs of text of one kind     (OpenAI's and Anthropic's forms)
    calls       pieces as tokens, spans and keyed block hashes; rows in order of time
    times       what a log's times mean; where calls without one stand
    reading     what readers share: a row that is not as expected is counted, and passed over
    sources     the readers by form:
    openai_log  logs of requests, one JSON object a line          claude_code   session files
    vllm_log    what vLLM logs of requests                        decisions     the service's decision log
    live        from a client's own calls

# INVARIANT: no text and no name of an owner leaves here: hashes are keyed with a secret that is thrown away. Names of
# models and tools do, for policies go by them.
"""
