#!/usr/bin/env python3
"""openai_client.py CALM MODEL [--requests N] [--compared N]: starts `CALM serve MODEL` and checks it with the unmodified `openai` client,
with raw sockets, and against `CALM generate`. MODEL is a CALM or an autoregressive model. Prints one line per check; the exit status is
1 if a check fails. Needs the package `openai`.
"""
import argparse
import asyncio
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import time

import openai
from server import check, start, status_of_checks


class Server:
    """`calm serve` on a free port; ends with the block."""

    def __init__(self, program, model, *options, env=None):
        self.process, self.port = start(program, model, *options, env=env)
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.client = openai.OpenAI(base_url=self.url, api_key="none", max_retries=0, timeout=120)
        self.name = self.client.models.list().data[0].id

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(60)

    def complete(self, prompt, **more):
        return self.client.completions.create(model=self.name, prompt=prompt, **more)

    def text(self, prompt, **more):
        return self.complete(prompt, **more).choices[0].text

    def raw(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body), headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers

    def gauge(self, name):
        return int(re.search(rf"^{name} (\d+)$", self.raw("GET", "/metrics")[1].decode(), re.M)[1])

    def settles(self, name, value, seconds):
        """Seconds until a gauge has the value, or None."""
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            if self.gauge(name) == value:
                return time.monotonic() - begun
            time.sleep(0.02)
        return None


def begin_raw(port, body):
    """Sends a completion request and does not read its answer."""
    one = socket.create_connection(("127.0.0.1", port), timeout=60)
    data = json.dumps(body).encode()
    one.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: %d\r\n\r\n" % (port, len(data)) + data)
    return one


def raised(kind, call):
    try:
        call()
    except kind as wrong:
        return wrong
    except Exception as wrong:  # noqa: BLE001
        return f"another exception: {wrong!r}"
    return "no exception"


def check_basics(server):
    models = server.client.models.list().data
    check("models.list has one model", len(models) == 1 and models[0].object == "model")
    check("models.retrieve", server.client.models.retrieve(server.name).id == server.name)
    check("models.retrieve of another model is NotFoundError",
          isinstance(raised(openai.NotFoundError, lambda: server.client.models.retrieve("other")), openai.NotFoundError))
    one = server.complete("Once upon a time", max_tokens=20, seed=5)
    check("a completion has the fields of the API", one.object == "text_completion" and one.id.startswith("cmpl-") and
          len(one.choices) == 1 and one.choices[0].finish_reason in ("stop", "length") and
          one.usage.total_tokens == one.usage.prompt_tokens + one.usage.completion_tokens, one)
    check("the same seed gives the same text", server.text("Once", max_tokens=40, seed=5) == server.text("Once", max_tokens=40, seed=5))
    check("10 seeds give several texts", len({server.text("Once", max_tokens=40, seed=s) for s in range(10)}) > 3)
    check("10 requests without seed give several texts", len({server.text("Once", max_tokens=40) for _ in range(10)}) > 3)
    unseeded = server.complete("Once", max_tokens=40)
    check("the seed of an answer without one repeats it",
          server.text("Once", max_tokens=40, seed=unseeded.seed) == unseeded.choices[0].text)
    check("that seed survives JSON readers with doubles (JavaScript)", int(float(unseeded.seed)) == unseeded.seed, unseeded.seed)
    check("negative seed", server.text("Once", max_tokens=20, seed=-7) == server.text("Once", max_tokens=20, seed=-7))
    several = server.complete(["One day", "Mia"], n=3, max_tokens=20, seed=9)
    check("2 prompts with n = 3 give choices 0 to 5", [c.index for c in several.choices] == list(range(6)))
    check("the choices with n = 3 equal those of n = 1 whose number they have",
          several.choices[0].text == server.text("One day", max_tokens=20, seed=9))
    check("the choices of n differ", len({c.text for c in several.choices[:3]}) > 1)
    check("max_tokens counts per text", several.usage.completion_tokens <= 6 * 20)
    for most in (0, 1, 2, 3, 5, 17):
        made = server.complete("Once", max_tokens=most, seed=2)
        check(f"max_tokens {most}", made.usage.completion_tokens <= most and made.choices[0].finish_reason in ("stop", "length"),
              f"{made.usage.completion_tokens} tokens, {made.choices[0].text!r}")
    long = server.text("Once", max_tokens=40, seed=2)
    check("fewer max_tokens give the beginning of the text",
          all(long.startswith(server.text("Once", max_tokens=m, seed=2).rstrip("\ufffd")) for m in range(1, 40)))
    check("echo", server.text("Once upon a time", echo=True, max_tokens=10, seed=1) ==
          "Once upon a time" + server.text("Once upon a time", max_tokens=10, seed=1))
    check("echo with max_tokens 0", server.text("Grüße, 😀!", echo=True, max_tokens=0) == "Grüße, 😀!")
    for name in ("<|end_of_text|>", "<|begin_of_text|>", "<s>", "</s>", "<|endoftext|>", "<pad>"):
        made = server.complete(name, echo=True, max_tokens=0)
        check(f"{name} in a prompt stays text", made.choices[0].text == name and made.usage.prompt_tokens > 1, made.usage.prompt_tokens)
    optional = ("max_tokens temperature top_p n stream logprobs echo stop presence_penalty frequency_penalty best_of logit_bias user "
                "seed suffix stream_options sampler top_k patches model prompt").split()
    for name in optional:
        status, body, _ = server.raw("POST", "/v1/completions", {"prompt": "Once", name: None})
        check(f"null for {name}", status == 200, body[:200] if status != 200 else "")
    status, _, _ = server.raw("POST", "/v1/completions", dict.fromkeys(optional) | {"prompt": "Once"})
    check("null for all of them", status == 200)


