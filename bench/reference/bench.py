"""Measures the speed of the PyTorch reference and prints one JSON object per line.

python bench.py [--config tiny small ...] [--work autoencoder_step calm_step generate generate_half energy_score]
                [--device cpu|cuda] [--dtype fp32|bf16] [--threads N] [--compile] [--repeats R]

A step is forward, backward, clipping and AdamW on a batch of the configuration in configs.json, including drawing the
noise. `generate`: one sequence, T = 1, KV cache. `generate_half`: T = 1/2 from a pool of 200, as published. Seconds are
medians after two warm-up runs; on CUDA every run ends with a synchronisation. Compare only with measurements made
on the same machine within the same minutes.
"""
import argparse
import json
import statistics
import time
from collections import Counter
from pathlib import Path

import torch

import calm_reference as ref

CONFIGS = json.loads((Path(__file__).parent / "configs.json").read_text())


def build(name: str) -> tuple[ref.CalmConfig, dict]:
    c = CONFIGS[name]
    return ref.CalmConfig(ae=ref.AutoencoderConfig(**c["autoencoder"]), **c["calm"]), c["batch"]


def step_autoencoder(c, batch, dev, args):
    ae = ref.initialise(ref.Autoencoder(c.ae)).to(dev)
    opt = torch.optim.AdamW(ae.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    R, K, L = batch["autoencoder_tokens"] // c.patch_size, c.patch_size, c.ae.latent_size
    tokens = torch.randint(0, c.vocab_size, (R, K), device=dev)
    loss_of = torch.compile(ae.training_loss) if args.compile else ae.training_loss

    def run():
        with torch.autocast(dev.type, torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = loss_of(tokens, torch.randn(R, 1, L, device=dev), torch.rand(R, K, device=dev) > 0.15,
                           torch.rand(R, 1, L, device=dev) > 0.15)["loss"]
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(ae.parameters(), 1.0)
        opt.step()
    return run, R * K


def step_calm(c, batch, dev, args):
    m = ref.initialise(ref.Calm(c)).to(dev)
    params = [p for p in m.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    B, P, K = batch["sequences"], batch["patches"], c.patch_size
    R = B * (P - 1)
    tokens = torch.randint(0, c.vocab_size, (B, P * K), device=dev)
    loss_of = torch.compile(m.energy_loss) if args.compile else m.energy_loss

    def run():
        with torch.autocast(dev.type, torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = loss_of(tokens, torch.rand(c.num_samples, R, c.noise_size, device=dev) - 0.5,
                           torch.randn(c.num_target_samples, R, c.ae.latent_size, device=dev))
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
    return run, B * P * K


@torch.no_grad()
def generation(c, batch, dev, args, pool: int):
    m = ref.initialise(ref.Calm(c)).to(dev).eval()
    if args.dtype == "bf16":
        m = m.bfloat16()
    K, steps = c.patch_size, batch["generated_patches"]
    prompt = torch.randint(0, c.vocab_size, (1, 16 * K), device=dev)

    @torch.no_grad()
    def run():
        hidden, caches = m.transformer(m.embed(prompt))
        for _ in range(steps):
            h = hidden[:, -1].expand(pool, -1)
            z = m.generative_head.sample(h, torch.rand(pool, c.noise_size, device=dev).to(h) - 0.5)
            patches = m.ae_model.decode(z[None]).argmax(-1).reshape(pool, K)
            patch = patches[:1]
            if pool > 1:
                odds = ref.batch_choice(Counter(map(tuple, patches.tolist())), 2)
                patch = torch.tensor([max(odds, key=odds.get)], device=dev)
            hidden, caches = m.transformer(m.embed(patch), caches)
    return run, steps * K


def score(c, batch, dev, args):
    R, N, M, L = batch["sequences"] * (batch["patches"] - 1), c.num_samples, c.num_target_samples, c.ae.latent_size
    x = torch.randn(N, R, L, device=dev, requires_grad=True)
    mean, log_std = torch.randn(R, L, device=dev), torch.randn(R, L, device=dev) * 0.1 - 1
    fn = torch.compile(ref.energy_score) if args.compile else ref.energy_score

    def run():
        x.grad = None
        (-fn(x, mean, log_std, torch.randn(M, R, L, device=dev), c.beta).mean()).backward()
    return run, R * N * (N - 1 + M)                                  # distances


WORK = {"autoencoder_step": step_autoencoder, "calm_step": step_calm, "energy_score": score,
        "generate": lambda *a: generation(*a, pool=1), "generate_half": lambda *a: generation(*a, pool=200)}

if __name__ == "__main__":
    a = argparse.ArgumentParser()
    a.add_argument("--config", nargs="+", default=["tiny", "small"], choices=CONFIGS)
    a.add_argument("--work", nargs="+", default=list(WORK), choices=WORK)
    a.add_argument("--device", default="cpu")
    a.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--repeats", type=int, default=5)
    a.add_argument("--compile", action="store_true")
    a = a.parse_args()
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    dev = torch.device(a.device)
    wait = torch.cuda.synchronize if dev.type == "cuda" else lambda: None
    for name in a.config:
        c, batch = build(name)
        for work in a.work:
            torch.manual_seed(1)
            run, units = WORK[work](c, batch, dev, a)
            times = []
            for i in range(a.repeats + 2):
                t = time.perf_counter()
                run()
                wait()
                times.append(time.perf_counter() - t)
            s = statistics.median(times[2:])
            unit = "distances" if work == "energy_score" else "tokens"
            r = dict(config=name, work=work, device=a.device, dtype=a.dtype, threads=a.threads, compile=a.compile, seconds=round(s, 6))
            r[unit], r[f"{unit}_per_s"], r["torch"] = units, round(units / s, 1), torch.__version__
            if dev.type == "cuda":
                r["peak_GiB"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
            print(json.dumps(r), flush=True)
