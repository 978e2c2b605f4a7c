"""What an application of agents uses to be understood: where it is, told with every LLM call, and what happens, told
when it happens.

    scope      where this thread or task is: session, run, node, agent, branch, spans    (a ContextVar)
    wire       a scope as `x-kvp-…` headers, as the body field `kvp`, or as part of a base URL
    transport  puts the headers on the calls of httpx and httpx2 clients, and of the SDKs on them
    sending    events to the service, by a thread of its own, which nobody waits for
    service    `kvpolicy.Service`: the service's address with all of this
    here       `kvpolicy.step`, `kvpolicy.tool`, …: of the run that this thread or task is in

# INVARIANT: nothing in here raises into an application's LLM call, step or tool; what fails is logged once and counted.
"""
