"""fixtures.py FOLDER: the fixtures of tests/fixtures with the logits, loss and gradients of transformers' Llama, in fp32, instead of
the reference's, for the test model/autoregressive_fixture: CALM_FIXTURES=FOLDER ctest --preset release -R autoregressive_fixture"""
import json
import os
import shutil
import sys

from safetensors import safe_open
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

folder = sys.argv[1]
shutil.rmtree(folder, ignore_errors=True)
shutil.copytree(os.path.join(os.path.dirname(__file__), "..", "..", "fixtures"), folder)
for variant in ("base", "two"):
    path = os.path.join(folder, variant, "autoregressive.safetensors")
    with safe_open(path, "pt") as file:
        about, all = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
    stated = json.loads(about["config"])
    sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
             "num_key_value_heads", "rms_norm_eps", "rope_theta")
    model = LlamaForCausalLM(LlamaConfig(**{name: stated[name] for name in sizes}, tie_word_embeddings=False)).float().eval()
    model.load_state_dict({name.removeprefix("param/"): tensor for name, tensor in all.items() if name.startswith("param/")})
    tokens = all["in/tokens"].long()
    found = model(tokens, labels=tokens)
    found.loss.backward()
    print(f"{variant}: logits differ from the reference's by {(found.logits - all['out/logits']).abs().max():.2e}")
    for name, tensor in {"out/logits": found.logits, "out/loss": found.loss,
                         **{"grad/" + name: p.grad for name, p in model.named_parameters()}}.items():
        all[name] = tensor.detach().reshape(all[name].shape).contiguous()
    save_file(all, path, metadata=about)
