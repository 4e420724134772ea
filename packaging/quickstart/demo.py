#!/usr/bin/env python3
"""The two halves of the quickstart: evaluate and save, then load and continue.

    demo.py save     --python P --model M --dir D --notes FILE
    demo.py continue --python P --model M --dir D --notes FILE

`save` starts the runtime, has it evaluate a long prompt and write a few tokens, saves its KV
state to D, and lets it go on writing: those tokens are the reference. `continue` is run after
the runtime and the mount were restarted; it loads the state from D and must write exactly the
reference. FILE carries the tokens and times from one half to the other and lies outside D.
Exit status 1 when the tokens differ or the runtime refuses.
"""

import argparse
import json
import os
import sys

import runtime

STATE_NAME = "conversation.bin"
ANSWER_TOKENS = 24
CONTEXT_SLACK = 256  # tokens beyond the prompt: the answers and the text's rounding


def say(text):
    print("  " + text, flush=True)


def megabytes(count):
    return f"{count / 1e6:.0f} MB"


def start(args):
    server = runtime.Runtime(args.python, args.model, args.dir, args.tokens + CONTEXT_SLACK,
                             args.log)
    say(f"the runtime answers on {server.url}, pid {server.process.pid}")
    return server


def save(args):
    with start(args) as server:
        prompt = server.tokenize(runtime.long_prompt(args.tokens))
        say(f"evaluating a prompt of {len(prompt)} tokens: nothing is cached yet ...")
        first = server.complete(prompt, ANSWER_TOKENS)
        say(f"first token after {first.first_token_s:.2f} s; the answer begins: {first.text!r}")
        written, seconds = server.save(STATE_NAME)
        say(f"saved the KV state: {os.path.join(args.dir, STATE_NAME)}, {megabytes(written)} "
            f"in {seconds:.2f} s")
        conversation = prompt + first.tokens
        reference = server.complete(conversation, ANSWER_TOKENS)
        say(f"it goes on with: {reference.text!r} (the reference)")
    notes = {"conversation": conversation, "reference": reference.tokens,
             "reference_text": reference.text, "first_token_s": first.first_token_s,
             "evaluated": first.evaluated, "bytes": written, "save_s": seconds}
    with open(args.notes, "w", encoding="utf-8") as file:
        json.dump(notes, file)
    return 0


def go_on(args):
    with open(args.notes, encoding="utf-8") as file:
        notes = json.load(file)
    with start(args) as server:
        read, load_s = server.restore(STATE_NAME)
        answer = server.complete(notes["conversation"], ANSWER_TOKENS)
    total_s = load_s + answer.first_token_s
    same = answer.tokens == notes["reference"] and read == notes["bytes"]
    say(f"loaded the KV state: {megabytes(read)} in {load_s:.2f} s")
    print()
    say(f"time to first token, evaluating the prompt:  {notes['first_token_s']:7.2f} s   "
        f"({notes['evaluated']} tokens computed)")
    say(f"time to first token, loading its KV state:   {total_s:7.2f} s   "
        f"({answer.evaluated} token computed, {answer.reused} reused; "
        f"{load_s:.2f} s of it is the load)")
    print()
    say(f"tokens before the restart: {notes['reference']}")
    say(f"tokens after the restart:  {answer.tokens}")
    say(f"the same {len(answer.tokens)} tokens: {'YES' if same else 'NO'}")
    if answer.reused == 0:
        say("but the runtime did not use what it loaded")
    return 0 if same and answer.reused > 0 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("half", choices=("save", "continue"))
    parser.add_argument("--python", required=True, help="interpreter that has xllamacpp")
    parser.add_argument("--model", required=True)
    parser.add_argument("--dir", required=True, help="where the runtime saves KV state")
    parser.add_argument("--notes", required=True)
    parser.add_argument("--log", default=os.devnull, help="the runtime's own log")
    parser.add_argument("--tokens", type=int, default=1000, help="length of the prompt")
    args = parser.parse_args()
    try:
        return save(args) if args.half == "save" else go_on(args)
    except runtime.RuntimeFailure as failure:
        print(f"quickstart: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
