"""A simulated inference server: OpenAI- and Anthropic-compatible over HTTP, deterministic, with the embedded pool's
real KV accounting behind it. No model runs: what it answers is told to it, or filler. `kvp engine` starts it.

`text` and `chat` make tokens of a request, `answer` decides what is answered, `generation` admits, prefills and decodes
on `blocks`, which `claims` rank; `app` and `look` are HTTP, `publisher` tells KV events. Everything that it sends says
that it is simulated.
"""
