"""score.py CALM MODEL TEXTS FOLDER [OFFICIAL]: the BrierLM of MODEL, an energy CALM with K 4 or more, by the program CALM, by the
PyTorch reference (bench/reference) and by the official code in the folder OFFICIAL, on TEXTS (.jsonl, one {"text": ...} per line)
in blocks of 256 tokens. Each is scored with eight seeds: the standard errors are those of the noise, because the text is the same.
FOLDER gets MODEL as the two directories of the published layout. The weights have the decoder's table under its second name too:
without it, transformers 4.43 leaves it uninitialised when the file has the precision that is asked for."""
import json
import os
import statistics
import subprocess
import sys

import torch
from safetensors.torch import load_file, save_file

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "..", "bench", "reference"))
import calm_reference as ref  # noqa: E402

program, source, texts, folder = sys.argv[1:5]
official = sys.argv[5] if len(sys.argv) > 5 else None
BLOCK, SEEDS, SAMPLES = 256, 8, 8
torch.set_grad_enabled(False)

with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
    config = json.load(file)
state = {name: tensor.float() for name, tensor in load_file(os.path.join(source, "model.safetensors")).items()}
K = config["patch_size"]


def calm(*arguments):
    return subprocess.run([program, *arguments], check=True, capture_output=True).stdout.decode()


def packed():
    """BOS and document, one after the other, in whole blocks: mode published."""
    all = []
    with open(texts, encoding="utf-8") as file:
        documents = [json.loads(line)["text"] for line in file]
    for begin in range(0, len(documents), 100):
        given = [word for text in documents[begin:begin + 100] for word in ("--text", text)]
        for line in calm("tokenize", source, "--format", "ids", *given).splitlines():
            all += [config["bos_token_id"], *(int(id) for id in line.split())]
    return torch.tensor(all[:len(all) // BLOCK * BLOCK]).reshape(-1, BLOCK)


def report(name, rows):
    """rows: Brier-1..4 of each seed."""
    error = [statistics.stdev(column) / SEEDS**0.5 for column in zip(*rows)]
    brier = [statistics.mean(column) for column in zip(*rows)]
    each = [ref.brier_lm(torch.tensor(row)) for row in rows]
    print(f"{name:10}", *(f"{b:.5f} +- {e:.5f} " for b, e in zip(brier, error)),
          f"BrierLM {statistics.mean(each):.3f} +- {statistics.stdev(each) / SEEDS**0.5:.3f}", flush=True)


def of_program(seed):
    given = ("--data", texts, "--mode", "published", "--block", str(BLOCK), "--samples", str(SAMPLES), "--seed", str(seed))
    found = json.loads(calm("evaluate", source, *given))
    assert found["sequences"] == len(blocks) and found["positions"] == len(blocks) * (BLOCK // K - 1), found
    return found["brier"]


def of_reference(seed):
    draw = torch.Generator().manual_seed(seed)
    sums = torch.zeros(4, dtype=torch.float64)
    for some in blocks.split(16):
        hidden = reference.hidden(some).reshape(-1, config["hidden_size"])
        noise = torch.rand(SAMPLES, len(hidden), config["noise_size"], generator=draw) - 0.5
        z = reference.generative_head.sample(hidden.expand(SAMPLES, *hidden.shape), noise)
        drawn = torch.stack([reference.ae_model.decode(one[:, None]).argmax(-1).reshape(-1, K) for one in z])
        sums += ref.brier_positions(drawn, some[:, K:].reshape(-1, K)).sum(0)
    return (sums / (len(blocks) * (BLOCK // K - 1))).tolist()


def of_official(seed):
    torch.manual_seed(seed)
    sums = torch.zeros(4, dtype=torch.float64)
    for some in blocks.split(16):
        found = published(input_ids=some, labels=some)
        sums += torch.stack([found.brier1, found.brier2, found.brier3, found.brier4]).double() * len(some)
    return (sums / len(blocks)).tolist()


blocks = packed()
print(f"{len(blocks)} blocks of {BLOCK} tokens, {len(blocks) * (BLOCK // K - 1)} positions; Brier-1 to 4 and BrierLM")
report("program", [of_program(seed) for seed in range(SEEDS)])

sizes = {name: config["calm"]["autoencoder"][name] for name in
         ("hidden_size", "intermediate_size", "num_encoder_layers", "num_decoder_layers")}
shared = {name: config[name] for name in ("vocab_size", "patch_size", "latent_size")}
own = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
       "num_mlp_layers", "noise_size", "rms_norm_eps", "rope_theta")
reference = ref.Calm(ref.CalmConfig(ae=ref.AutoencoderConfig(**shared, **sizes), **{name: config[name] for name in own})).eval()
lacks = reference.load_state_dict(state, strict=False)
assert not lacks.unexpected_keys and all(name.startswith("generative_head.") for name in lacks.missing_keys), lacks  # a second name
report("reference", [of_reference(seed) for seed in range(SEEDS)])

if official:
    sys.path.append(official)
    from models.modeling_energy import EnergyTransformer
    inside = "ae_model."
    coder = {name.removeprefix(inside): tensor for name, tensor in state.items() if name.startswith(inside)}
    table, second = "encoder.embed_tokens.weight", "decoder.lm_head_weight"
    coder[second], state[inside + second] = coder[table].clone(), coder[table].clone()
    kept = ("hidden_act", "mlp_bias", "rms_norm_eps", "bos_token_id", "eos_token_id", "pad_token_id")
    common = {name: config[name] for name in kept}
    paths = {name: os.path.join(os.path.abspath(folder), name) for name in ("autoencoder", "calm")}
    for name, tensors, described in (
            ("autoencoder", coder, {"architectures": ["Autoencoder"], **common, **shared, **sizes}),
            ("calm", state, {key: value for key, value in config.items() if key != "calm"} | {"ae_path": paths["autoencoder"]})):
        os.makedirs(paths[name], exist_ok=True)
        with open(os.path.join(paths[name], "config.json"), "w", encoding="utf-8") as file:
            json.dump(described | {"torch_dtype": "float32"}, file)
        save_file(tensors, os.path.join(paths[name], "model.safetensors"), metadata={"format": "pt"})
    published, told = EnergyTransformer.from_pretrained(paths["calm"], torch_dtype=torch.float32, output_loading_info=True)
    print("official:", {key: names for key, names in told.items() if names} or "all tensors found")
    published.eval()
    report("official", [of_official(seed) for seed in range(SEEDS)])
