#!/usr/bin/env python3
"""page.py CALM MODEL [--browser chromium] [--out FOLDER]: starts `CALM serve MODEL --run MODEL`, opens its page in headless Chromium over the
DevTools protocol, and does what a user does: types, generates, hovers over a patch, stops, reloads, compares two settings, opens the
training run, changes the colours, and uses the keyboard and a small window. Prints one line per check and writes screenshots to FOLDER. The
exit status is 1 if a check fails, or if the browser logs an error, and 77 without a browser. MODEL is a CALM of `calm train text`. Standard library only.
"""
import argparse
import base64
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

from server import check, start, status_of_checks

SECONDS = 60  # for anything to appear


class Socket:
    """A WebSocket client: text messages, each in one frame."""

    def __init__(self, url):
        host, port, path = re.fullmatch(r"ws://([^:/]+):(\d+)(/.*)", url).groups()
        self.socket = socket.create_connection((host, int(port)), timeout=SECONDS)
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self.file = self.socket.makefile("rb")
        if b" 101 " not in self.file.readline():
            sys.exit("the browser refused the connection")
        while self.file.readline() != b"\r\n":
            pass

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
        self.socket.sendall(b"\x81" + size + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def receive(self):
        whole = b""
        while True:
            first, size = self.file.read(2)
            if size == 126:
                size, = struct.unpack(">H", self.file.read(2))
            elif size == 127:
                size, = struct.unpack(">Q", self.file.read(8))
            whole += self.file.read(size)
            if first & 0x80:
                return whole.decode()


class Page:
    """One tab of a headless Chromium: connect() first."""

    def __init__(self, browser, out):
        self.out, self.socket, self.number, self.errors, self.requests = out, None, 0, [], []
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.process = subprocess.Popen([browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                                         "--remote-debugging-port=0", "--window-size=1100,900", f"--user-data-dir={self.folder.name}", "about:blank"],
                                        stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)

    def connect(self):
        file = pathlib.Path(self.folder.name, "DevToolsActivePort")
        begun = time.monotonic()
        while not (file.exists() and file.read_text().count("\n")):
            if time.monotonic() - begun > SECONDS or self.process.poll() is not None:
                sys.exit("the browser did not start")
            time.sleep(0.1)
        port = file.read_text().split()[0]
        tabs = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list"))
        self.socket = Socket(next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"))
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.receive())
            self.note(message)
            if message.get("id") == self.number:
                if "error" in message:
                    sys.exit(f"{method}: {message['error']}")
                return message["result"]

    def note(self, message):
        """Keeps errors that the browser logs, and the addresses of its requests."""
        method, given = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(given["exceptionDetails"].get("exception", {}).get("description") or given["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
            self.errors.append(str([one.get("value", one.get("description")) for one in given["args"]]))
        elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])

    def value(self, expression):
        made = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in made:
            sys.exit(f"{expression}: {made['exceptionDetails']}")
        return made["result"].get("value")

    def appears(self, expression):
        begun = time.monotonic()
        while not self.value(expression):
            if time.monotonic() - begun > SECONDS:
                return False
            time.sleep(0.02)
        return True

    def open(self, url):
        self.value("window.left = true")
        self.call("Page.navigate", url=url)
        return self.appears("!window.left && document.readyState === 'complete' && !!document.querySelector('#lanes > section') && "
                            "!document.querySelector('#generate').hidden")

    def mouse(self, selector, press=True):
        """Scrolls an element into view, moves the mouse to its middle, and clicks. Waits for the event of the scrolling, which hides a tip."""
        x, y = self.value(f"(async () => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
                          "for (let frame = 0; frame < 2; ++frame) await new Promise(requestAnimationFrame);"
                          "const box = e.getClientRects()[0]; return [box.x + box.width / 2, box.y + box.height / 2]; })()")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased") if press else ():
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def key(self, name, code, modifiers=0):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, modifiers=modifiers)

    def type(self, selector, text):
        self.mouse(selector)
        self.value(f"document.querySelector({json.dumps(selector)}).select()")
        self.call("Input.insertText", text=text)

    def show(self, name):
        time.sleep(0.3)  # after changes of colour
        if self.out:
            made = self.call("Page.captureScreenshot", format="png")
            pathlib.Path(self.out, name + ".png").write_bytes(base64.b64decode(made["data"]))

    def close(self):
        """Ends the browser, which Debian's script starts, with its processes."""
        if self.socket is not None:
            with contextlib.suppress(OSError, struct.error, ValueError):
                self.call("Browser.close")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(20)
        self.folder.cleanup()


TEXT = "[...document.querySelectorAll('#lanes .output')].map(e => e.textContent)"
RUNNING = "!document.querySelector('#stop').disabled"
PATCHES = "document.querySelectorAll('#lanes .output .patch').length"
STATUS = "document.querySelector('#status').textContent"


