"""Writes the numerical fixtures: python make_fixtures.py --out DIR [--seed S] [--variant NAME]

One .safetensors file per case. Inputs and parameters are drawn in fp32; everything is computed in fp64 and rounded to
fp32, so results are exact to single precision. Tensor names: `in/...` for inputs and noise, `param/...` for parameters
under their checkpoint names, `out/...` for results, `grad/...` for gradients of the case's scalar (or of
sum(out * in/cotangent)). Sizes and constants are JSON in the file's metadata under "config".
"""
import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import save_file

import calm_reference as ref

VARIANTS = {
    "base": dict(V=97, K=4, D=32, I=80, L=16, layers=2, heads=4, kv=2, D2=48, I2=96, blocks=3, noise=16, N=5, M=7, B=2, P=6),
    "two": dict(V=101, K=2, D=24, I=40, L=8, layers=4, heads=3, kv=3, D2=36, I2=56, blocks=2, noise=12, N=3, M=11, B=3, P=5),
}


class Case:
    def __init__(self, out: Path, name: str, config: dict, about: str):
        self.path, self.tensors = out / f"{name}.safetensors", {}
        self.meta = {"config": json.dumps(config), "about": about}

    def put(self, group: str, **tensors):
        for key, t in tensors.items():
            if torch.is_floating_point(t):
                t = t.to(torch.float32)
            elif t.dtype == torch.bool:
                t = t.to(torch.uint8)
            self.tensors[f"{group}/{key.replace('__', '.')}"] = t.detach().contiguous().clone()

    def params(self, module, grads=True):
        for n, p in module.named_parameters():
            self.tensors[f"param/{n}"] = p.detach().float().contiguous().clone()
            if grads and p.grad is not None:
                self.tensors[f"grad/{n}"] = p.grad.float().contiguous().clone()

    def close(self):
        save_file(self.tensors, str(self.path), metadata=self.meta)


def scatter(module, scale=0.2):
    """Sets random parameters: no layer is all zeros and no norm all ones. Values are exact in fp32, stored in fp64."""
    for n, p in module.named_parameters():
        fan = p.shape[-1] if p.dim() > 1 else 1
        base = p.data if p.dim() == 1 else torch.randn_like(p) / math.sqrt(fan)
        p.data = (base + scale * torch.randn_like(p) * (1 if p.dim() == 1 else 0)).float().double()
    return module.double()


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float32).double()


def uniform(*shape):
    return torch.rand(*shape, dtype=torch.float32).double()


def autoencoder_config(v):
    return ref.AutoencoderConfig(vocab_size=v["V"], patch_size=v["K"], hidden_size=v["D"], intermediate_size=v["I"],
                               num_encoder_layers=v["layers"], num_decoder_layers=2, latent_size=v["L"])


def calm_config(v, head="energy"):
    return ref.CalmConfig(ae=autoencoder_config(v), head=head, vocab_size=v["V"], hidden_size=v["D2"], intermediate_size=v["I2"],
                        num_hidden_layers=2, num_attention_heads=v["heads"], num_key_value_heads=v["kv"], num_mlp_layers=v["blocks"],
                        noise_size=v["noise"], num_samples=v["N"], num_target_samples=v["M"])


def autoencoder(out, v):
    c = autoencoder_config(v)
    ae = scatter(ref.Autoencoder(c))
    R = v["B"] * v["P"]
    tokens = torch.randint(0, c.vocab_size, (R, c.patch_size))
    eps, keep_token = draw(R, 1, c.latent_size), uniform(R, c.patch_size) > c.dropout
    keep_latent = uniform(R, 1, c.latent_size) > c.dropout
    case = Case(out, "autoencoder", asdict(c), "posterior, decode, and the training loss with its gradients for given noise and masks")
    mean, log_std = ae.posterior(tokens)
    z = draw(R, 1, c.latent_size)
    case.put("in", tokens=tokens, eps=eps, keep_token=keep_token, keep_latent=keep_latent, z=z)
    logits = ae.decode(z)
    case.put("out", mean=mean, log_std=log_std, decoded_logits=logits, decoded_tokens=logits.argmax(-1))
    r = ae.training_loss(tokens, eps, keep_token, keep_latent)
    r["loss"].backward()
    case.put("out", loss=r["loss"], cross_entropy=r["cross_entropy"], kl=r["kl"], train_z=r["z"], train_logits=r["logits"])
    case.params(ae)
    case.close()


