"""smollm2.py MODEL TEXTS FOLDER: what transformers computes with SmolLM2-135M in fp32: the greedy continuation of a prompt, and the
nats of the first 128 tokens of the first document of TEXTS (.json, one {"text": ...} per line). Writes the ids of these tokens and
their logits in double to FOLDER, for smollm2.cpp, and their text as FOLDER/first.txt, for `calm evaluate`."""
import json
import os
import sys

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

torch.set_num_threads(1)
source, texts, folder = sys.argv[1:]
model = LlamaForCausalLM.from_pretrained(source, torch_dtype=torch.float32).eval()
words = PreTrainedTokenizerFast(tokenizer_file=os.path.join(source, "tokenizer.json"))

prompt = words("The capital of France is", return_tensors="pt", add_special_tokens=False).input_ids
with torch.no_grad():
    text = model.generate(prompt, max_new_tokens=16, do_sample=False, eos_token_id=None, pad_token_id=0)
print("greedy:", text[0, prompt.shape[1]:].tolist())

with open(texts, encoding="utf-8") as file:
    document = json.loads(file.readline())["text"]
ids = words(document, add_special_tokens=False).input_ids[:128]
with torch.no_grad():
    logits = model(torch.tensor([ids])).logits[0]
nats = torch.nn.functional.cross_entropy(logits[:-1].double(), torch.tensor(ids[1:]))
with torch.no_grad():
    exact = model.double()(torch.tensor([ids])).logits[0]
print(f"first 128 tokens: {nats:.6f} nats per token; logits of fp32 and double differ by {(logits - exact).abs().max():.2e}")
os.makedirs(folder, exist_ok=True)
torch.tensor(ids, dtype=torch.int32).numpy().tofile(os.path.join(folder, "tokens"))
exact.numpy().astype("<f8").tofile(os.path.join(folder, "logits"))
with open(os.path.join(folder, "first.txt"), "w", encoding="utf-8") as file:
    file.write(words.decode(ids, clean_up_tokenization_spaces=False))