def generate(page, url):
    check("the page opens", page.open(url))
    page.show("opened")
    foreign = "<img src=x onerror=alert(1)> Mia & \"Tom\" 😀 ü"
    page.type("#prompt", foreign)
    page.type("#maxTokens", "40")
    page.type("[data-id=seed]", "7")
    check("typed text is in the prompt", page.value("document.querySelector('#prompt').value") == foreign)
    page.mouse("#start")
    check("a text is generated", page.appears(f"!({RUNNING}) && {STATUS}.startsWith('Done, ')"), page.value(STATUS))
    text = page.value(TEXT)[0]
    check("the prompt is shown as text, not as markup", text.startswith(foreign) and page.value("document.querySelectorAll('#lanes img').length") == 0)
    check("patches are separate blocks", page.value(PATCHES) >= 5, page.value(PATCHES))
    page.mouse("#lanes .output .patch", press=False)
    check("the mouse over a patch shows its tokens and draws", page.appears("!document.querySelector('#tip').hidden"),
          page.value("document.querySelector('#tip').textContent.split('\\n')[0]"))
    page.show("generated")
    page.value("document.querySelector('#lanes .output').replaceChildren(), document.querySelector('#prompt').focus()")
    page.key("Enter", 13, modifiers=2)
    check("Ctrl+Enter in the prompt generates, and the same seed gives the same text",
          page.appears(f"!({RUNNING}) && {STATUS}.startsWith('Done, ')") and page.value(TEXT)[0] == text)
    page.mouse("#lanes .copy-curl")
    check("the curl command is shown", "curl -N" in (page.value("document.querySelector('#lanes .curl').value") or ""))


def stop(page):
    page.type("#maxTokens", "8000")
    page.type("#prompt", "Mia was")
    page.value("document.querySelector('[data-id=fraction]').value = '10', "
               "document.querySelector('[data-id=fraction]').dispatchEvent(new Event('change'))")  # many draws: the text lasts
    page.mouse("#start")
    check("a long text streams in", page.appears(f"{RUNNING} && {PATCHES} >= 2"), page.value(PATCHES))
    page.show("streaming")
    page.mouse("#stop")
    check("Stop ends it", page.appears(f"!({RUNNING})"), page.value(STATUS))
    made = page.value(PATCHES)
    time.sleep(0.5)
    check("no patch follows", page.value(PATCHES) == made and page.value(STATUS).startswith("Stopped after "), page.value(STATUS))
    page.mouse("#start")
    page.appears(f"{RUNNING} && {PATCHES} >= 1")
    page.key("Escape", 27)
    check("Escape stops, too", page.appears(f"!({RUNNING}) && {STATUS}.startsWith('Stopped after ')"))


def reload(page, url):
    page.mouse("#start")
    page.appears(f"{RUNNING} && {PATCHES} >= 1")
    check("the page reloads in the middle of a text", page.open(url) and page.value(PATCHES) == 0)
    begun = time.monotonic()
    while (active := re.search(r"^calm_texts_active (\d+)$", urllib.request.urlopen(url + "metrics").read().decode(), re.M)[1]) != "0":
        if time.monotonic() - begun > SECONDS:
            break
        time.sleep(0.05)
    check("the text that was left ends", active == "0", f"{time.monotonic() - begun:.2f} s")
    page.type("#maxTokens", "24")
    page.mouse("#compare")
    check("two settings are compared", page.appears("document.querySelectorAll('#lanes > section').length === 2"))
    page.mouse("#start")
    check("both generate", page.appears(f"!({RUNNING}) && {STATUS}.includes('A: Done') && {STATUS}.includes('B: Done')"), page.value(STATUS))
    page.show("compared")


def refused(page):
    page.mouse("#compare")
    page.type("#maxTokens", "0")
    page.mouse("#start")
    check("a wrong number is refused in words", page.appears("[...document.querySelectorAll('#lanes .error')].some(e => !e.hidden)"),
          page.value("document.querySelector('#lanes .error').textContent"))
    page.type("#maxTokens", "24")


def training_run(page):
    page.mouse("#tabrun")
    check("the tab of the training run opens", page.appears("!document.querySelector('#run').hidden && !!document.querySelector('#charts svg path.curve, "
                                                            "#charts svg circle')"), page.value("document.querySelector('#runName').textContent"))
    check("it has charts", page.value("document.querySelectorAll('#charts figure').length") >= 3)
    check("and no error", page.value("document.querySelector('#runError').hidden"))
    page.show("run")
    before = page.value("getComputedStyle(document.body).backgroundColor")
    page.mouse("#theme")
    check("the colours change", page.value("getComputedStyle(document.body).backgroundColor") != before)
    page.show("run_other_colours")
    page.value("document.querySelector('#tabrun').focus()")
    page.key("ArrowLeft", 37)
    check("the arrow keys change the tab", page.appears("!document.querySelector('#generate').hidden && document.activeElement.id === 'tabgenerate'"))
    page.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=True)
    check("nothing is wider than a small window", page.appears("document.documentElement.scrollWidth <= 360"),
          page.value("document.documentElement.scrollWidth"))
    page.show("small")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("calm")
    parser.add_argument("model")
    parser.add_argument("--browser", default=next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None))
    parser.add_argument("--out", help="existing folder for screenshots")
    o = parser.parse_args()
    if o.browser is None:
        print("skipped: no Chromium: install Debian's package chromium-headless-shell or chromium, or give --browser")
        return 77
    server, port = start(o.calm, o.model, "--run", o.model)
    url = f"http://127.0.0.1:{port}/"
    with contextlib.ExitStack() as at_end:
        at_end.callback(server.wait, 60)
        at_end.callback(server.terminate)
        page = Page(o.browser, o.out)
        at_end.callback(page.close)
        page.connect()
        generate(page, url)
        stop(page)
        reload(page, url)
        refused(page)
        training_run(page)
        page.value("0")  # notes what has come meanwhile
        check("no errors in the console", not page.errors, page.errors or "")
        page.value("console.error('asked for'), setTimeout(() => { throw new Error('asked for'); })")
        check("errors would have been noticed", page.appears("true") and sum("asked for" in one for one in page.errors) == 2, page.errors)
        foreign = [one for one in page.requests if not one.startswith((url, "data:", "about:"))]
        check("no request to another address", not foreign, foreign or f"{len(page.requests)} requests")
    return status_of_checks()


if __name__ == "__main__":
    sys.exit(main())
