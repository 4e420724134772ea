"""llama.cpp's server, unmodified: KV state saved to the mount continues with the same tokens.

The comparison of tokens has teeth: the model's answer depends on all of the cached keys and
values, which test_damage_changes_the_answer proves.
"""

import os
import threading
import time

import pytest

import kvmount
import make_model
import recipes
import runtime
import tiers
from programs import run

LAYERS = 16  # half of the quickstart's: half the arithmetic, 64 KiB of state per token
PROMPT_TOKENS = 200
ANSWER_TOKENS = 24
CONTEXT = 1024
SAVES = 5  # of two processes at the same time


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    path.write_bytes(make_model.build(make_model.Shape(layers=LAYERS), seed=1))
    return str(path)


@pytest.fixture
def slots(place):
    """The directory for slots that the recipe makes, with what it tells the mount of it."""
    recipe = recipes.Recipe("llama_cpp", place)
    path = recipe.options["--slot-save-path"]
    if kvmount.PLAIN:
        os.mkdir(path)
    else:
        run(["sh", "-ec", recipe.text[:recipe.text.index("llama-server")]])
    return path


@pytest.fixture
def start(venv_python, model, slots, tmp_path):
    """start() gives a new runtime process that saves to the mount; all are ended at the end."""
    running = []

    def new():
        server = runtime.Runtime(venv_python, model, slots, CONTEXT,
                                 str(tmp_path / f"runtime-{len(running)}.log"))
        running.append(server)
        return server

    yield new
    for server in running:
        server.stop()


def converse(server, name, prompt):
    """Evaluates, saves, goes on: (conversation so far, the tokens that follow, bytes saved)."""
    first = server.complete(prompt, ANSWER_TOKENS)
    written, _ = server.save(name)
    conversation = prompt + first.tokens
    return conversation, server.complete(conversation, ANSWER_TOKENS).tokens, written


def assert_continues(server, name, conversation, expected, written):
    assert server.restore(name)[0] == written
    answer = server.complete(conversation, ANSWER_TOKENS)
    assert answer.reused == len(conversation) - 1 and answer.evaluated == 1
    assert answer.tokens == expected


@pytest.mark.promise(7)
def test_same_tokens_after_restart_of_runtime_and_mount(start, slots, shared_mount):
    server = start()
    prompt = server.tokenize(runtime.long_prompt(PROMPT_TOKENS))
    saved = converse(server, "state.bin", prompt)
    assert os.path.getsize(os.path.join(slots, "state.bin")) == saved[2]
    server.stop()
    shared_mount.remount()
    server = start()
    assert_continues(server, "state.bin", *saved)

    # Overwritten in place, as this runtime does: the new state is what is found.
    again = converse(server, "state.bin", prompt[:1] + prompt[50:150])
    assert again[2] != saved[2]
    server.stop()
    shared_mount.remount()
    assert_continues(start(), "state.bin", *again)


@pytest.mark.skipif(kvmount.PLAIN, reason="a plain directory has no daemon to kill")
def test_same_tokens_after_kill_of_the_daemon(start, shared_mount):
    server = start()
    prompt = server.tokenize(runtime.long_prompt(PROMPT_TOKENS))
    saved = converse(server, "state.bin", prompt)
    shared_mount.kill()
    with pytest.raises(runtime.RuntimeFailure):
        server.restore("state.bin")  # The mount is dead; the runtime says so and lives on.
    shared_mount.start()
    assert_continues(server, "state.bin", *saved)
    server.stop()
    assert_continues(start(), "state.bin", *saved)


