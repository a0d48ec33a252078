"""What the scripts of this folder share: checks that are counted, and a server on a free port. Standard library only."""
import re
import subprocess
import sys

failed = []


def check(name, holds, found=""):
    print(f"{'ok    ' if holds else 'FAILED'} {name}{'' if holds and not found else f': {found}'}", flush=True)
    if not holds:
        failed.append(name)


def status_of_checks():
    """Prints how many checks failed, and returns the exit status."""
    print(f"{len(failed)} checks failed" if failed else "all checks passed")
    return 1 if failed else 0


def start(program, model, *options, env=None):
    """`PROGRAM serve MODEL` with these options, and its port."""
    process = subprocess.Popen([program, "serve", model, "--port", "0", *options], stderr=subprocess.PIPE, text=True, env=env)
    for line in process.stderr:
        if found := re.search(r"listening on http://[^ ]*:(\d+)/", line):
            return process, int(found[1])
    sys.exit("the server did not start")