def check_streams(server):
    whole = server.complete("Once upon", max_tokens=48, seed=11, n=3)
    parts, reasons, events = [""] * 3, [[] for _ in range(3)], []
    for event in server.complete("Once upon", max_tokens=48, seed=11, n=3, stream=True, stream_options={"include_usage": True}):
        events.append(event)
        for choice in event.choices:
            check("no text after finish_reason", not reasons[choice.index]) if reasons[choice.index] else None
            parts[choice.index] += choice.text
            if choice.finish_reason:
                reasons[choice.index].append(choice.finish_reason)
    check("streamed texts equal whole texts", parts == [c.text for c in whole.choices])
    check("one finish_reason per text", [r for r in reasons] == [[c.finish_reason] for c in whole.choices], reasons)
    check("the last event has usage and no choices", events[-1].choices == [] and events[-1].usage.model_dump() == whole.usage.model_dump())
    check("earlier events have usage null", all(e.usage is None and e.choices for e in events[:-1]))
    check("one id for all events", len({e.id for e in events}) == 1)
    plain = list(server.complete("Once upon", max_tokens=9, seed=11, stream=True))
    check("no usage event unless asked for", all(e.choices for e in plain))
    _, body, headers = server.raw("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 9, "stream": True})
    check("a stream is text/event-stream and ends with [DONE]",
          headers["Content-Type"].startswith("text/event-stream") and body.endswith(b"data: [DONE]\n\n") and body.count(b"[DONE]") == 1)
    zero = list(server.complete("Once", max_tokens=0, stream=True, echo=True))
    check("a stream of 0 tokens with echo", "".join(c.text for e in zero for c in e.choices) == "Once" and
          zero[-1].choices[0].finish_reason == "length")
    wrong = 0
    for seed in range(60):  # temperature 2 gives an autoregressive model cut and invalid UTF-8
        settings = {"prompt": "Grüße 😀", "max_tokens": 40, "temperature": 2, "seed": seed}
        text = json.loads(server.raw("POST", "/v1/completions", settings)[1])["choices"][0]["text"]
        body = server.raw("POST", "/v1/completions", settings | {"stream": True})[1]
        body.decode()  # valid UTF-8
        lines = [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
        wrong += "".join(c["text"] for e in lines for c in e["choices"]) != text
    check("60 texts with odd bytes: streamed equals whole", wrong == 0, f"{wrong} differ" if wrong else "")


def check_stops(server):
    settings = {"max_tokens": 48, "seed": 21, "temperature": 1}
    for seed in range(21, 60):  # a text that is long enough
        settings["seed"] = seed
        text = server.text("Once upon", **settings)
        if len(text) > 60:
            break
    wrong, tried = [], 0
    for length in (1, 2, 3, 5, 9):
        for at in range(0, min(len(text) - length, 60), 2):
            stop = text[at:at + length]
            if "\ufffd" in stop:
                continue
            tried += 1
            made = server.complete("Once upon", stop=stop, **settings).choices[0]
            streamed = list(server.complete("Once upon", stop=[stop, "never there"], stream=True, **settings))
            joined = "".join(c.text for e in streamed for c in e.choices)
            if not made.text == joined == text[:text.index(stop)] or made.finish_reason != "stop" or \
                    streamed[-1].choices[0].finish_reason != "stop":
                wrong.append((stop, made.text, joined))
    check(f"{tried} stop strings end whole and streamed texts before them", not wrong, wrong[:2] if wrong else "")
    held = text[-6:] + "never there"
    made = server.complete("Once upon", stop=held, **settings)
    streamed = "".join(c.text for e in server.complete("Once upon", stop=held, stream=True, **settings) for c in e.choices)
    check("the beginning of a stop string at the end of a text is not lost", made.choices[0].text == streamed == text)
    two = sorted({text[10:14], text[30:34]})
    check("the first of several stop strings ends the text",
          server.text("Once upon", stop=two, **settings) == text[:min(text.index(s) for s in two)])
    check("an empty list of stop strings", server.text("Once upon", stop=[], **settings) == text)
    for stop in ("", ["a"] * 5, [""]):
        check(f"stop {stop} is BadRequestError",
              isinstance(raised(openai.BadRequestError, lambda s=stop: server.text("a", stop=s)), openai.BadRequestError))


def check_errors(server):
    context = server.client.models.list().data[0].calm["context_tokens"]
    long = raised(openai.BadRequestError, lambda: server.text([1] * (context + 8), max_tokens=1))
    check("a prompt longer than the context is BadRequestError, context_length_exceeded",
          getattr(long, "code", None) == "context_length_exceeded", long)
    much = raised(openai.BadRequestError, lambda: server.text("a", max_tokens=10 * context))
    check("so is a completion longer than the context", getattr(much, "code", None) == "context_length_exceeded", much)
    other = raised(openai.NotFoundError, lambda: server.client.completions.create(model="other", prompt="a"))
    check("another model is NotFoundError, model_not_found", getattr(other, "code", None) == "model_not_found", other)
    for settings in ({"temperature": 3}, {"temperature": -1}, {"n": 0}, {"n": 1000}, {"max_tokens": -1}, {"logprobs": 5},
                     {"presence_penalty": 1}, {"suffix": "x"}, {"best_of": 4}, {"extra_body": {"sampler": "best"}}):
        wrong = raised(openai.BadRequestError, lambda s=settings: server.text("a", **s))
        check(f"{settings} is BadRequestError with param", bool(getattr(wrong, "param", None)), getattr(wrong, "message", wrong)[:160])
    for path in ("/run/../../../etc/passwd", "/run/..%2f..%2fetc%2fpasswd", "/run/%2e%2e/x", "//etc/passwd", "/run/metrics/..", "/v1/x"):
        check(f"{path} is 404", server.raw("GET", path)[0] == 404)
    check("another Host is refused", server.raw("GET", "/health", headers={"Host": "example.com"})[0] == 403)
    check("another Origin is refused", server.raw("GET", "/health", headers={"Origin": "http://example.com"})[0] == 403)
    check("a body of 2 MB is refused", server.raw("POST", "/v1/completions", b'{"prompt":"' + b"a" * 2_000_000 + b'"}')[0] in (400, 413))
    check("10,000 brackets are refused", server.raw("POST", "/v1/completions", b"[" * 10000 + b"]" * 10000)[0] == 400)
    for body in (b"", b"null", b"[]", b'{"prompt":"a","prompt":"b"}', b'{"prompt":"\xff"}', b'{"prompt":"\\ud800"}', b'{"seed":NaN}',
                 b'{"prompt":[-1]}', b'{"prompt":[4294967296]}', b'{"prompt":[[]]}', b'{"max_tokens":1e999}', b'{"prompt":"a"} x'):
        status, answer, _ = server.raw("POST", "/v1/completions", body)
        check(f"body {body} is 400", status == 400 and "error" in json.loads(answer), status)
    body = b'{"prompt":"a","max_tokens":1}'
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as one:
        one.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        for byte in body:  # chunks of one byte
            one.sendall(b"1\r\n%c\r\n" % byte)
        one.sendall(b"0\r\n\r\n")
        check("a chunked body without length", one.recv(65536).startswith(b"HTTP/1.1 200"))


def check_queue(program, model):
    # 1 text at a time, and 1 that waits
    with Server(program, model, "--queue", "1", "--at-once", "1") as server:
        context = server.client.models.list().data[0].calm["context_tokens"]
        slow = {"prompt": "Once", "max_tokens": context - 64, "temperature": 1, "stream": True}
        refused = freed = None
        for seed in range(200):  # until a text under way lasts for the whole check
            first = begin_raw(server.port, slow | {"seed": seed})
            time.sleep(0.03)
            second = begin_raw(server.port, slow | {"seed": 1})
            time.sleep(0.01)
            refusal = raised(openai.RateLimitError, lambda: server.text("a", max_tokens=1))
            second.close()
            time.sleep(0.05)
            again = raised(openai.RateLimitError, lambda: begin_and_close(server))
            time.sleep(0.05)
            held = is_under_way(first)
            first.close()
            server.settles("calm_texts_active", 0, 10)
            server.settles("calm_texts_queued", 0, 10)
            if held and isinstance(refusal, openai.RateLimitError):
                refused, freed = refusal, again
                break
        if refused is None:
            print("       (no text lasts long enough: checks of the queue left out)")
        else:
            check("a full queue is RateLimitError, queue_full", refused.code == "queue_full", refused)
            check("a queued text whose client has gone frees its place", freed == "no exception", freed)
        check("after that the next request is answered", server.complete("a", max_tokens=1).usage is not None)
        both = raised(openai.APIStatusError, lambda: server.complete("a", max_tokens=1, n=2))
        check("2 texts for an idle server with a queue of 1: answered, or an error that says they never fit",
              both == "no exception" or getattr(both, "status_code", 0) != 429, both)


def is_under_way(one):
    """Whether a streamed answer has begun and not ended; reads what has come."""
    one.setblocking(False)
    text = b""
    try:
        while part := one.recv(1 << 16):
            text += part
    except BlockingIOError:
        return b"data: {" in text and b"[DONE]" not in text
    return False


def begin_and_close(server):
    """Sends a streamed request, and closes it once the server has accepted or refused it."""
    with server.complete("a", max_tokens=1, stream=True):
        pass


def check_gone(server):
    context = server.client.models.list().data[0].calm["context_tokens"]
    for stream in (True, False):
        body = {"prompt": "Once", "max_tokens": context - 64, "n": 8, "stream": stream}
        many = [begin_raw(server.port, body | {"seed": s}) for s in range(5)]
        time.sleep(0.05)
        other = server.text("Once upon", max_tokens=30, seed=4)
        for one in many:
            one.close()
        took = server.settles("calm_texts_active", 0, 10)
        check(f"40 {'streamed' if stream else 'whole'} texts whose clients go end", took is not None, f"{(took or 0) * 1000:.0f} ms")
        check("and a text beside them is unchanged", other == server.text("Once upon", max_tokens=30, seed=4))
    for event in server.complete("Once", max_tokens=200, stream=True, n=4):
        break  # the client closes the response in the middle
    check("the client's own early end", server.settles("calm_texts_active", 0, 10) is not None)


async def check_async(server):
    client = openai.AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0)

    async def one(seed):
        stream = await client.completions.create(model=server.name, prompt="Once", max_tokens=64, seed=seed, stream=True)
        return "".join([c.text async for e in stream for c in e.choices])
    texts = await asyncio.gather(*(one(seed) for seed in range(50)))
    alone = [server.text("Once", max_tokens=64, seed=seed) for seed in range(50)]
    check("50 streams of the async client equal the same requests alone", texts == alone)
    noise = asyncio.gather(*(client.completions.create(model=server.name, prompt="Once", max_tokens=64) for _ in range(40)))
    seeded = await asyncio.gather(*(one(seed) for seed in range(20)))
    await noise
    check("seeded texts beside texts without seed", list(seeded) == alone[:20])
    await client.close()


def check_key(program, model):
    environment = dict(os.environ)
    process = subprocess.Popen([program, "serve", model, "--port", "0", "--api-key", "sesame"], stderr=subprocess.PIPE, text=True,
                               env=environment)
    port = next(int(m[1]) for line in process.stderr if (m := re.search(r":(\d+)/", line)))
    try:
        good = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="sesame", max_retries=0)
        name = good.models.list().data[0].id
        check("the right key", good.completions.create(model=name, prompt="a", max_tokens=1).usage is not None)
        for key in ("wrong", "sesam", "sesamesesame", "SESAME"):
            bad = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0)
            check(f"the key {key} is AuthenticationError",
                  isinstance(raised(openai.AuthenticationError, bad.models.list), openai.AuthenticationError))
    finally:
        process.terminate()
        check("exit status 0 after SIGTERM when idle", process.wait(20) == 0)


