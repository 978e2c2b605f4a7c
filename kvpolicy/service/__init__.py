"""The gateway: an OpenAI- and Anthropic-compatible reverse proxy that plans what an engine keeps, and says so.

    edge       who asks (tenant), what a client may say, limits           config, tenants, edge
    meaning    which tokens mean what, whose they are, what happened      headers, dialects, sessions, offsets
    decisions  the plan of a request, its lowering, what events change    decide, policies, channels
    forward    to an upstream and back, byte for byte                     upstreams, forward, answers

`app` ties them together. Whatever breaks in `meaning` or `decisions`, the request reaches the engine unchanged, in
time; `edge` and `forward` are the only parts that can refuse one.
"""
