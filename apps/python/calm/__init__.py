"""Trains, loads and evaluates models and generates texts with the program `calm`, whose JSON it reads.

Options are those of the program, as keyword arguments: max_tokens=50 is --max-tokens 50, True is a flag, and a list
gives an option several times.
"""
from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Iterable, Sequence

__all__ = ["Error", "Model", "compare", "load", "program", "train"]

program = "calm"
"""The program's name, if it is in PATH, or its path."""


class Error(RuntimeError):
    """The program's message; `status` is its exit status (apps/README.md lists them)."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


class Model:
    """A stored model. Each call starts the program, which loads the model."""

    def __init__(self, directory: str | os.PathLike[str]):
        """Expects a model in `directory`, in any layout that `calm inspect` reads."""
        self.directory = Path(directory)
        self.description: str = _run(["inspect", *self._model()])

    def generate(self, prompts: str | Sequence[str], **options: Any) -> Any:
        """Continues a prompt, or several: an answer for each, in order.

        An answer is a dict: "text" continues "prompt", without repeating it; "tokens", "patches" and "draws" are
        numbers; "finish_reason" is "stop" or "length". Options are those of `calm generate`.
        """
        several = [prompts] if isinstance(prompts, str) else list(prompts)
        if not several:
            return []
        lines = "".join(json.dumps({"id": i, "prompt": prompt}) + "\n" for i, prompt in enumerate(several))
        answers = _read_lines(["generate", *self._model(), "--jsonl=-", *_arguments(options)], lines)
        return answers[0] if isinstance(prompts, str) else answers

    def evaluate(self, data: str | Sequence[str], **options: Any) -> dict[str, Any]:
        """The scores on a text that was not trained on, such as "brier_lm". Options are those of `calm evaluate`."""
        return compare([self], data, **options)[0]

    def tokenize(self, text: str) -> dict[str, list[Any]]:
        """The "ids" of a text's tokens and their texts, "tokens"."""
        return _read_lines(["tokenize", f"--tokenizer={self.directory}", "--text=-", "--format=json"], text)[0]

    def latents(self, text: str) -> Any:
        """The latent vectors of the text's patches (P, L): means of the autoencoder's posterior.

        A NumPy array of float32 if numpy is installed, else a list of lists. PAD fills the last patch. Compiles the
        model's sizes once if the program does not have them.
        """
        rows = _read_lines(["tokenize", f"--tokenizer={self.directory}", "--text=-", "--format=latents"], text)[0]
        try:
            import numpy
        except ImportError:
            return rows["latents"]
        return numpy.array(rows["latents"], dtype=numpy.float32)

    def _model(self) -> list[str]:
        return [f"--model={self.directory}"]


def load(directory: str | os.PathLike[str]) -> Model:
    """The model in `directory`."""
    return Model(directory)


def train(data: str | Sequence[str], out: str | os.PathLike[str], **options: Any) -> Model:
    """Trains a model on a text, or resumes the run in `out`. Options are those of `calm train text`.

    The program's report goes to standard error. After Ctrl-C it saves the run before KeyboardInterrupt is raised.
    """
    command = [program, "train", "text", *_arguments({"data": data, "out": out, **options})]
    with _started(command, stdin=subprocess.DEVNULL) as process:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            process.wait()
            raise
    if status != 0:
        raise Error(f"calm train ended with status {status}; its message is on standard error", status)
    return Model(out)


def compare(models: Iterable[Model], data: str | Sequence[str], **options: Any) -> list[dict[str, Any]]:
    """The scores of each model on the same text, in order. Options are those of `calm evaluate`."""
    directories = [argument for model in models for argument in model._model()]
    return _read_lines(["evaluate", *directories, *_arguments({"data": data, **options})])


def _arguments(options: dict[str, Any]) -> list[str]:
    arguments = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            arguments.append(flag)
        elif value is not None and value is not False:
            values = value if isinstance(value, (list, tuple)) else [value]
            arguments += [f"{flag}={os.fspath(one) if isinstance(one, os.PathLike) else one}" for one in values]
    return arguments


def _started(command: list[str], **streams: Any) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(command, text=True, encoding="utf-8", **streams)
    except FileNotFoundError:
        raise Error(f"expected the program calm, found no {command[0]}: add its folder to PATH, or set calm.program "
                    "to its path", 127) from None


def _run(arguments: list[str], given: str = "", may_end_with: Sequence[int] = (0,)) -> str:
    with _started([program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            out, messages = process.communicate(given)
        except BaseException:
            process.kill()
            raise
    if process.returncode not in may_end_with:
        raise Error(messages.strip() or f"calm {arguments[0]} ended with status {process.returncode}", process.returncode)
    return out


def _read_lines(arguments: list[str], given: str = "") -> list[Any]:
    """The objects that the program prints, one per line. A line with an "error" (exit status 4) is raised."""
    bad_lines = 4
    values = [json.loads(line) for line in _run(arguments, given, (0, bad_lines)).splitlines()]
    for value in values:
        if "error" in value:
            raise Error(f"prompt {value['line'] - 1}: {value['error']}", bad_lines)
    return values
