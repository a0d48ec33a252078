#!/usr/bin/env python3
"""Trains a small tokenizer.json of the shape of each family, and writes texts with the ids of the `tokenizers` package.

make_fixtures.py DIR TEXT [--texts N] [--merges M]

TEXT is a file of JSON lines with the key "text". DIR gets FAMILY.json and texts.jsonl, one line per text with the ids of
each family. tests/text/tokenizer_families_test.cpp reads tests/fixtures/tokenizers, or $CALM_TOKENIZERS if set.
"""
import argparse
import json
import pathlib
import random
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers.decoders import ByteLevel as ByteLevelDecoder

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^" + "\r\n" + r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[" + "\r\n" + r"]*|\s*[" + "\r\n" + r"]+|\s+(?!\S)|\s+"
)


def split(regex):
    return pre_tokenizers.Split(Regex(regex), "isolated")


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def token(content, special=True, normalized=False):
    return AddedToken(content, special=special, normalized=normalized)


# BOS comes first where the post-processor says so.
FAMILIES = {
    "gpt2": dict(cut=byte_level(True), added=[token("<|endoftext|>")], first=None),
    "llama3": dict(
        cut=pre_tokenizers.Sequence([split(LLAMA3), byte_level(False)]),
        added=[token("<|begin_of_text|>"), token("<|end_of_text|>"), token("<|eot_id|>")],
        first="<|begin_of_text|>",
        ignore_merges=True,
    ),
    "smollm2": dict(
        cut=pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)]),
        added=[token("<|endoftext|>"), token("<|im_start|>"), token("<|im_end|>"), token("<repo_name>")],
        first=None,
        lacks=[4, 6, 19, 192, 193, 245, 246, 247, 248, 249, 250, 251, 252, 253, 254, 255],
    ),
    "qwen": dict(
        normal=normalizers.NFC(),
        cut=pre_tokenizers.Sequence([split(QWEN2), byte_level(False)]),
        added=[token("<|endoftext|>"), token("<|im_start|>"), token("<|im_end|>"), token("<tool_call>", special=False),
               token("</tool_call>", special=False), token("<think>", special=False), token("<think", special=False)],
        first=None,
    ),
    "neox": dict(
        normal=normalizers.NFC(),
        cut=byte_level(True),
        added=[token("<|endoftext|>"), token("<|padding|>"),
               *(token(" " * n, special=False, normalized=True) for n in range(24, 1, -1))],
        first=None,
    ),
    "deepseek": dict(
        normal=normalizers.Sequence([]),
        cut=pre_tokenizers.Sequence([split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK),
                                     byte_level(False)]),
        added=[token("<｜begin▁of▁sentence｜>"), token("<｜end▁of▁sentence｜>"), token("<｜▁pad▁｜>"),
               token("<｜User｜>", special=False, normalized=True), token("<think>", special=False, normalized=True)],
        first="<｜begin▁of▁sentence｜>",
    ),
}


def train(family, texts, merges):
    made = Tokenizer(models.BPE(ignore_merges=family.get("ignore_merges", False)))
    if "normal" in family:
        made.normalizer = family["normal"]
    made.pre_tokenizer = family["cut"]
    made.decoder = ByteLevelDecoder()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=merges + len(alphabet), initial_alphabet=alphabet, special_tokens=[], show_progress=False))
    state = json.loads(made.to_str())
    model = state["model"]
    letters = letters_of_bytes()
    gone = {letters[byte] for byte in family.get("lacks", [])}
    pairs = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    model["merges"] = [list(p) for p in pairs if not any(letter in gone for letter in p[0] + p[1])]
    kept = [t for t in model["vocab"] if not any(letter in gone for letter in t)]
    kept.sort(key=lambda t: model["vocab"][t])
    model["vocab"] = {t: i for i, t in enumerate(kept)}
    made = Tokenizer.from_str(json.dumps(state))
    made.add_tokens(family["added"])
    made.add_special_tokens([t for t in family["added"] if t.special])
    plain = processors.ByteLevel(trim_offsets=False)
    made.post_processor = plain
    if first := family["first"]:
        made.post_processor = processors.Sequence([plain, processors.TemplateProcessing(
            single=f"{first} $A", pair=f"{first} $A {first} $B", special_tokens=[(first, made.token_to_id(first))])])
    made.encode_special_tokens = True
    return made


