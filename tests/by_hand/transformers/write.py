"""write.py FOLDER: writes small random models of transformers to FOLDER, one per layout, each with its logits, for compare.cpp."""
import json
import os
import shutil
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

root = sys.argv[1]
tokens = torch.randint(0, 211, (2, 33), generator=torch.Generator().manual_seed(7))


def model(seed, **more):
    torch.manual_seed(seed)
    made = LlamaForCausalLM(LlamaConfig(vocab_size=211, hidden_size=48, intermediate_size=96, num_hidden_layers=3,
                                        num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6,
                                        initializer_range=0.2, **more)).eval()
    for name, weights in made.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(weights, 0.5, 1.5)
    return made


def write(name, made, **how):
    path = os.path.join(root, name)
    shutil.rmtree(path, ignore_errors=True)
    made.save_pretrained(path, **how)
    with torch.no_grad():
        logits = LlamaForCausalLM.from_pretrained(path, torch_dtype=torch.float32)(tokens).logits
    logits.numpy().astype("<f4").tofile(path + ".logits")


os.makedirs(root, exist_ok=True)
tokens.numpy().astype("<i4").tofile(os.path.join(root, "tokens"))
write("untied", model(1, rope_theta=50000.0))
write("tied", model(2, tie_word_embeddings=True))
write("tied_bin", model(2, tie_word_embeddings=True), safe_serialization=False)
write("sharded", model(3, rope_theta=50000.0), max_shard_size="60KB")
write("sharded_bin", model(3, rope_theta=50000.0), max_shard_size="60KB", safe_serialization=False)
write("bf16", model(4, rope_theta=50000.0).to(torch.bfloat16))
write("f16", model(5, rope_theta=50000.0).to(torch.float16))

# How large a difference that matters is: logits for one rotary base next to a model that states another.
control = os.path.join(root, "control")
shutil.rmtree(control, ignore_errors=True)
shutil.copytree(os.path.join(root, "untied"), control)
shutil.copy(os.path.join(root, "untied.logits"), control + ".logits")
with open(os.path.join(control, "config.json"), "r+") as file:
    stated = json.load(file)
    file.seek(0)
    file.truncate()
    json.dump(stated | {"rope_theta": 10000.0}, file)