def random_requests(count, autoregressive):
    draw = random.Random(1)
    words = "Once upon a time Mia Ben the frog was sad and happy in boat, school. \"Why?\" said 12 😀 ü\n".split(" ")
    for _ in range(count):
        yield {"prompt": " ".join(draw.choices(words, k=draw.randint(0, 30))), "seed": draw.randint(0, 2**31),
               "temperature": draw.choice((1, 0.5, 1 / 3, 0.7, 0)), "max_tokens": draw.randint(1, 40)}


def summary(made):
    one = made.choices[0]
    return one.text, one.finish_reason, made.usage.completion_tokens


async def check_same(server, program, model, count, compared):
    autoregressive = server.client.models.list().data[0].calm["kind"] == "autoregressive"
    requests = list(random_requests(count, autoregressive))
    begun = time.monotonic()
    alone = [summary(server.complete(**r)) for r in requests]
    middle = time.monotonic()
    client = openai.AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0)
    slots = asyncio.Semaphore(32)

    async def one(request):
        async with slots:
            return summary(await client.completions.create(model=server.name, **request))
    together = await asyncio.gather(*(one(r) for r in requests))
    ended = time.monotonic()
    await client.close()
    differ = [(r, a, b) for r, a, b in zip(requests, alone, together, strict=True) if a != b]
    check(f"{count} requests with 32 at a time equal the same requests one by one", not differ,
          differ[0] if differ else f"{middle - begun:.1f} s alone, {ended - middle:.1f} s together")
    differ, capped = [], 0
    draw = random.Random(2)
    for at in draw.sample(range(count), min(compared, count)):
        request = requests[at]
        T = request["temperature"]
        # The server's exact rule has a lower limit of draws than generate's.
        if T == 0.7 and not autoregressive:
            patches = server.complete(**request, extra_body={"patches": True}).choices[0].patches
            if any(p["capped"] for p in patches):
                capped += 1
                continue
        rule = "exact" if autoregressive else {1: "adaptive", 0.5: "adaptive", 1 / 3: "adaptive", 0.7: "exact", 0: "noise"}[T]
        line = json.dumps({"id": 1, "prompt": request["prompt"]})
        made = subprocess.run([program, "generate", model, "--jsonl", "-", "--seed", str(request["seed"]), "--max-tokens",
                               str(request["max_tokens"]), "--temperature", "1/3" if T == 1 / 3 else str(T), "--sampler", rule],
                              input=line, capture_output=True, text=True, check=False)
        made = json.loads(made.stdout) if made.stdout else {"text": made.stderr, "finish_reason": "", "tokens": 0}
        if (made["text"], made["finish_reason"], made["tokens"]) != alone[at]:
            differ.append((request, made, alone[at]))
    check(f"{min(compared, count) - capped} of them equal `calm generate`", not differ,
          differ[:2] if differ else f"{capped} more left out: the exact rule gave up")


