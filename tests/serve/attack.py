#!/usr/bin/env python3
"""attack.py CALM MODEL [--requests 100000] [--connections 10000] [--seed 1] [--at-once 48] [--late 5] [--first 0] [--only NUMBER]:
starts `CALM serve MODEL` and sends it mutated requests of ten groups, and many connections at the same time. Request NUMBER of a seed is always
the same, and --only repeats it alone. Meanwhile /health must answer within --late seconds, and a valid completion must have the same
bytes as before the attack. The exit status is 1 if the server ends, prints a report, answers with what is no HTTP, with an unexpected
status, or too late, or if a text of a client that has gone never ends. CALM may be built with sanitizers. Standard library only.
"""
import argparse
import asyncio
import collections
import itertools
import json
import os
import random
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

PATIENCE = 120  # seconds for the answer to a complete request
STATUSES = {200, 400, 403, 404, 405, 408, 413, 417, 429, 431, 503}
HOST = b"Host: 127.0.0.1\r\n"
faults = []


def fault(number, what):
    faults.append((number, what))
    print(f"FAULT of request {number}: {what}"[:1000], flush=True)


class Server:
    def __init__(self, program, model):
        self.process = subprocess.Popen([program, "serve", model, "--port", "0"], stderr=subprocess.PIPE)
        self.said, self.port = [], None
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.search(rb"listening on http://[^ ]*:(\d+)/", line):
                self.port = int(found[1])
                break
        if self.port is None:
            sys.exit("the server did not start: " + b"".join(self.said).decode(errors="replace"))
        threading.Thread(target=lambda: self.said.extend(self.process.stderr), daemon=True).start()

    def memory(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            status = file.read()
        return "{:.0f} MiB now, {:.0f} at the peak".format(*(int(re.search(rf"{n}:\s+(\d+)", status)[1]) / 1024
                                                             for n in ("VmRSS", "VmHWM")))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class Client:
    """One connection, from one of many loopback addresses: one address has too few ports."""

    def __init__(self, port, number, receive=0):
        self.port, self.socket = port, socket.socket()
        self.socket.setblocking(False)
        if receive:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        self.socket.bind((f"127.0.0.{2 + number % 200}", 0))
        self.loop = asyncio.get_running_loop()

    async def open(self):
        await asyncio.wait_for(self.loop.sock_connect(self.socket, ("127.0.0.1", self.port)), 30)

    async def send(self, data):
        """False if the server has closed."""
        try:
            await asyncio.wait_for(self.loop.sock_sendall(self.socket, data), 30)
            return True
        except (OSError, asyncio.TimeoutError):
            return False

    async def receive(self, seconds, most=1 << 16):
        """Bytes; empty at the end; None if none came in time."""
        try:
            return await asyncio.wait_for(self.loop.sock_recv(self.socket, most), seconds)
        except asyncio.TimeoutError:
            return None
        except OSError:
            return b""

    async def all(self, seconds):
        """What comes until the server closes, or until nothing has come for so long; and whether it closed."""
        whole = b""
        while part := await self.receive(seconds):
            whole += part
        return whole, part == b""

    def close(self, reset=False):
        if reset:  # with RST instead of FIN
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


# ---- Answers.

def first_answer(text):
    """(status, head, rest), or None if it is no HTTP."""
    if b"\r\n\r\n" not in text:
        return None
    head, rest = text.split(b"\r\n\r\n", 1)
    lines = head.split(b"\r\n")
    begun = re.fullmatch(rb"HTTP/1\.1 (\d{3}) [A-Za-z -]+", lines[0])
    if not begun or not all(re.fullmatch(rb"[A-Za-z-]+: [\x20-\x7e]*", line) for line in lines[1:]):
        return None
    return int(begun[1]), head, rest


def answers(text):
    """All answers of a connection as (status, body); None if one is no HTTP or not whole."""
    found = []
    while text:
        one = first_answer(text)
        if one is None:
            return None
        status, head, text = one
        if status == 100:
            continue
        if length := re.search(rb"\r\nContent-Length: (\d+)", head):
            body, text = text[:int(length[1])], text[int(length[1]):]
            if len(body) < int(length[1]):
                return None
        elif b"\r\nTransfer-Encoding: chunked" in head:
            body = b""
            while True:
                chunk = re.match(rb"([0-9a-f]+)\r\n", text)
                if not chunk:
                    return None
                size = int(chunk[1], 16)
                part = text[chunk.end():chunk.end() + size]
                text = text[chunk.end() + size:]
                if len(part) < size or text[:2] != b"\r\n":
                    return None
                body, text = body + part, text[2:]
                if size == 0:
                    break
        else:
            body, text = text, b""
        found.append((status, body))
    return found


# ---- Requests.

WORDS = ["Once", "upon", "Mia", "", "😀", "ü", "\u0000", "\ufeff", "\u202e", "<script>", "\r\nX-Injected: 1", "a" * 300, "</s>", "\\"]
NUMBERS = ["-1", "0", "1", "2", "1e999", "-0", "0.5", "1e-9", "127", "128", "129", "2147483648", "4294967296", "9223372036854775808",
           "18446744073709551616", "1" * 400, "NaN", "Infinity", "0x10", "01", "1.", ".5", "1e", "--1"]
FIELDS = ("prompt max_tokens temperature sampler top_p top_k n seed stop echo stream stream_options ignore_eos patches model logprobs "
          "suffix best_of logit_bias presence_penalty messages unknown __proto__").split()


def small(draw):
    """A valid body."""
    body = {"prompt": " ".join(draw.choices(WORDS[:4], k=draw.randint(1, 6))), "max_tokens": draw.randint(1, 6),
            "temperature": draw.choice((1, 1, 1, 0))}
    for name, values in (("seed", (1, 2**53, -5)), ("n", (1, 2)), ("stop", ("the", ["a", "b"])), ("echo", (True, None)),
                         ("stream", (True, False)), ("user", ("x",))):
        if draw.random() < 0.3:
            body[name] = draw.choice(values)
    return body


def post(body, more=b"", path=b"/v1/completions"):
    return b"POST %s HTTP/1.1\r\n%s%sContent-Length: %d\r\n\r\n%s" % (path, HOST, more, len(body), body)


def valid(draw, completions=0.7):
    if draw.random() >= completions:
        return b"GET %s HTTP/1.1\r\n%s\r\n" % (draw.choice((b"/health", b"/v1/models", b"/metrics", b"/openapi.json")), HOST)
    return post(json.dumps(small(draw)).encode())


def mutated(draw, data):
    """Some bytes changed, left out, repeated or moved."""
    data = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        at = draw.randrange(len(data) + 1)
        end = min(len(data), at + draw.choice((1, 1, 2, 8, 64)))
        kind = draw.randrange(6)
        if kind == 0 and data:
            data[min(at, len(data) - 1)] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del data[at:end]
        elif kind == 2:
            data[at:at] = data[at:end] * draw.choice((1, 2, 50))
        elif kind == 3:
            data[at:at] = draw.choice((b"\r\n", b"\n", b"\r", b"\0", b"\r\n\r\n", b":", b" ", b"\t", b"\xff", b"%", b"{", b"\"", b"0\r\n\r\n"))
        elif kind == 4:
            data[at:at] = draw.randbytes(draw.choice((1, 4, 200)))
        else:
            other = draw.randrange(len(data) + 1)
            data[at:end] = data[other:other + draw.choice((1, 8, 64))]
    return bytes(data)


def value(draw, depth=0):
    """Text of any JSON value, or of what is none."""
    kind = draw.randrange(8 if depth < 4 else 5)
    if kind == 0:
        return draw.choice(NUMBERS)
    if kind == 1:
        return json.dumps(draw.choice(WORDS), ensure_ascii=draw.random() < 0.5)
    if kind == 2:
        return draw.choice(("null", "true", "false", "nul", "", "'a'", '"\\ud800"', '"\\q"', '"\\u00', '"' + "b" * draw.choice((1, 70000)) + '"'))
    if kind == 3:
        return str(draw.randint(-10, 300))
    if kind == 4:
        return json.dumps(draw.choice(("adaptive", "batch", "exact", "noise", "best", "mine")))
    if kind == 5:
        return "[" + ",".join(value(draw, depth + 1) for _ in range(draw.choice((0, 1, 2, 6, 130)) if depth == 0 else draw.randrange(4))) + "]"
    if kind == 6:
        return "{" + ",".join(json.dumps(draw.choice(FIELDS)) + ":" + value(draw, depth + 1) for _ in range(draw.randrange(4))) + "}"
    return json.dumps(draw.random())


async def bytes_of_requests(draw, client):
    return await answered(client, [mutated(draw, valid(draw))])


async def json_of_requests(draw, client):
    fields = [(json.dumps(name), json.dumps(given)) for name, given in small(draw).items()]
    for _ in range(draw.randint(1, 3)):
        fields.append((json.dumps(draw.choice(FIELDS)), value(draw)))
    if draw.random() < 0.7:  # without repeated keys
        fields = list(dict(fields).items())
    body = ("{" + ",".join(f"{name}:{given}" for name, given in fields) + "}").encode(errors="surrogatepass")
    # It may ask for many long texts: these end when their client goes.
    return await answered(client, [post(mutated(draw, body) if draw.random() < 0.3 else body)], seconds=3)


async def chunk_sizes(draw, client):
    body = json.dumps(small(draw)).encode()
    cut = sorted(draw.randrange(len(body) + 1) for _ in range(draw.randint(0, 3)))
    parts = [body[a:b] for a, b in itertools.pairwise([0, *cut, len(body)]) if b > a]
    size = draw.choice((b"%x", b"%X", b"0%x", b"%x;a=b", b'%x;a="b\r\n"', b"%x ", b" %x", b"0x%x", b"+%x", b"-%x", b"fffffffffffffff%x",
                        b"%x0", b"%x\n", b"1%x", b"%x;" + b"e" * 20000, b"", b"%x;\0"))
    tricky = b"".join((size % len(part) if b"%" in size else size) + draw.choice((b"\r\n", b"\r\n", b"\n", b"\r")) + part
                      + draw.choice((b"\r\n", b"\r\n", b"\r\n", b"", b"\n", b"xx")) for part in parts)
    end = draw.choice((b"0\r\n\r\n", b"0\r\n\r\n", b"00\r\n\r\n", b"0\r\nContent-Length: 1\r\n\r\n", b"0\r\nHost: evil\r\n\r\n", b"", b"0;\r\n\r\n",
                       b"0\r\n" + b"T: t\r\n" * 5000 + b"\r\n"))
    head = draw.choice((b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                        b"Transfer-Encoding: identity, chunked\r\n", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                        b"Transfer-Encoding : chunked\r\n", b"Transfer-Encoding: xchunked\r\n"))
    return await answered(client, [b"POST /v1/completions HTTP/1.1\r\n" + HOST + head + b"\r\n" + tricky + end])


async def headers(draw, client):
    more = b"".join(draw.choice((
        b"X: a\r\n b\r\n", b"X: \0\r\n", b"X: a\nX-Injected: 1\r\n", b"X: a\rX-Injected: 1\r\n", b"Content-Length: 3\r\n", b"Content-Length: -1\r\n",
        b"Content-Length: 18446744073709551616\r\n", b"Content-Length: 1,1\r\n", b"Expect: 100-continue\r\n", b"Expect: x\r\n", b": x\r\n", b"X\r\n",
        b"X : y\r\n", b"Authorization: Bearer " + b"k" * 9000 + b"\r\n", b"X: " + b"y" * 20000 + b"\r\n", b"Connection: upgrade\r\nUpgrade: h2c\r\n",
        b"Connection: close, keep-alive\r\n", b"Range: bytes=0-18446744073709551615,0-1\r\n", b"Content-Encoding: gzip\r\n", b"X: \xff\xfe\r\n",
        b"Host: 127.0.0.1\r\n", b"Content-Type: \r\n", b"Y: z\r\n" * 3000)) for _ in range(draw.randint(1, 4)))
    return await answered(client, [post(json.dumps(small(draw)).encode(), more)])


async def paths(draw, client):
    steps = (b"..", b"%2e%2e", b"..%2f", b"..%5c", b"%00", b".", b"//", b"etc", b"passwd", b"run", b"metrics", b"samples", b"run.json", b"v1",
             b"models", b"..;", b"%c0%ae%c0%ae", b"\xff", b"%0d%0aX-Injected:1", b"?from=1", b"?from=-1", b"?from=18446744073709551616", b"*", b"#")
    path = b"/" + draw.choice((b"/", b"")).join(draw.choices(steps, k=draw.randint(1, 6)))
    path = draw.choice((path, path, b"http://127.0.0.1" + path, b"http://evil" + path, path[1:], b"/" + b"a" * draw.choice((10, 15000, 17000))))
    method = draw.choice((b"GET", b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"CONNECT", b"DELETE", b"get", b"G" * 300))
    text, late = await answered(client, [method + b" " + path + draw.choice((b" HTTP/1.1", b" HTTP/1.0", b" HTTP/9.9", b"")) + b"\r\n" + HOST + b"\r\n"])
    return text, late or ("the password file" if b"root:" in text else None)


async def hosts(draw, client):
    host, origin = draw.choice((
        (b"evil.example", b""), (b"127.0.0.1.evil.example", b""), (b"localhost.evil", b""), (b"127.0.0.1@evil", b""), (b"169.254.169.254", b""), (b"", b""),
        (b"[::2]", b""), (b"127.0.0.1, evil", b""), (b"127.0.0.1:1 evil", b""), (b"0x7f000001", b""), (b"2130706433", b""), (b"localhost.", b""),
        (b"127.0.0.1", b"http://evil.example"), (b"127.0.0.1", b"null"), (b"127.0.0.1", b"https://127.0.0.1"), (b"127.0.0.1", b"http://127.0.0.1:1"),
        (b"127.0.0.1", b"http://127.0.0.1.evil"), (b"127.0.0.1", b"http://localhost"), (b"127.0.0.1", b""), (b"localhost", b"http://localhost")))
    good = (host, origin) in ((b"127.0.0.1", b""), (b"localhost", b"http://localhost"))
    head = b"GET /v1/models HTTP/1.1\r\nHost: " + host + b"\r\n" + (b"Origin: " + origin + b"\r\n" if origin else b"") + b"\r\n"
    text, late = await answered(client, [head], whole=True)
    status = (first_answer(text) or (0,))[0]
    return text, late or (None if status in ({200, 503} if good else {400, 403, 503}) else f"status {status} for {head}")


async def pipelines(draw, client):
    """Several requests at once; perhaps one of them is wrong, and those behind it must get no answer."""
    count = draw.randint(2, 8)
    bad = draw.randrange(count) if draw.random() < 0.5 else count
    ones = [valid(draw, 0.2) for _ in range(count)]
    if bad < count:
        ones[bad] = draw.choice((b"GET / HTTP/1.1\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: x\r\n\r\n", b"\0\r\n\r\n",
                                 b"GET /health HTTP/1.1\r\nHost: evil\r\n\r\n", b"GET /health HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n"))
    elif draw.random() < 0.5:
        ones[-1] = ones[-1].replace(b" HTTP/1.1\r\n", b" HTTP/1.1\r\nConnection: close\r\n", 1)
    await client.send(b"".join(ones) if draw.random() < 0.5 else b"\r\n".join(ones))
    text, closed = b"", False
    while not closed and len(found := answers(text) or []) < min(count, bad + 1):
        part = await client.receive(PATIENCE)
        if part is None:
            return text, f"no answer within {PATIENCE} s"
        closed = part == b""
        text += part
    found = answers(text)
    if found and found[0][0] == 503:
        return text, None
    if found is None or len(found) != min(count, bad + 1):
        return text, f"{len(found or [])} answers, expected {min(count, bad + 1)}, to {b''.join(ones)[:300]}"
    wrong = [status for status, _ in found[:bad] if status not in (200, 400, 429)] + [status for status, _ in found[bad:] if status not in (400, 403)]
    return text, f"statuses {wrong}" if wrong else None


async def large_bodies(draw, client):
    kind, many = draw.randrange(6), draw.random() < 0.1
    if kind == 0:
        body = b"[" * draw.choice((65, 1000, 10000, 400000))
        body += b"]" * draw.choice((0, len(body)))
    elif kind == 1:
        body = b'{"a":' * draw.choice((65, 1000, 100000)) + b"1"
    elif kind == 2:
        body = b'{"prompt":"' + b"a" * draw.choice((10000, 500000, 1048000, 1100000, 3000000)) + b'"}'
    elif kind == 3:
        body = b'{"prompt":[' + b"1," * (200000 if many else 9000) + b"1]}"
    elif kind == 4:
        body = b'{"prompt":[' + b'"a",' * (200000 if many else draw.choice((127, 128, 1000))) + b'"a"],"max_tokens":1}'
    else:
        body = b"{" + b",".join(b'"k%d":%d' % (i, i) for i in range(50000 if many else 100)) + b"}"
    request = post(body)
    if draw.random() < 0.2:  # claims more than it sends, or less
        request = request.replace(b"Content-Length: ", b"Content-Length: " + draw.choice((b"1", b"9999")), 1)
    return await answered(client, [request], seconds=20)


async def slow_senders(draw, client):
    request = valid(draw)
    cut = sorted(draw.randrange(len(request) + 1) for _ in range(draw.randint(1, 20)))
    parts = [request[a:b] for a, b in itertools.pairwise([0, *cut, len(request)])]
    given_up = draw.random() < 0.4
    if given_up:
        parts = parts[:draw.randrange(len(parts))]
    for part in parts:
        if part and not await client.send(part):
            return b"", None  # closed to make room
        await asyncio.sleep(draw.choice((0, 0.001, 0.02, 0.1)))
    if not given_up:
        return await answered(client, [], whole=True)
    await asyncio.sleep(draw.choice((0, 0.1, 1)))
    client.close(reset=draw.random() < 0.5)
    return b"", None


async def slow_readers(draw, client):
    body = {"prompt": "Once", "max_tokens": draw.choice((10, 10, 500, 500, 7000)), "ignore_eos": True, "patches": True, "n": draw.choice((1, 1, 1, 8)),
            "stream": draw.random() < 0.8, "temperature": draw.choice((1,) * 19 + (0.5,))}  # many draws
    text = b""
    if await client.send(post(json.dumps(body).encode())):
        for _ in range(draw.randrange(6)):
            await asyncio.sleep(draw.choice((0, 0.05, 0.3)))
            text += await client.receive(0.05, draw.choice((1, 100, 5000))) or b""
    if draw.random() < 0.3:
        client.socket.shutdown(socket.SHUT_WR)  # half open
        await asyncio.sleep(0.2)
    client.close(reset=draw.random() < 0.5)
    return b"", None


GROUPS = (*(bytes_of_requests, json_of_requests, chunk_sizes, headers) * 3, *(paths, hosts) * 2, pipelines, large_bodies, slow_senders,
          slow_readers)


async def answered(client, parts, whole=False, seconds=0.1):
    """Sends parts and reads the answer; `whole` if the request is complete and must get one."""
    for part in parts:
        await client.send(part)
    text, closed = b"", False
    while not closed and not answers(text):
        # An incomplete request gets no answer: its client gives up when another one would have got its answer.
        part = await client.receive(PATIENCE if whole else max(seconds, 3 * Attack.latency))
        if part is None:
            return text, f"no answer within {PATIENCE} s" if whole else None
        closed = part == b""
        text += part
    return text, None


# ---- The attack.

def completion(seed):
    return post(json.dumps({"prompt": "Once upon a time", "max_tokens": 24, "seed": seed, "temperature": 1}).encode(), b"Connection: close\r\n")


async def reference(port, number, seed):
    """The parts of a completion that must not change, or None if the server was full."""
    client = Client(port, number)
    try:
        await client.open()
        await client.send(completion(seed))
        text, _ = await client.all(PATIENCE)
        found = answers(text)
        if not found:
            return f"no answer: {text[:200]}"
        status, body = found[0]
        if status in (429, 503):
            return None
        made = json.loads(body)
        return made["choices"], made["usage"], made["seed"]
    finally:
        client.close()


async def texts_under_way(port):
    client = Client(port, 0)
    try:
        await client.open()
        await client.send(b"GET /metrics HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        text, _ = await client.all(PATIENCE)
        return sum(int(re.search(rb"\ncalm_texts_%s (\d+)" % name, text)[1]) for name in (b"active", b"queued"))
    finally:
        client.close()


class Attack:
    latency = 0  # seconds, of the last /health

    def __init__(self, server, o):
        self.server, self.o = server, o
        self.groups, self.statuses = collections.Counter(), collections.Counter()
        self.health, self.compared, self.busy, self.done = [], 0, 0, False

    async def one(self, number):
        draw = random.Random(f"{self.o.seed} {number}")
        group = GROUPS[number % len(GROUPS)]
        client = Client(self.server.port, number, 4096 if group is slow_readers else 0)
        try:
            await client.open()
            text, wrong = await group(draw, client)
        except (OSError, asyncio.TimeoutError) as broken:
            # A full server resets connections; that it is alive is checked elsewhere.
            self.statuses[type(broken).__name__] += 1
            return
        finally:
            client.close()
        self.groups[group.__name__] += 1
        found = first_answer(text)
        self.statuses[found[0] if found else "none"] += 1
        if wrong:
            fault(number, f"{group.__name__}: {wrong}: {text[:200]}")
        elif text and (found is None or (found[0] not in STATUSES and found[0] != 100)):
            fault(number, f"{group.__name__}: {text[:300]}")
        elif found and re.search(rb"(?i)\r\nX-Injected", found[1]):
            fault(number, f"{group.__name__}: an injected header: {found[1]}")

    async def watch(self, before):
        """Checks /health and the valid completion, again and again."""
        for number in itertools.count():
            begun, client = time.monotonic(), Client(self.server.port, number)
            try:
                await client.open()
                await client.send(b"GET /health HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
                text, _ = await client.all(PATIENCE)
            finally:
                client.close()
            took = time.monotonic() - begun
            status = (first_answer(text) or (0,))[0]
            if status == 503:
                self.busy += 1
            elif status != 200 or took > self.o.late:
                fault("/health", f"status {status} after {took:.1f} s: {text[:200]}")
            else:
                self.health.append(took)
                Attack.latency = took
            seed = number % len(before)
            now = await reference(self.server.port, number, seed)
            if now is None:
                self.busy += 1
            elif now != before[seed]:
                fault("valid completion", f"expected {before[seed]}, found {now}")
            else:
                self.compared += 1
            if self.done:
                return
            await asyncio.sleep(0.05)

    async def send_all(self, numbers):
        left, begun, sent = iter(numbers), time.monotonic(), 0

        async def worker():
            nonlocal sent
            for number in left:
                if self.server.process.poll() is not None:
                    return
                await self.one(number)
                sent += 1
                if sent % 2500 == 0:
                    print(f"{sent} requests, {sent / (time.monotonic() - begun):.0f} per second; {self.server.memory()}; "
                          f"{len(faults)} faults", flush=True)
        await asyncio.gather(*(worker() for _ in range(self.o.at_once)))

    async def stalled(self):
        """Requests that never end: each must be closed after 30 s."""
        async def one(number, data):
            client = Client(self.server.port, number)
            await client.open()
            await client.send(data)
            begun = time.monotonic()
            text, closed = await client.all(PATIENCE)
            client.close()
            took = time.monotonic() - begun
            if not closed or (text and (first_answer(text) or (0,))[0] not in (408, 503)):
                fault("stalled request", f"closed: {closed} after {took:.0f} s: {text[:200]}")
            return took
        took = await asyncio.gather(*(one(i, (b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: 10\r\n\r\n{", b"GET /", b"G")[i % 3])
                                      for i in range(60)))
        print(f"{len(took)} requests that never end were closed after {min(took):.1f} to {max(took):.1f} s", flush=True)

    async def many_connections(self):
        count, clients = self.o.connections, []
        for number in range(count):
            client = Client(self.server.port, number)
            clients.append(client)
            try:
                await client.open()
                if number % 3 == 1:
                    await client.send(b"GET /hea")
                if number % 3 == 2:
                    await client.send(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
            except (OSError, asyncio.TimeoutError):
                self.statuses["refused connection"] += 1
        print(f"{count} connections opened: the server has {self.server.descriptors()} descriptors; {self.server.memory()}", flush=True)
        for client in clients:
            client.close()


async def attack(server, o):
    before = [await reference(server.port, 0, seed) for seed in range(8)]
    if not all(isinstance(one, tuple) for one in before):
        fault("valid completion", f"before the attack: {before}")
        return
    now = Attack(server, o)
    print(f"{server.memory()} and {server.descriptors()} descriptors before the attack", flush=True)
    if o.only is not None:
        return await now.one(o.only)
    begun = time.monotonic()
    watching = asyncio.create_task(now.watch(before))
    stalling = asyncio.create_task(now.stalled())
    await now.send_all(range(o.first, o.first + o.requests))
    if server.process.poll() is None:
        await stalling
        if o.connections:
            await now.many_connections()
    now.done = True
    await watching
    took = time.monotonic() - begun
    for _ in range(PATIENCE):  # texts of clients that have gone end
        if under_way := await texts_under_way(server.port):
            await asyncio.sleep(1)
    if under_way:
        fault("texts", f"{under_way} are under way though their clients have gone")
    elif (after := [await reference(server.port, 0, seed) for seed in range(8)]) != before:
        fault("valid completion", f"after the attack: expected {before}, found {after}")
    print(f"{sum(now.groups.values())} requests of {len(now.groups)} groups in {took:.0f} s: "
          + ", ".join(f"{name} {n}" for name, n in now.groups.items()))
    print("answers: " + ", ".join(f"{name} {n}" for name, n in sorted(now.statuses.items(), key=str)))
    health = sorted(now.health)
    if health:
        print(f"/health answered {len(health)} times, p50 {health[len(health) // 2] * 1000:.0f} ms, p99 "
              f"{health[len(health) * 99 // 100] * 1000:.0f} ms, at most {health[-1] * 1000:.0f} ms; {now.compared} valid completions had the "
              f"same bytes; {now.busy} requests found the server full")
    print(f"{server.memory()} and {server.descriptors()} descriptors after the attack")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("calm")
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=100000)
    parser.add_argument("--first", type=int, default=0, help="number of the first request: runs at the same time can share the work")
    parser.add_argument("--connections", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=48, help="clients")
    parser.add_argument("--late", type=float, default=5, help="most seconds for /health: more on a machine with other work")
    parser.add_argument("--only", type=int, help="number of a request to repeat alone")
    o = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    server = Server(o.calm, o.model)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        asyncio.run(attack(server, o))
    except OSError as broken:
        fault("the server", f"it does not answer: {broken}")
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGTERM)
    status = server.process.wait(120)
    said = b"".join(server.said).decode(errors="replace")
    if status != 0 or re.search("ERROR|runtime error|terminate called|LeakSanitizer", said):
        fault("the server", f"exit status {status}: {said[-3000:]}")
    print(f"{len(faults)} faults; exit status of the server {status}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
