"""Text prompts: the tokenizer.json of a checkpoint directory."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from asaplab.errors import InputError


def tokenize(directory: str | Path, text: str) -> Tensor:
    """Token ids (int64) of a text.

    Raises:
        InputError: the directory has no readable tokenizer.json, or the text has no tokens.
    """
    path = Path(directory) / "tokenizer.json"
    if not path.is_file():
        raise InputError(f"{path} does not exist; give token ids instead of text, or add the model's tokenizer.json")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as broken:  # the library raises bare Exception
        raise InputError(f"{path} is not a tokenizer ({broken}); download it again") from None
    ids = tokenizer.encode(text).ids
    if not ids:
        raise InputError("the text prompt has no tokens; give a text of at least one character")
    return torch.tensor(ids, dtype=torch.int64)


def write_byte_tokenizer(path: Path) -> None:
    """A tokenizer with one token a byte, for checkpoints whose vocabulary means nothing."""
    vocab = {symbol: i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    tokenizer.save(str(path))