def check_end(program, model):
    with Server(program, model, "--drain", "1") as server:
        context = server.client.models.list().data[0].calm["context_tokens"]
        body = {"prompt": "Once", "max_tokens": context - 64, "stream": True, "n": 16}
        many = [begin_raw(server.port, body | {"seed": s}) for s in range(4)]
        time.sleep(0.3)
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        whole = []
        for one in many:
            text = b""
            while part := one.recv(1 << 16):
                text += part
            whole.append(text.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"))
        status = server.process.wait(60)
        check("SIGTERM: streams under way end with [DONE] within --drain", all(whole) and status == 0 and time.monotonic() - begun < 4,
              f"{sum(whole)} of {len(whole)}, {time.monotonic() - begun:.2f} s, status {status}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("calm", type=pathlib.Path)
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--compared", type=int, default=30)
    o = parser.parse_args()
    program = str(o.calm.resolve())
    with Server(program, o.model) as server:
        check_basics(server)
        check_streams(server)
        check_stops(server)
        check_errors(server)
        check_gone(server)
        asyncio.run(check_async(server))
        asyncio.run(check_same(server, program, o.model, o.requests, o.compared))
        check("/health at the end", server.raw("GET", "/health")[0] == 200)
    check_queue(program, o.model)
    check_key(program, o.model)
    check_end(program, o.model)
    return status_of_checks()


if __name__ == "__main__":
    sys.exit(main())