def backbone(out, v):
    c = calm_config(v)
    m = scatter(ref.Calm(c))
    tokens = torch.randint(0, c.vocab_size, (v["B"], v["P"] * c.patch_size))
    embedded = m.embed(tokens)
    hidden, caches = m.transformer(embedded)
    g = draw(*hidden.shape)
    (hidden * g).sum().backward()
    case = Case(out, "backbone", asdict(c), "patch embedding and Llama stack; gradients of sum(hidden * cotangent); grouped KV heads")
    case.put("in", tokens=tokens, cotangent=g)
    case.put("out", embedded=embedded, hidden=hidden, keys_layer0=caches[0][0], values_layer0=caches[0][1])
    for part in ("transformer", "embed_proj"):
        for n, p in getattr(m, part).named_parameters():
            case.put("param", **{f"{part}__{n}".replace(".", "__"): p})
            case.put("grad", **{f"{part}__{n}".replace(".", "__"): p.grad})
    case.close()


def heads(out, v):
    for head in ("energy", "flow", "diffusion"):
        c = calm_config(v, head)
        R, L, D = 9, c.ae.latent_size, c.hidden_size
        h = draw(R, D).requires_grad_()
        if head == "energy":
            m = scatter(ref.EnergyHead(c))
            noise, g = uniform(c.num_samples, R, c.noise_size) - 0.5, draw(c.num_samples, R, L)
            x = m.sample(h.expand(c.num_samples, R, D), noise)
            (x * g).sum().backward()
            case = Case(out, "head_energy", asdict(c), "samples x [N, R, L] of hidden [R, D] and noise; gradients of sum(x * cotangent)")
            case.put("in", hidden=h, noise=noise, cotangent=g)
            case.put("out", samples=x)
        else:
            m = scatter((ref.FlowHead if head == "flow" else ref.DiffusionHead)(c))
            target, x0 = draw(R, L), draw(R, L)
            case = Case(out, f"head_{head}", asdict(c), "loss of every row and gradients of its sum; one sample a row from given noise")
            if head == "flow":
                t = uniform(R)
                rows = m.loss(target, h, t, x0)
                with torch.no_grad():
                    case.put("in", start=x0, t=t)
                    case.put("out", midpoint_10=m.sample(h, x0, 10), midpoint_4=m.sample(h, x0, 4))
                    x = x0.clone()
                    for i in range(20):
                        x = x + m.velocity(x, torch.full((R,), i / 20, dtype=torch.float32), h) / 20
                    case.put("out", euler_20=x)
            else:
                m.train_process.dtype = m.sample_process.dtype = torch.float64
                t = torch.tensor([0, 1, 2, 10, 100, 500, 900, 998, 999][:R])
                rows = m.loss(target, h, t, x0)
                noises = draw(100, R, L)
                with torch.no_grad():
                    case.put("in", eps=x0, t=t, noises=noises)
                    case.put("out", sampled=m.sample(h, x0, noises), sampled_cool=m.sample(h, x0, noises, 0.5))
            rows.sum().backward()
            case.put("in", hidden=h, target=target)
            case.put("out", loss=rows)
        case.put("grad", hidden=h.grad)
        case.params(m)
        case.close()


def energy_score(out, v):
    N, M, L, R = v["N"], v["M"], v["L"], 11
    case = Case(out, "energy_score", dict(N=N, M=M, L=L, R=R, betas=[0.5, 1.0, 1.5, 1.9]),
                "score of every position and gradient of the loss -mean(score); position 0: all samples equal, position 1: one pair equal")
    x = draw(N, R, L)
    x[:, 0] = x[0, 0]
    x[1, 1] = x[0, 1]
    mean, log_std, eps = draw(R, L), (draw(R, L) * 0.3 - 1).float().double(), draw(M, R, L)
    case.put("in", samples=x, mean=mean, log_std=log_std, eps=eps)
    for beta in (0.5, 1.0, 1.5, 1.9):
        y = x.clone().requires_grad_()
        s = ref.energy_score(y, mean, log_std, eps, beta)
        (-s.mean()).backward()
        case.put("out", **{f"score_{beta}": s})
        case.put("grad", **{f"samples_{beta}": y.grad})
    case.close()


