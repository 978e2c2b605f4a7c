"""Which cached blocks a request of vLLM holds, and which a look-up of hashes returns: ids per block of its prompt.

Reads vLLM's own tables (`KVCacheManager`, `BlockPool`) and changes none. With several KV groups one decides the
blocks of a prompt, a full-attention one where there is one; what other groups have cached goes with the block that it
ends in. Null blocks, blocks without a hash and partly filled ones are not cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvpolicy.channel.names import blocks_named


class Holdings:
    """scheduler: a built vLLM scheduler with prefix caching. unit: tokens of a block of the deciding group.

    Raises ValueError where nothing is cached by prefix."""

    def __init__(self, scheduler: Any) -> None:
        manager = scheduler.kv_cache_manager
        self.pool = manager.block_pool
        groups = [
            each
            for each in manager.coordinator.single_type_managers
            if each.enable_caching
            and each.block_pool is self.pool
            and getattr(each, "num_cached_block", None) is not None
        ]
        if not self.pool.enable_caching or not groups:
            raise ValueError("prefix caching is off")
        self.main = next((g for g in groups if type(g).__name__ == "FullAttentionManager"), groups[0])
        self.others = tuple(group for group in groups if group is not self.main)
        self.unit = int(self.main.block_size)
        self.step: int = max(1, self.unit // self.pool.hash_block_size)
        self.suffix: bytes = int(self.main.kv_cache_group_id).to_bytes(4, "big")

    @property
    def capacity(self) -> int:
        """Prompt blocks that fit at most: with several groups each prompt block takes one block of each, at most."""
        return max(1, (int(self.pool.num_gpu_blocks) - 1) // (1 + len(self.others)))

    def hashes(self, request: Any) -> list[Any]:
        """Hashes of a request's full blocks so far, as the engine computed them: LoRA, salt and images included."""
        known = request.block_hashes
        return list(known) if self.step == 1 else list(known[self.step - 1 :: self.step])

    def cached(self, request_id: str, start: int) -> tuple[list[int], list[tuple[int, ...]]]:
        """Block ids from prompt block `start` on, up to the first that is not cached, and beside each those of other
        groups (an empty list where there are none). Where two copies are cached, the one that a look-up returns."""
        keys: list[int] = []
        table = self.pool.cached_block_hash_to_block._cache
        end = start * self.unit
        for block in self.main.req_to_blocks.get(request_id, ())[start:]:
            end += self.unit
            name = block._block_hash
            if name is None or block.is_null or (block._block_hash_num_tokens or end) < end:
                break
            found = table.get(name)
            if found is block:
                keys.append(block.block_id)
            elif type(found) is dict and found:
                keys.append(next(iter(found)))
            else:
                break
        return keys, self._beside(request_id, start, len(keys)) if self.others else []

    def find(self, hashes: Sequence[Any]) -> tuple[list[int], list[tuple[int, ...]]]:
        """Block ids that a look-up of these hashes returns, up to the first miss; those of other groups as in
        `cached`, as far as their blocks are no smaller."""
        keys: list[int] = []
        table = self.pool.cached_block_hash_to_block
        for name in hashes:
            block = table.get_one_block(name + self.suffix)
            if block is None:
                break
            keys.append(block.block_id)
        if not self.others:
            return keys, []
        sides: list[list[int]] = [[] for _ in keys]
        for group in self.others:
            step, suffix = group.block_size // self.unit, int(group.kv_cache_group_id).to_bytes(4, "big")
            if step < 1:
                continue
            for index in range(step - 1, len(keys), step):
                block = table.get_one_block(hashes[index] + suffix)
                if block is not None:
                    sides[index].append(block.block_id)
        return keys, [tuple(row) for row in sides]

    def named(self, names: Sequence[int | str]) -> list[bytes]:
        """Hashes by the names that the engine's events give them. A number costs a look at every cached block once;
        hex text does not. Up to the first that is not cached."""
        ends = {n.to_bytes(8, "big") + self.suffix: n for n in names if isinstance(n, int) and 0 <= n < 1 << 64}
        found: dict[int, bytes] = {}
        if ends:
            for key in self.pool.cached_block_hash_to_block._cache:
                number = ends.get(key[-12:])
                if number is not None:
                    found[number] = key[:-4]
        return blocks_named(names, found)

    def _beside(self, request_id: str, start: int, count: int) -> list[tuple[int, ...]]:
        sides: list[list[int]] = [[] for _ in range(count)]
        table = self.pool.cached_block_hash_to_block._cache
        unit = self.unit
        for group in self.others:
            size = group.block_size
            blocks = group.req_to_blocks.get(request_id, ())
            first = start * unit // size
            for index in range(first, min(len(blocks), (start + count) * unit // size)):
                block = blocks[index]
                place = ((index + 1) * size - 1) // unit - start
                name = block._block_hash
                if name is None or block.is_null or place < 0:
                    continue
                found = table.get(name)
                sides[place].append(next(iter(found)) if type(found) is dict and found else block.block_id)
        return [tuple(row) for row in sides]
