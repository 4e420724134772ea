#!/usr/bin/env python3
"""The runtime's part of demo-two-servers.sh, one part a call.

    two_servers.py save|load|again|anew --python P --model M --dir D --notes FILE
    two_servers.py table --notes FILE --flush-ms N

`save` is run on server 1, as in demo.py: evaluate a long prompt, save its KV state to D, go on
(the reference). The others are run on server 2, each with a runtime process of its own: `load`
and `again` load the state from D and must write exactly the reference, `anew` evaluates the
prompt with no state. `table` prints what each took. FILE carries tokens and times from one to
the next. Exit status 1 and one line when tokens differ or the runtime refuses.
"""

import argparse
import json
import os
import signal
import sys

import demo
import runtime


def same_or_fail(found, wanted, what):
    if found != wanted:
        demo.say(f"tokens on server 1: {wanted}")
        demo.say(f"tokens on server 2: {found}")
        raise runtime.RuntimeFailure(f"server 2 answers with other tokens {what}")


def load(args, notes):
    with demo.start(args) as server:
        read, load_s = server.restore(demo.STATE_NAME)
        if read != notes["bytes"]:
            raise runtime.RuntimeFailure(
                f"server 2 loaded {read} bytes of KV state, server 1 saved {notes['bytes']}")
        answer = server.complete(notes["conversation"], demo.ANSWER_TOKENS)
    same_or_fail(answer.tokens, notes["reference"], "after it has loaded the KV state")
    if answer.reused == 0:
        raise runtime.RuntimeFailure("server 2 did not use the KV state that it has loaded")
    demo.say(f"loaded the KV state: {demo.megabytes(read)} in {load_s:.2f} s; first token "
             f"{answer.first_token_s:.2f} s later")
    demo.say(f"it goes on with: {answer.text!r} "
             f"({answer.evaluated} token computed, {answer.reused} reused)")
    notes[args.part] = {"load_s": load_s, "total_s": load_s + answer.first_token_s,
                        "tokens": answer.tokens}


def anew(args, notes):
    prompt = notes["conversation"][:-demo.ANSWER_TOKENS]
    with demo.start(args) as server:
        answer = server.complete(prompt, demo.ANSWER_TOKENS)
    same_or_fail(answer.tokens, notes["conversation"][len(prompt):], "when it computes by itself")
    demo.say(f"first token after {answer.first_token_s:.2f} s, {answer.evaluated} tokens computed")
    notes["anew_s"] = answer.first_token_s


def table(args, notes):
    size = demo.megabytes(notes["bytes"])
    first, again = notes["load"], notes["again"]
    for server, what, seconds in (
            ("1", f"computing the prompt, {notes['evaluated']} tokens", notes["first_token_s"]),
            ("1", f"saving its KV state, {size}", notes["save_s"]),
            ("1", "waiting until it is on the pool: flush", args.flush_ms / 1000),
            ("2", "loading it the first time: from the pool", first["load_s"]),
            ("2", "loading it again: it is local now", again["load_s"]),
            ("2", "computing the prompt anew", notes["anew_s"])):
        demo.say(f"server {server}  {what:<44} {seconds:7.2f} s")
    print()
    demo.say(f"time to first token on server 2, computing the prompt: {notes['anew_s']:7.2f} s")
    demo.say(f"time to first token on server 2, state from the pool:  {first['total_s']:7.2f} s")
    demo.say(f"time to first token on server 2, state is local now:   {again['total_s']:7.2f} s")
    print()
    demo.say(f"tokens on server 1: {notes['reference']}")
    demo.say(f"tokens on server 2: {first['tokens']}")
    demo.say(f"the same {len(first['tokens'])} tokens: YES")


def main():
    # As an exception it ends the runtime, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("save", "load", "again", "anew", "table"))
    parser.add_argument("--python", help="interpreter that has xllamacpp")
    parser.add_argument("--model")
    parser.add_argument("--dir", help="where the runtime saves KV state")
    parser.add_argument("--notes", required=True)
    parser.add_argument("--log", default=os.devnull, help="the runtime's own log")
    parser.add_argument("--tokens", type=int, default=1000, help="length of the prompt")
    parser.add_argument("--flush-ms", type=int, help="what kvcachefs flush took")
    args = parser.parse_args()
    try:
        if args.part == "save":
            return demo.save(args)
        with open(args.notes, encoding="utf-8") as file:
            notes = json.load(file)
        {"load": load, "again": load, "anew": anew, "table": table}[args.part](args, notes)
        with open(args.notes, "w", encoding="utf-8") as file:
            json.dump(notes, file)
        return 0
    except runtime.RuntimeFailure as failure:
        print(f"demo-two-servers: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
