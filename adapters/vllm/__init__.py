"""vLLM: ranks instead of plain LRU in a running server (docs/engines/vllm.md).

In the engine's process run the scheduler classes and the engine side of the control channel, which import no more than
they need; beside it run the channel's client, the reader of KV events, the doctor and the start command.
"""
