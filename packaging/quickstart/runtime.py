"""Starts, stops and talks to the LLM runtime (llama.cpp's server). Standard library only."""

import dataclasses
import json
import os
import select
import subprocess
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))

START_TIMEOUT_S = 120  # loading the model and, on a slow disk, the runtime's libraries
STOP_TIMEOUT_S = 20
REQUEST_TIMEOUT_S = 600  # a long prompt on one slow CPU core


class RuntimeFailure(RuntimeError):
    """The runtime did not start or refused a request; the text says which and why."""


@dataclasses.dataclass
class Answer:
    tokens: list
    text: str
    first_token_s: float
    evaluated: int  # prompt tokens that had to be computed
    reused: int  # prompt tokens whose keys and values were there already


class Runtime:
    """One server process with one slot. Use as a context manager, or call stop()."""

    def __init__(self, python, model, slot_dir, context_tokens, log_path):
        self.log_path = log_path
        self.log = open(log_path, "ab")
        self.process = subprocess.Popen(
            [python, os.path.join(HERE, "server.py"), model, slot_dir, str(context_tokens)],
            stdout=subprocess.PIPE, stderr=self.log, stdin=subprocess.DEVNULL)
        try:
            self.url = self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def _wait_ready(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        seen = b""
        while time.monotonic() < deadline:
            if not select.select([self.process.stdout], [], [], 0.2)[0]:
                continue
            part = os.read(self.process.stdout.fileno(), 4096)
            if not part:
                break
            seen += part
            for line in seen.split(b"\n")[:-1]:
                if line.startswith(b"ready "):
                    return line.split()[1].decode()
        raise RuntimeFailure(f"the runtime did not start: see {self.log_path}")

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self.log.close()

    def _post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            return urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S)
        except urllib.error.HTTPError as error:
            said = error.read().decode()
            raise RuntimeFailure(f"{path}: HTTP {error.code}: {said}") from None
        except OSError as error:
            raise RuntimeFailure(f"{path}: {error}") from None

    def tokenize(self, text):
        with self._post("/tokenize", {"content": text, "add_special": True}) as reply:
            return json.load(reply)["tokens"]

    def complete(self, prompt_tokens, count):
        """Greedy continuation of the prompt by `count` tokens."""
        body = {"prompt": prompt_tokens, "n_predict": count, "temperature": 0, "id_slot": 0,
                "cache_prompt": True, "return_tokens": True, "ignore_eos": True, "stream": True}
        started, first_token_s = time.monotonic(), None
        tokens, text, timings = [], "", {}
        with self._post("/completion", body) as reply:
            for line in reply:
                if not line.startswith(b"data: "):
                    continue
                event = json.loads(line[6:])
                if event.get("tokens") and first_token_s is None:
                    first_token_s = time.monotonic() - started
                tokens += event.get("tokens", [])
                text += event.get("content", "")
                timings = event.get("timings", timings)
        if len(tokens) != count:
            raise RuntimeFailure(f"asked for {count} tokens, got {len(tokens)}")
        return Answer(tokens, text, first_token_s, timings["prompt_n"], timings["cache_n"])

    def save(self, name):
        """Writes the slot's KV state to the slot directory; (bytes, seconds)."""
        started = time.monotonic()
        with self._post("/slots/0?action=save", {"filename": name}) as reply:
            written = json.load(reply)["n_written"]
        if not written:  # the server reports a failed save this way, with HTTP 200
            raise RuntimeFailure(f"the runtime could not write {name}: see {self.log_path}")
        return written, time.monotonic() - started

    def restore(self, name):
        """Loads the slot's KV state from the slot directory; (bytes, seconds)."""
        started = time.monotonic()
        with self._post("/slots/0?action=restore", {"filename": name}) as reply:
            read = json.load(reply)["n_read"]
        return read, time.monotonic() - started


def long_prompt(tokens_wanted):
    """Text of about that many tokens in the model of make_model.py (one per letter)."""
    lines, length, number = [], 0, 0
    topics = ("the quarterly report", "a support conversation", "the source of a parser",
              "the minutes of a meeting", "a long contract", "notes on caching")
    while length < tokens_wanted:
        number += 1
        lines.append(f"Paragraph {number} of {topics[number * 5 % len(topics)]}, "
                     f"item {number * 7919 % 1000}: nothing in it repeats the one before. ")
        length += len(lines[-1])
    return "".join(lines)[:tokens_wanted]