@pytest.mark.promise(1, 7)
@pytest.mark.skipif(kvmount.PLAIN, reason="a plain directory has no daemon to kill")
def test_kill_during_a_save_leaves_a_whole_state_or_none(start, slots, shared_mount):
    server = start()
    prompt = server.tokenize(runtime.long_prompt(PROMPT_TOKENS))
    path = os.path.join(slots, "state.bin")
    for share in (0.0, 0.2, 0.5, 0.8) if kvmount.FULL else (0.0, 0.6):
        old = converse(server, "state.bin", prompt[:100])
        first = server.complete(prompt, ANSWER_TOKENS)
        conversation = prompt + first.tokens

        outcome = []

        def save():
            try:
                outcome.append(server.save("state.bin")[0])
            except (runtime.RuntimeFailure, OSError) as failure:
                outcome.append(failure)

        # The save overwrites the name: its size falls, then grows to that of the new state.
        saver = threading.Thread(target=save)
        saver.start()
        kvmount.wait_until(lambda: outcome or share * old[2] <= os.stat(path).st_size < old[2]
                           or os.stat(path).st_size > old[2], 20, "progress of the save")
        shared_mount.kill()
        saver.join()
        shared_mount.start()
        following = server.complete(conversation, ANSWER_TOKENS).tokens

        # Old, new or gone: all three are right, anything between is not.
        if os.path.exists(path):
            if os.path.getsize(path) == old[2]:
                assert_continues(server, "state.bin", *old)
            else:
                read = server.restore("state.bin")[0]
                assert server.complete(conversation, ANSWER_TOKENS).tokens == following
                assert read == os.path.getsize(path)


def test_damage_changes_the_answer(start, slots):
    server = start()
    prompt = server.tokenize(runtime.long_prompt(PROMPT_TOKENS))
    conversation, expected, written = converse(server, "state.bin", prompt)
    with open(os.path.join(slots, "state.bin"), "r+b") as file:
        layer = written // (2 * LAYERS)
        file.seek(10 * layer + layer // 4)  # inside one layer's values, clear of all headers
        file.write(bytes(64 << 10))
    assert server.restore("state.bin")[0] == written
    assert server.complete(conversation, ANSWER_TOKENS).tokens != expected


def test_the_mount_knows_a_slot_file(start, slots):
    server = start()
    server.complete(server.tokenize("hello"), 1)
    server.save("state.bin")
    if not kvmount.PLAIN:
        path = os.path.join(slots, "state.bin")
        assert tiers.known(path, "runtime") == "llama_cpp"
        assert tiers.known(path, "policy") == recipes.policy("llama_cpp")
        assert tiers.known(path, "prefix") is None  # A user's name says nothing of the prompt.


def test_a_miss_and_a_removed_slot_file(start, slots):
    """The runtime says HTTP 400 and computes what it cannot load; other slots' files are as good."""
    server = start()
    prompt = server.tokenize(runtime.long_prompt(PROMPT_TOKENS))
    kept = converse(server, "kept.bin", prompt[:100])
    conversation, _, _ = converse(server, "gone.bin", prompt)
    with pytest.raises(runtime.RuntimeFailure, match="HTTP 400"):
        server.restore("never-saved.bin")
    os.unlink(os.path.join(slots, "gone.bin"))
    with pytest.raises(runtime.RuntimeFailure, match="HTTP 400"):
        server.restore("gone.bin")
    assert_continues(server, "kept.bin", *kept)

    server = start()
    with pytest.raises(runtime.RuntimeFailure, match="HTTP 400"):
        server.restore("gone.bin")
    answer = server.complete(conversation, ANSWER_TOKENS)
    assert answer.reused == 0 and answer.evaluated == len(conversation)
    assert os.listdir(slots) == ["kept.bin"]


def test_two_processes_on_one_directory(start):
    """Each saves its own conversation while the other saves; then each loads the other's."""
    servers = [start(), start()]
    prompts = [servers[0].tokenize(runtime.long_prompt(PROMPT_TOKENS))[skip:]
               for skip in (0, PROMPT_TOKENS // 2)]
    first = [server.complete(prompt, ANSWER_TOKENS)
             for server, prompt in zip(servers, prompts)]
    barrier = threading.Barrier(2, timeout=60)
    saved = [[], []]

    def save(which):
        for _ in range(SAVES):
            barrier.wait()
            began = time.monotonic()
            written, _ = servers[which].save(f"{which}.bin")
            saved[which].append((began, time.monotonic(), written))

    threads = [threading.Thread(target=save, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(times) for times in saved] == [SAVES, SAVES]
    assert any(max(one[0], other[0]) < min(one[1], other[1]) for one, other in zip(*saved))

    conversations = [prompt + answer.tokens for prompt, answer in zip(prompts, first)]
    following = [server.complete(conversation, ANSWER_TOKENS).tokens
                 for server, conversation in zip(servers, conversations)]
    for which, server in enumerate(servers):
        other = 1 - which
        assert_continues(server, f"{other}.bin", conversations[other], following[other],
                         saved[other][0][2])