def vocabulary(out, v):
    R, D, V = 13, v["D"], 1031
    x, e, t = draw(R, D).requires_grad_(), draw(V, D), torch.randint(0, V, (R,))
    e[700] = e[40]
    e[900] = e[40]
    x.data[3] = e[40]                                               # a three-way tie: the lowest index wins
    e.requires_grad_()
    loss = torch.nn.functional.cross_entropy(x @ e.T, t)
    loss.backward()
    case = Case(out, "vocabulary", dict(R=R, D=D, V=V), "tied projection, mean cross-entropy, argmax with ties to the lowest index (row 3)")
    case.put("in", x=x, embedding=e, targets=t)
    lowest = torch.tensor([int((row == row.max()).nonzero()[0]) for row in (x @ e.T).detach()])
    case.put("out", loss=loss, argmax=lowest)
    case.put("grad", x=x.grad, embedding=e.grad)
    case.close()


def whole_model(out, v):
    c = calm_config(v)
    m = scatter(ref.Calm(c))
    K, R = c.patch_size, v["B"] * (v["P"] - 1)
    tokens = torch.randint(0, c.vocab_size, (v["B"], v["P"] * K))
    noise, eps = uniform(c.num_samples, R, c.noise_size) - 0.5, draw(c.num_target_samples, R, c.ae.latent_size)
    loss = m.energy_loss(tokens, noise, eps)
    loss.backward()
    case = Case(out, "calm", asdict(c), "energy loss of a whole model and the gradient of every trained parameter")
    case.put("in", tokens=tokens, noise=noise, eps=eps)
    with torch.no_grad():
        x = m.generative_head.sample(m.hidden(tokens).reshape(R, -1).expand(c.num_samples, R, -1), noise)
        patches = m.ae_model.decode(x).argmax(-1).reshape(c.num_samples, R, K)
    case.put("out", loss=loss, samples=x, decoded=patches)
    case.params(m)
    case.close()


def generation(out, v):
    c = calm_config(v)
    m = scatter(ref.Calm(c))
    for block in m.generative_head.mlp_blocks:                      # let the context, not the noise, decide the tokens
        block.down_proj.weight.data *= 8
        block.linears[0].weight.data[:, c.hidden_size:] *= 2
    K, steps, pad = c.patch_size, 6, v["V"] - 1
    noises = uniform(steps, c.noise_size) - 0.5
    case = Case(out, "generate", asdict(c) | dict(pad=pad), "new tokens for given noise: prompts padded on the left and on the right, T = 1")
    case.put("in", noises=noises)
    case.params(m)
    for length in sorted({1, K, 2 * K + 1, 3 * K - 1, 17}):
        prompt = torch.randint(0, c.vocab_size - 1, (length,))
        case.put("in", **{f"prompt_{length}": prompt})
        for side in ("left", "right"):
            got = ref.generate(m, prompt.tolist(), noises, pad, side == "left")
            case.put("out", **{f"{side}_{length}": torch.tensor(got)})
    case.close()


def training(out, v):
    """Ten optimizer steps of each stage: AdamW, weight decay on matrices only, clipping, warm-up."""
    steps, warmup, lr = 10, 4, 3e-3
    recipe = dict(steps=steps, warmup=warmup, lr=lr, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1, clip=0.5,
                  schedule="lr * min(1, (step + 1) / warmup), step from 0", decayed="weights of Linear and Embedding")
    for stage in ("autoencoder", "calm"):
        c = calm_config(v)
        m = scatter(ref.Calm(c))
        model = m.ae_model if stage == "autoencoder" else m
        model.requires_grad_(True)
        if stage == "calm":
            m.ae_model.requires_grad_(False)
        K, L = c.patch_size, c.ae.latent_size
        case = Case(out, f"train_{stage}", (asdict(c.ae) if stage == "autoencoder" else asdict(c)) | recipe,
                    "ten steps from given parameters, batches and noise (leading dimension: step); losses, gradient norms before clipping, final parameters")
        case.params(model, grads=False)
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        decay = [p for n, p in named if p.dim() > 1]
        plain = [p for n, p in named if p.dim() == 1]
        opt = torch.optim.AdamW([dict(params=decay, weight_decay=0.1), dict(params=plain, weight_decay=0.0)],
                                lr=lr, betas=(0.9, 0.95), eps=1e-8)
        if stage == "autoencoder":
            R = 8
            data = dict(tokens=torch.randint(0, v["V"], (steps, R, K)), eps=draw(steps, R, 1, L),
                        keep_token=uniform(steps, R, K) > 0.15, keep_latent=uniform(steps, R, 1, L) > 0.15)
        else:
            R = v["B"] * (v["P"] - 1)
            data = dict(tokens=torch.randint(0, v["V"], (steps, v["B"], v["P"] * K)),
                        noise=uniform(steps, c.num_samples, R, c.noise_size) - 0.5, eps=draw(steps, c.num_target_samples, R, L))
        case.put("in", **data)
        losses, norms = [], []
        for i in range(steps):
            for group in opt.param_groups:
                group["lr"] = lr * min(1.0, (i + 1) / warmup)
            step = {k: t[i] for k, t in data.items()}
            opt.zero_grad()
            loss = model.training_loss(**step)["loss"] if stage == "autoencoder" else m.energy_loss(**step)
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_([p for _, p in named], 0.5))
            losses.append(loss.detach())
            opt.step()
        case.put("out", losses=torch.stack(losses), grad_norms=torch.stack(norms))
        for n, p in named:
            case.put("out", **{f"param__{n}".replace(".", "__"): p})
        case.close()


