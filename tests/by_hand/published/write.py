"""write.py SIZE FOLDER [TOKENIZER]: writes FOLDER/CALM-SIZE and FOLDER/CALM-Autoencoder in the layout of the published models.
SIZE is M, L or XL, with zero weights that take no disk space (the number of heads of L and XL is a guess), or small: few and
narrow layers with random weights, and the tokenizer, Llama 3's tokenizer.model, next to config.json."""
import json
import os
import shutil
import struct
import sys

SIZES = {"M": (1024, 2752, 16, 16, 4), "L": (1536, 4096, 16, 16, 4), "XL": (2560, 6880, 16, 20, 4), "small": (64, 128, 2, 4, 2)}
AE = {"small": (32, 64)}
V, K, L, NOISE = 128257, 4, 128, 64

size, folder = sys.argv[1:3]
D, inner, layers, heads, blocks = SIZES[size]
A, ae_inner = AE.get(size, (512, 1280))


def linear(name, rows, columns):
    return {name + ".weight": [rows, columns], name + ".bias": [rows]}


def norm(name, width):
    return {name + ".weight": [width], name + ".bias": [width]}


def swiglu(name, width, hidden):
    return {name + ".gate_proj.weight": [hidden, width], name + ".up_proj.weight": [hidden, width],
            name + ".down_proj.weight": [width, hidden]}


def autoencoder():
    all = {"encoder.embed_tokens.weight": [V, A], "encoder.norm.weight": [A], "decoder.norm.weight": [A]}
    for part in ("encoder", "decoder"):
        for i in range(2):
            all[f"{part}.{part}_layers.{i}.layernorm.weight"] = [A]
            all |= swiglu(f"{part}.{part}_layers.{i}.mlp", A, ae_inner)
    return all | linear("encoder.squeeze_layer", A, K * A) | linear("encoder.hidden_to_latent", 2 * L, A) | \
        linear("decoder.latent_to_hidden", A, L) | linear("decoder.expand_layer", K * A, A)


def calm():
    all = {"transformer.embed_tokens.weight": [V, D], "transformer.norm.weight": [D]}
    for i in range(layers):
        block = f"transformer.layers.{i}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            all[f"{block}.{name}.weight"] = [D]
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            all[f"{block}.self_attn.{name}.weight"] = [D, D]
        all |= swiglu(f"{block}.mlp", D, inner)
    all |= linear("embed_proj.0", 2 * D, K * D) | linear("embed_proj.2", D, 2 * D) | norm("embed_proj.3", D)
    head = "mlp_generator"
    all |= linear(head + ".noise_embd", D, NOISE) | linear(head + ".hidden_embd", D, D)
    all |= norm(head + ".norm_noise", D) | norm(head + ".norm_hidden", D)
    for i in range(blocks):
        one = f"{head}.mlp_blocks.{i}"
        all |= norm(one + ".in_ln", D) | linear(one + ".linears.0", D, 2 * D) | linear(one + ".linears.2", D, D)
        all |= linear(one + ".linears.4", 2 * D, D) | linear(one + ".down_proj", D, D)
    last = head + ".final_layer"
    return all | norm(last + ".in_ln", D) | linear(last + ".linears.0", D, D) | linear(last + ".linears.2", L, D)


def config(architecture, **more):
    return {"architectures": [architecture], "bos_token_id": 128000, "eos_token_id": 128001, "pad_token_id": 128256,
            "hidden_act": "silu", "initializer_range": 0.02, "max_position_embeddings": 8192, "mlp_bias": False,
            "pretraining_tp": 1, "rms_norm_eps": 1e-06, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
            "transformers_version": "4.43.0", "vocab_size": V, "patch_size": K, "latent_size": L} | more


def write(name, settings, tensors):
    path = os.path.join(folder, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    with open(os.path.join(path, "config.json"), "w") as file:
        json.dump(settings, file, indent=2, sort_keys=True)
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for tensor, shape in tensors.items():
        end = at + 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)
        header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(path, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(file.tell() + at)
        if size == "small":
            for tensor, shape in tensors.items():
                count = shape[0] * (shape[1] if len(shape) == 2 else 1)
                drawn = bytearray(os.urandom(2 * count))  # bf16: the second byte has the sign and most of the exponent
                drawn[1::2] = bytes(0x3d | byte & 0x80 for byte in drawn[1::2]) if len(shape) == 2 else b"\x3f" * count
                file.write(drawn)
    if len(sys.argv) > 3:
        shutil.copy(sys.argv[3], os.path.join(path, "tokenizer.model"))
    parameters = sum(shape[0] * (shape[1] if len(shape) == 2 else 1) for shape in tensors.values())
    print(f"{path}: {len(tensors)} tensors, {parameters:,} parameters")


write(f"CALM-{size}", config("EnergyTransformer", model_type="energy", ae_path="/home/someone/checkpoints/autoencoder",
                             attention_bias=False, attention_dropout=0.0, beta=1.0, hidden_size=D, intermediate_size=inner,
                             noise_size=NOISE, num_attention_heads=heads, num_hidden_layers=layers,
                             num_key_value_heads=heads, num_mlp_layers=blocks, num_samples=8, rope_scaling=None,
                             rope_theta=10000.0, use_cache=True), calm())
write("CALM-Autoencoder", config("Autoencoder", ae_dropout=0.15, hidden_size=A, intermediate_size=ae_inner, kl_clamp=0.5,
                                 kl_weight=0.001, num_decoder_layers=2, num_encoder_layers=2), autoencoder())