def letters_of_bytes():
    kept = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in kept]
    return {b: chr(b) for b in kept} | {b: chr(256 + i) for i, b in enumerate(others)}


BLOCKS = [(0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x590), (0x590, 0x700), (0x900, 0xE80), (0x10A0, 0x1200),
          (0x1E00, 0x2100), (0x2100, 0x2C00), (0x3000, 0x3200), (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0xF900, 0xFB00),
          (0xFE00, 0x10000), (0x10000, 0x10400), (0x1D100, 0x1D200), (0x1F300, 0x1F700), (0x2F800, 0x2F900)]
WORDS = ["don't", "I'LL", "'s", "'ſ", " 'Tis", "it’s", "12345678", "٣٤٥", "Ⅻ", "½²", "  ", "\t", "\n", "\r\n", "\n\n\n ",
         "     ", "\u00a0", "\u2003 ", "\u3000", "\u0085", "\x00", "\x01\x1b", "\x7f", "e\u0301", "A\u030a\u0323",
         "\u1100\u1161\u11a8", "ガ", "か\u3099", "\u0344", "\u2126", "👩\u200d👩\u200d👧", "🇩🇪", "👍🏽", "שָׁלוֹם",
         "مرحبا", "नमस्ते", "สวัสดี", "日本語テキスト", "中文，标点。", "한국어", "_snake_case", "x=[a,b];//", "https://a.b/c?d=1",
         "<|endoftext|>", "<|begin_of_text|>", "<tool_call>", "<think>", "<think", "</tool_call", "<｜User｜>",
         "<｜begin▁of▁sentence｜>", "<|im_<think>", "\u0338", "!!!\n", "...", "—", "#include <a>", "ﬁ", "ǅ", "İ", "ß"]


def character(draw):
    while True:
        c = chr(draw.randrange(*draw.choice(BLOCKS)))
        if unicodedata.category(c) != "Cn":
            return c


def varied(draw, texts):
    out = ""
    for _ in range(draw.randrange(1, 14)):
        kind = draw.randrange(10)
        if kind < 3:
            text = draw.choice(texts)
            at = draw.randrange(len(text))
            out += text[at:at + draw.randrange(40)]
        elif kind < 7:
            out += draw.choice(WORDS)
        elif kind < 9:
            out += "".join(character(draw) for _ in range(draw.randrange(1, 6)))
        else:
            out += draw.choice(" \n\t0a") * draw.randrange(1, 30)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=150)
    parser.add_argument("--merges", type=int, default=500)
    args = parser.parse_args()
    texts = [json.loads(line)["text"] for line in args.text.read_text().splitlines()]
    texts = [text for text in texts if text]
    draw = random.Random(1)
    trained_on = texts + [varied(draw, texts) for _ in range(1000)]
    args.directory.mkdir(parents=True, exist_ok=True)
    made = {}
    for name, family in FAMILIES.items():
        made[name] = train(family, trained_on, args.merges)
        state = json.loads(made[name].to_str())
        (args.directory / f"{name}.json").write_text(json.dumps(state, ensure_ascii=False, separators=(",", ":")))
    with (args.directory / "texts.jsonl").open("w") as out:
        for _ in range(args.texts):
            text = varied(draw, texts)
            ids = {name: one.encode(text, add_special_tokens=False).ids for name, one in made.items()
                   if not any(byte in text.encode() for byte in FAMILIES[name].get("lacks", []))}
            out.write(json.dumps({"text": text, "ids": ids}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