def brier(out, v):
    S, R, N, K, V = 6, 40, 8, max(4, v["K"]), 3
    target = torch.randint(0, V, (S, R, K))
    samples = torch.where(uniform(N, S, R, K) < 0.6, target, torch.randint(0, V, (N, S, R, K)))
    case = Case(out, "brier", dict(S=S, R=R, N=N, K=K), "N samples of R positions in S sequences -> per-position Brier-1..4 (all pairs), means, "
                "BrierLM, jackknife standard errors over sequences; the same from samples 0 and 1 only")
    case.put("in", target=target, samples=samples)
    for name, use in (("all", samples), ("two", samples[:2])):
        pos = torch.stack([ref.brier_positions(use[:, s], target[s]) for s in range(S)])
        r = ref.brier_report(pos)
        case.put("out", **{f"{name}_positions": pos, f"{name}_brier": torch.tensor(r["brier"]), f"{name}_brier_se": torch.tensor(r["brier_se"]),
                           f"{name}_brier_lm": torch.tensor([r["brier_lm"], r["brier_lm_se"]])})
    case.close()


def autoregressive(out, v):
    c = calm_config(v)
    m = scatter(ref.Autoregressive(c))
    tokens = torch.randint(0, c.vocab_size, (v["B"], 17))
    loss = m.loss(tokens)
    loss.backward()
    case = Case(out, "autoregressive", asdict(c), "Llama language model on tokens: logits, mean cross-entropy of the next token, gradients")
    case.put("in", tokens=tokens)
    case.put("out", logits=m.logits(tokens), loss=loss)
    case.params(m)
    case.close()


def patch_level(out, v):
    c, K = calm_config(v), 4
    m = scatter(ref.Autoregressive(c))
    tokens = torch.randint(0, c.vocab_size, (v["B"], 5 * K))
    loss = m.patch_level_loss(tokens, K)
    loss.backward()
    case = Case(out, "patch_level", asdict(c), "patch-level training of the Llama language model: K = 4 whatever the configuration's, loss of phase 1, gradients")
    case.put("in", tokens=tokens)
    case.put("out", loss=loss)
    case.params(m)
    case.close()


def sampler(out, v):
    """Pools with the exact distribution of the chosen patch; small distributions at several temperatures."""
    pools = [{"A": 3, "B": 2}, {"A": 1, "B": 1, "C": 1}, {"A": 5}, {"A": 4, "B": 4, "C": 1}, {"A": 2, "B": 2, "C": 2, "D": 194},
             {"A": 60, "B": 50, "C": 40, "D": 30, "E": 20}, {"A": 1, "B": 199}]
    batch = [dict(counts=p, n=n, probability=ref.batch_choice(p, n)) for p in pools for n in (1, 2, 3, 5)]
    dists = [[0.5, 0.5], [0.7, 0.2, 0.1], [0.97, 0.01, 0.01, 0.01], [0.25] * 4, [0.4, 0.3, 0.15, 0.1, 0.05]]
    exact = []
    for p in dists:
        for T in (1.0, 0.9, 2 / 3, 0.5, 0.4, 1 / 3, 0.3, 0.25):
            n = math.floor(1 / T + 1e-12)
            a = max(0.0, 1 / T - n)
            a = 0.0 if a < 1e-12 else a
            z = sum(q ** (1 / T) for q in p)
            draws = (n + (sum(q ** (1 / T - 1) for q in p) if a > 0 else 0.0)) / z
            exact.append(dict(p=p, T=T, probability=ref.exact_temperature(p, T), expected_draws=draws))
    (out.parent / "sampler.json").write_text(json.dumps(dict(batch=batch, exact=exact), indent=1) + "\n")


