"""kvpolicy: what an LLM server should keep in its KV cache, said in a language and carried out in the engine."""

__version__ = "0.1.0"
