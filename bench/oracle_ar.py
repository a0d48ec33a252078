#!/usr/bin/env python3
"""A training step of the oracle's autoregressive model, in the shape of its bench.py, which has none: forward, backward,
clipping and AdamW on one batch of random tokens; the median of the repeats after two warm-up runs.

bench/oracle_ar.py [--config tiny text small] [--threads 2] [--repeats 15] [--compile]

Environment: CALM_ORACLE, the folder of calm_oracle.py (../shared/oracle beside the checkout). Needs torch.
"""
import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, os.environ.get("CALM_ORACLE", str(ROOT.parent / "shared" / "oracle")))

import torch  # noqa: E402
import calm_oracle as O  # noqa: E402

SEQUENCES, TOKENS = 4, 256  # as bench/configurations.hpp


def step(name: str, compiled: bool):
    c = json.loads((Path(O.__file__).parent / "configs.json").read_text())[name]
    c = O.CalmConfig(ae=O.AutoencoderConfig(**c["autoencoder"]), **c["calm"])
    m = O.Autoregressive(c)
    for p in m.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, 0.0, 0.02)
    opt = torch.optim.AdamW(m.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(0, c.vocab_size, (SEQUENCES, TOKENS))
    loss_of = torch.compile(m.loss) if compiled else m.loss

    def run():
        loss = loss_of(tokens)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
    return run


def main() -> None:
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--config", nargs="+", default=["tiny"], choices=["tiny", "text", "small"])
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--repeats", type=int, default=15)
    a.add_argument("--compile", action="store_true")
    a = a.parse_args()
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    for name in a.config:
        run = step(name, a.compile)
        times = []
        for _ in range(a.repeats + 2):
            t = time.perf_counter()
            run()
            times.append(time.perf_counter() - t)
        s = statistics.median(times[2:])
        print(json.dumps({"config": name, "work": "ar_step", "threads": a.threads, "compile": a.compile,
                          "seconds": round(s, 6), "tokens": SEQUENCES * TOKENS,
                          "tokens_per_s": round(SEQUENCES * TOKENS / s, 1), "torch": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()
