#!/usr/bin/env python3
"""load.py CALM MODEL [--streams 1,8,64,512] [--tokens 64] [--short 10000] [--alone 64] [--beside exact:0.05]: starts `CALM serve MODEL` and prints a table of
concurrent streams: tokens per second, time to the first token, memory of the server. Then the same texts with `CALM generate`, one
after another, and many short requests with the server's memory and open descriptors. --beside RULE:T measures the time between two patches of a
stream beside 0, 1 and 8 texts of that rule and temperature. Standard library only; the client needs CPU time too.
"""
import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time

from server import start


def memory(pid):
    """MiB now and at the peak so far."""
    with open(f"/proc/{pid}/status") as file:
        status = file.read()
    return [int(re.search(rf"{name}:\s+(\d+)", status)[1]) / 1024 for name in ("VmRSS", "VmHWM")]


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def request(port, body):
    data = json.dumps(body).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: %d\r\n\r\n" % (port, len(data)) + data


async def stream(port, seed, tokens):
    """Seconds to the first event and to the end, and tokens made."""
    begun = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request(port, {"prompt": "Once upon a time", "max_tokens": tokens, "seed": seed, "stream": True,
                                "stream_options": {"include_usage": True}}))
    text, first = b"", None
    while b"[DONE]" not in text[-64:]:
        part = await reader.read(65536)
        if not part:
            raise RuntimeError(f"the stream broke off: {text[:200]!r}")
        text += part
        if first is None and b"data:" in text:
            first = time.monotonic() - begun
    writer.close()
    if not text.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(text[:200])
    return first, time.monotonic() - begun, int(re.findall(rb'"completion_tokens":(\d+)', text)[-1])


def processor_seconds(pid):
    """Of all threads."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            total += int(file.read().split()[0])
    return total * 1e-9


async def gaps(port, pid, rule, temperature, count):
    """Between two patches of a stream, beside `count` texts that last longer."""
    slow = []
    for seed in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(port, {"prompt": "Once", "max_tokens": 4000, "seed": seed, "stream": True, "ignore_eos": True,
                                    "sampler": rule, "temperature": temperature}))
        slow.append(writer)
    await asyncio.sleep(1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request(port, {"prompt": "Once upon a time", "max_tokens": 200, "seed": 1, "stream": True, "ignore_eos": True, "patches": True,
                                "temperature": 1}))
    times = []
    while b"[DONE]" not in (line := await reader.readline()):
        if line.startswith(b"data: "):
            times.append((time.monotonic(), processor_seconds(pid)))
    for one in (writer, *slow):
        one.close()
    found = [[(after[i] - before[i]) * 1000 for before, after in zip(times, times[1:], strict=False)] for i in range(2)]
    wall, processor = (f"mean {sum(one) / len(one):.1f}, p50 {part(one, 0.5):.1f}, p99 {part(one, 0.99):.1f}, at most {max(one):.1f}" for one in found)
    print(f"{count:>6} beside: {len(times)} patches; ms between two of them {wall}; of the server's processor time {processor}", flush=True)
    await asyncio.sleep(2)


def part(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def measure(port, pid, count, tokens, rounds):
    made, begun = [], time.monotonic()
    for number in range(rounds):
        made += await asyncio.gather(*(stream(port, number * count + i, tokens) for i in range(count)))
    took = time.monotonic() - begun
    first = [m[0] * 1000 for m in made]
    total = sum(m[2] for m in made)
    print(f"{count:>8} {len(made):>6} {total:>8} {total / took:>9.0f} {part(first, 0.5):>9.1f} {part(first, 0.99):>9.1f} "
          f"{part([m[1] * 1000 for m in made], 0.5):>10.0f} {memory(pid)[0]:>8.0f} {memory(pid)[1]:>9.0f}", flush=True)
    return total / took


async def many_short(port, pid, count):
    before = memory(pid)[0], descriptors(pid)
    left = iter(range(count))

    async def worker():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for seed in left:
            writer.write(request(port, {"prompt": "Once", "max_tokens": 1, "seed": seed}))
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(re.search(rb"Content-Length: (\d+)", head)[1]))
        writer.close()
    begun = time.monotonic()
    await asyncio.gather(*(worker() for _ in range(16)))
    took = time.monotonic() - begun
    await asyncio.sleep(0.3)
    print(f"{count} requests of 1 token over 16 connections: {count / took:.0f} per second; memory {before[0]:.1f} MiB before, "
          f"{memory(pid)[0]:.1f} after; descriptors {before[1]} before, {descriptors(pid)} after", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("calm")
    parser.add_argument("model")
    parser.add_argument("--streams", default="1,8,64,512")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--short", type=int, default=10000)
    parser.add_argument("--beside", metavar="RULE:T")
    parser.add_argument("--alone", type=int, default=64, help="runs of generate")
    o = parser.parse_args()
    process, port = start(o.calm, o.model)
    try:
        print(f"{o.model}: {memory(process.pid)[0]:.0f} MiB at the start")
        print(" streams  texts   tokens  tokens/s   first ms              end ms     memory MiB\n"
              "                                      p50       p99        p50      now      peak")
        speed = {}
        for count in map(int, o.streams.split(",") if o.streams else ()):
            speed[count] = asyncio.run(measure(port, process.pid, count, o.tokens, max(1, 64 // count)))
        time.sleep(1)
        print(f"{memory(process.pid)[0]:.0f} MiB one second later")
        if o.beside:
            rule, temperature = o.beside.split(":")
            for count in (0, 1, 8):
                asyncio.run(gaps(port, process.pid, rule, float(temperature), count))
        if o.short:
            asyncio.run(many_short(port, process.pid, o.short))
    finally:
        process.terminate()
        process.wait(60)
    if o.alone:
        total, begun = 0, time.monotonic()
        line = json.dumps({"id": 1, "prompt": "Once upon a time"})
        for seed in range(o.alone):
            made = subprocess.run([o.calm, "generate", o.model, "--jsonl", "-", "--max-tokens", str(o.tokens), "--temperature", "1",
                                   "--seed", str(seed)], input=line, capture_output=True, text=True, check=True)
            total += json.loads(made.stdout)["tokens"]
        took = time.monotonic() - begun
        print(f"{o.alone} runs of generate one after another: {total} tokens, {total / took:.0f} tokens/s"
              + (f"; {o.alone} streams are {speed[o.alone] / (total / took):.1f} times as fast" if o.alone in speed else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
