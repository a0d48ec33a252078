"""converted.py CALM MODEL TEXTS: loads an autoregressive model that `calm convert` wrote with transformers' Auto classes, and compares
with the program CALM: the ids of 1,000 varied texts, made from TEXTS (.json, one {"text": ...} per line), and greedy texts."""
import json
import os
import random
import subprocess
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "tokenizers"))
from make_fixtures import varied  # noqa: E402

program, directory, texts = sys.argv[1:]
words = AutoTokenizer.from_pretrained(directory)
model = AutoModelForCausalLM.from_pretrained(directory, torch_dtype=torch.float32).eval()


def calm(*arguments):
    return subprocess.run([program, *arguments], check=True, capture_output=True).stdout


with open(texts, encoding="utf-8") as file:
    documents = [json.loads(line)["text"] for line in file]
draw = random.Random(1)
# No text with NUL, which a command line cannot have.
many = [text for text in (varied(draw, documents) for _ in range(2000)) if text and "\0" not in text and text != "-"][:1000]
plain = words.backend_tokenizer
plain.encode_special_tokens = True  # names of special tokens in a text are ordinary text
differ = 0
for begin in range(0, len(many), 50):
    some = many[begin:begin + 50]
    lines = calm("tokenize", directory, "--format", "ids", *(word for text in some for word in ("--text", text)))
    for text, line in zip(some, lines.decode().splitlines(), strict=True):
        differ += plain.encode(text, add_special_tokens=False).ids != [int(id) for id in line.split()]
print(f"ids of {len(many)} texts: {differ} differ")

for prompt in ("Mia was a", "One day", "\"Why are you", ""):
    ids = words(prompt, return_tensors="pt").input_ids
    with torch.no_grad():
        all = model.generate(ids, max_new_tokens=100, do_sample=False)
    theirs = words.decode(all[0, ids.shape[1]:], skip_special_tokens=True)
    ours = calm("generate", directory, "--prompt", prompt, "--temperature", "0", "--max-tokens", "100").decode()
    same = ours.rstrip("\n") in (theirs.rstrip("\n"), (prompt + theirs).rstrip("\n"))
    print(f"greedy text after {prompt!r}, {all.shape[1] - ids.shape[1]} tokens: {'equal' if same else 'DIFFERS'}", ascii(ours[-60:]))
