"""A model of random weights that a real engine serves: 1.5 million parameters, made in seconds without a network.

    PYTHON_OF_AN_ENVIRONMENT tests/engines/tiny_model.py FOLDER

The same seed gives the same weights, so greedy answers can be compared between two servers.
"""

from __future__ import annotations

import sys
from pathlib import Path

SPECIAL = ("<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>")
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TEXT = ("the quick brown fox jumps over the lazy dog", "a cache keeps what will be used again and lets the rest go")


def make(folder: Path) -> None:
    """Write the model: config, weights, tokenizer, chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE(unk_token=None))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=512, initial_alphabet=alphabet, special_tokens=list(SPECIAL))
    bpe.train_from_iterator(TEXT * 10, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = TEMPLATE
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=64,
        max_position_embeddings=4096,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "ready").write_text("made\n", encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