def checkpoints(out, v):
    """Directories in the published layouts with small weights, and the results of a model loaded from them."""
    c = calm_config(v)
    m = scatter(ref.Calm(c)).float()
    common = dict(hidden_act="silu", initializer_range=0.02, max_position_embeddings=2048, mlp_bias=False, pretraining_tp=1,
                  rms_norm_eps=1e-6, tie_word_embeddings=False, torch_dtype="float32", vocab_size=v["V"], patch_size=v["K"],
                  latent_size=v["L"], bos_token_id=1, eos_token_id=2, pad_token_id=v["V"] - 1)
    ae_json = dict(architectures=["Autoencoder"], ae_dropout=0.15, kl_clamp=0.5, kl_weight=0.001, hidden_size=v["D"],
                   intermediate_size=v["I"], num_encoder_layers=v["layers"], num_decoder_layers=2, **common)
    calm_json = dict(architectures=["EnergyTransformer"], model_type="energy", ae_path="../autoencoder", attention_bias=False,
                     attention_dropout=0.0, beta=1.0, noise_size=v["noise"], num_samples=v["N"], num_mlp_layers=v["blocks"],
                     hidden_size=v["D2"], intermediate_size=v["I2"], num_hidden_layers=2, num_attention_heads=v["heads"],
                     num_key_value_heads=v["kv"], rope_scaling=None, rope_theta=10000.0, use_cache=True, **common)
    root = out / "checkpoints"
    for d in ("autoencoder", "calm", "calm_sharded", "calm_bin", "calm_bf16"):
        (root / d).mkdir(parents=True, exist_ok=True)
    write = lambda d, config: (root / d / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    state = {k: t.contiguous() for k, t in m.state_dict().items()}
    ae_state = {k[len("ae_model."):]: t for k, t in state.items() if k.startswith("ae_model.")}
    single = {k: t for k, t in state.items() if not k.startswith("generative_head.")}         # store the head only once
    meta = {"format": "pt"}
    write("autoencoder", ae_json)
    save_file(ae_state, str(root / "autoencoder" / "model.safetensors"), metadata=meta)
    for d in ("calm", "calm_sharded", "calm_bin"):
        write(d, calm_json)
    save_file(single, str(root / "calm" / "model.safetensors"), metadata=meta)
    names = sorted(single)
    files = [f"model-{i + 1:05d}-of-00003.safetensors" for i in range(3)]
    where = {n: files[i * 3 // len(names)] for i, n in enumerate(names)}
    for f in files:
        save_file({n: single[n] for n in names if where[n] == f}, str(root / "calm_sharded" / f), metadata=meta)
    total = sum(t.numel() * 4 for t in single.values())
    (root / "calm_sharded" / "model.safetensors.index.json").write_text(
        json.dumps(dict(metadata=dict(total_size=total), weight_map=where), indent=2) + "\n")
    both = dict(m.state_dict())                                     # as published: shared tensors under both names
    both["ae_model.decoder.lm_head_weight"] = both["ae_model.encoder.embed_tokens.weight"]
    torch.save(both, root / "calm_bin" / "pytorch_model.bin")
    write("calm_bf16", calm_json | dict(torch_dtype="bfloat16"))
    save_file({k: t.bfloat16() for k, t in single.items()}, str(root / "calm_bf16" / "model.safetensors"), metadata=meta)
    tokens = torch.randint(0, v["V"], (2, 3 * v["K"]))
    case = Case(root, "expected", asdict(c), "what a model loaded from any of the directories computes (calm_bf16: from its rounded weights)")
    case.put("in", tokens=tokens)
    for name, model in (("", m.double()), ("bf16_", m.bfloat16().double())):
        mean, log_std = model.ae_model.posterior(tokens)
        case.put("out", **{f"{name}hidden": model.hidden(tokens), f"{name}mean": mean, f"{name}log_std": log_std})
    case.close()


if __name__ == "__main__":
    a = argparse.ArgumentParser()
    a.add_argument("--out", type=Path, required=True)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--variant", choices=VARIANTS, default=None, help="default: all")
    a = a.parse_args()
    torch.set_num_threads(1)
    for name in [a.variant] if a.variant else VARIANTS:
        out = a.out / name
        out.mkdir(parents=True, exist_ok=True)
        for i, make in enumerate((autoencoder, backbone, heads, energy_score, vocabulary, whole_model, generation, training, brier,
                                  autoregressive, sampler, checkpoints, patch_level)):
            torch.manual_seed(1000 * a.seed + i)
            torch.set_default_dtype(torch.float32)
            make(out, VARIANTS[name])
            print(name, make.__name__)
