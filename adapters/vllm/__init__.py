"""vLLM: ranks instead of plain LRU in a running server (docs/engines/vllm.md).

In the engine's process run these, from vLLM's side inwards. A row imports itself and rows below it, never one above
(`tests/adapters/vllm/test_structure.py`), and no more of kvpolicy than it needs:

    scheduler plugin            how vLLM comes to build a scheduler of ours
    steered                     the scheduler's own steps, and ours around them
    attach                      a keeper for a scheduler, or why there is none
    keeper wake                 idle, following ranks or off: no exception of ours reaches a step
    takeover                    our queue and our touch in the place of vLLM's, and back
    touch                       `BlockPool.touch` in one loop
    queue                       vLLM's free-block queue, by our order
    claims                      what requests and messages ask for, on the blocks that they hold
    carried holdings            what a request of vLLM's carries, which cached blocks it has
    trunk                       what claims stand on: prompts as paths of blocks, held, let go, cut by evictions
    tree                        their radix tree, and the order of free blocks in step with it
    ranked                      the order in which free blocks leave
    segment                     what stands in that order
    versions                    which vLLM is known

`offload` is the CPU tier's order, by itself. Outside that process: `adapter` (a plan as fields of a request's body),
`run` with `run_places`, `doctor` with `doctor_http` and `doctor_effect`, `events` with `decode` and `events_known`.
"""
