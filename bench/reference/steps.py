#!/usr/bin/env python3
"""Measures training steps of the PyTorch reference repeatedly in one process, which builds and compiles them once.

bench/reference/steps.py [--config tiny|text|small] [--work autoencoder_step calm_step ar_step] [--threads 2] [--repeats 15]
                         [--compile]

Prints "ready" after two warm-up runs of each step. Then, for each line of standard input, prints one JSON object per
work, with the median of its repeats. The steps are those of bench.py and additionally ar_step: the autoregressive model
of the same shape, with forward, backward, clipping and AdamW on one batch of random tokens. Everything is fp32.

Needs torch.
"""
import argparse
import json
import statistics
import sys
import time

import torch

import bench
import calm_reference as ref

SEQUENCES, TOKENS = 4, 256  # batch of ar_step, as in bench/configurations.hpp


def step_ar(c, batch, dev, args):
    m = ref.Autoregressive(c)
    for p in m.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, 0.0, 0.02)
    opt = torch.optim.AdamW(m.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(0, c.vocab_size, (SEQUENCES, TOKENS))
    loss_of = torch.compile(m.loss) if args.compile else m.loss

    def run():
        loss = loss_of(tokens)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
    return run, SEQUENCES * TOKENS


STEPS = {name: bench.WORK[name] for name in ("autoencoder_step", "calm_step")} | {"ar_step": step_ar}


def seconds(run) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def main() -> None:
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--config", default="tiny", choices=["tiny", "text", "small"])
    a.add_argument("--work", nargs="+", default=list(STEPS), choices=STEPS)
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--repeats", type=int, default=15)
    a.add_argument("--compile", action="store_true")
    a.set_defaults(dtype="fp32")  # read by bench.py
    a = a.parse_args()
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    config, batch = bench.build(a.config)
    built = {}
    for work in a.work:
        torch.manual_seed(1)
        built[work] = run, _ = STEPS[work](config, batch, torch.device("cpu"), a)
        for _ in range(2):
            run()
    print("ready", flush=True)
    for _ in sys.stdin:
        for work, (run, tokens) in built.items():
            s = statistics.median(seconds(run) for _ in range(a.repeats))
            print(json.dumps({"config": a.config, "work": work, "threads": a.threads, "compile": a.compile, "seconds": round(s, 6),
                              "tokens": tokens, "tokens_per_s": round(tokens / s, 1), "torch": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()
