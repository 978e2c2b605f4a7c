"""kvpolicy: what an LLM server should keep in its KV cache, said in a language and carried out in the engine.

Importing it loads none of the heavy dependencies (fastapi, networkx, redis, pydantic); `tests/test_imports.py`
holds that.
"""

from kvpolicy.faults import InputFault, KvpError, PolicyFault

__version__ = "0.1.0"

__all__ = ["InputFault", "KvpError", "PolicyFault", "__version__"]
