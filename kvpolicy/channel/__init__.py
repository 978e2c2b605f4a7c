"""What an engine is told of its blocks, the same for every engine that kvpolicy runs in: payloads and messages.

`payload` is what comes with a request, `messages` what comes without one; both end in the ledger of `kvpolicy.claims`.
`wire` is the control channel's form, `client` the service's end of it, `channel` the engine's (`listener`, `sockets`).
`running` is the life of a request's claims. Nothing here knows an engine: `adapters/vllm/` and `kvpolicy/simulated/`
call it. Only the standard library is imported, as it runs in the engine's process.
"""
