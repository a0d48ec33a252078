#!/usr/bin/env python3
"""Trains a small vocabulary of tiktoken's lines, and writes the ids of tiktoken for each pattern.

make_tiktoken.py DIR [--tokens V]

Reads the texts of DIR/texts.jsonl, from make_fixtures.py. DIR gets tiktoken.model and tiktoken.jsonl, one line per text.
tests/text/tokenizer_families_test.cpp reads tests/fixtures/tokenizers, or $CALM_TOKENIZERS if set.
"""
import argparse
import base64
import json
import pathlib
import unicodedata

import tiktoken
from tiktoken._educational import bpe_train
from tiktoken_ext import openai_public

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# tiktoken has the patterns of OpenAI. Llama 3's and Qwen's are those of their published code.
PATTERNS = {
    "llama3": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST,
    "qwen": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST,
}

OPENAI = {"gpt2": "r50k_base", "cl100k": "cl100k_base", "o200k": "o200k_base"}


def published(name, ranks):
    """The pattern of an encoding of tiktoken, without its vocabulary, which would be downloaded."""
    openai_public.load_tiktoken_bpe = lambda *_, **__: ranks
    return getattr(openai_public, name)()["pat_str"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=700)
    o = parser.parse_args()
    with open(o.dir / "texts.jsonl", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    trained = bpe_train("\n".join(texts[:400]), o.tokens, PATTERNS["llama3"], visualise=None)
    # Published files number the bytes in this order.
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    order = printable + [byte for byte in range(256) if byte not in printable]
    tokens = [bytes([byte]) for byte in order] + [t for t, rank in trained.items() if rank >= 256]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    with open(o.dir / "tiktoken.model", "wb") as file:
        for token, rank in ranks.items():
            file.write(base64.b64encode(token) + b" " + str(rank).encode() + b"\n")
    patterns = PATTERNS | {name: published(encoding, ranks) for name, encoding in OPENAI.items()}
    encodings = {name: tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
                 for name, pattern in patterns.items()}
    with open(o.dir / "tiktoken.jsonl", "w", encoding="utf-8") as file:
        for text in texts:
            ids = {name: encoding.encode_ordinary(unicodedata.normalize("NFC", text) if name == "qwen" else text)
                   for name, encoding in encodings.items()}
            file.write(json.dumps({"text": text, "ids": ids}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
