"""write.py FOLDER: writes small random models of transformers to FOLDER, one per layout, each with its logits, for compare.cpp."""
import json
import os
import shutil
import sys

import torch
from safetensors.torch import load_file
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


def as_bin(path, tied):
    """Rewrites the weights as the .bin files of transformers 4, because 5 writes safetensors only. A tied table has both names."""
    def renamed(name):
        return name.replace("model", "pytorch_model", 1).replace(".safetensors", ".bin")
    for name in os.listdir(path):
        file = os.path.join(path, name)
        if name.endswith(".safetensors"):
            tensors = load_file(file)
            if tied:
                tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
            torch.save(tensors, os.path.join(path, renamed(name)))
            os.remove(file)
        elif name.endswith(".index.json"):
            with open(file) as index:
                text = index.read()
            with open(os.path.join(path, renamed(name)), "w") as index:
                index.write(text.replace('"model-', '"pytorch_model-').replace(".safetensors", ".bin"))
            os.remove(file)


def write(name, made, pickled=False, **how):
    path = os.path.join(root, name)
    shutil.rmtree(path, ignore_errors=True)
    made.save_pretrained(path, **how)
    if pickled:
        as_bin(path, made.config.tie_word_embeddings)
    with torch.no_grad():
        logits = LlamaForCausalLM.from_pretrained(path, torch_dtype=torch.float32)(tokens).logits
    logits.numpy().astype("<f4").tofile(path + ".logits")


os.makedirs(root, exist_ok=True)
tokens.numpy().astype("<i4").tofile(os.path.join(root, "tokens"))
write("untied", model(1, rope_theta=50000.0))
write("tied", model(2, tie_word_embeddings=True))
write("tied_bin", model(2, tie_word_embeddings=True), pickled=True)
write("sharded", model(3, rope_theta=50000.0), max_shard_size="60KB")
write("sharded_bin", model(3, rope_theta=50000.0), max_shard_size="60KB", pickled=True)
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
    places = stated.get("rope_parameters", stated)  # transformers 5 states the base in rope_parameters
    places["rope_theta"] = 10000.0
    json.dump(stated, file)
