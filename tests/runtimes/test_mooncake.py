"""Mooncake's store, unmodified: a master and two clients that offload to the mount, both kinds of
files. Each client has a directory of its own, as Mooncake wants it (bucket numbers are a client's own).

Everything is killed, not ended: what was acknowledged is there all the same.
"""

import os
import socket
import subprocess

import pytest

import kvmount
import recipes
import tiers
import wheels

OBJECTS = 96 if kvmount.FULL else 12
SIZE = 1 << 20


def small(objects):
    """For small and few objects, quickly: a bucket would wait for hundreds of objects, a heartbeat
    takes 10 s."""
    return {"MOONCAKE_OFFLOAD_HEARTBEAT_INTERVAL_SECONDS": "1",
            "MOONCAKE_OFFLOAD_BUCKET_KEYS_LIMIT": "1",
            "MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES": str(64 << 20),
            "MOONCAKE_GLOBAL_SEGMENT_SIZE": str(2 * objects * SIZE + (32 << 20)),
            "MOONCAKE_LOCAL_BUFFER_SIZE": str(64 << 20), "MOONCAKE_LOCAL_HOSTNAME": "127.0.0.1",
            "MOONCAKE_PROTOCOL": "tcp"}


def free_ports(count):
    """Ports that nobody listens on right now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Cluster:
    """A master and a client for each directory, with the settings of a recipe; `more`: others of the
    environment."""

    def __init__(self, python, recipe, directories, log, objects=OBJECTS, more=None):
        wheel = wheels.mooncake()
        program = os.path.join(wheel, "mooncake", "mooncake_master")
        os.chmod(program, 0o755)
        rpc, metrics = free_ports(2)
        options = [f"{option}={value}" for option, value in recipe.options.items()]
        self.log = open(log, "ab")
        self.clients = []
        self.master = subprocess.Popen([program, *options, f"--rpc_port={rpc}",
                                        f"--metrics_port={metrics}"],
                                       stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        try:
            kvmount.wait_until(lambda: self._listens(rpc), 20, "Mooncake's master")
            for directory in directories:
                os.makedirs(directory, exist_ok=True)
                self.clients.append(tiers.Tier(
                    python, "mooncake_store", {"wheel": wheel, "count": objects, "bytes": SIZE},
                    {**recipe.environment, **small(objects), **(more or {}), "MOONCAKE_MASTER": f"127.0.0.1:{rpc}",
                     "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH": directory}))
            for client in self.clients:
                client.ready()
        except BaseException:
            self.kill()
            raise

    def _listens(self, port):
        assert self.master.poll() is None, f"mooncake_master ended: {self.log.name}"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def kill(self):
        for client in self.clients:
            client.kill()
        self.master.kill()
        self.master.wait()
        self.log.close()


@pytest.fixture(params=["mooncake_file", "mooncake_bucket"])
def kind(request):
    return request.param


@pytest.fixture
def start(kind, place, venv_python, tmp_path):
    """start() gives a new Cluster of two clients; start(1) of the first of them."""
    recipe = recipes.Recipe(kind, place)
    first = recipe.environment["MOONCAKE_OFFLOAD_FILE_STORAGE_PATH"]
    running = []

    def new(clients=2):
        cluster = Cluster(venv_python, recipe, [first, first + "-other"][:clients],
                          tmp_path / f"master-{len(running)}.log")
        running.append(cluster)
        return cluster

    yield new
    for cluster in running:
        cluster.kill()


def wait_for(client, count):
    """A client tells the master what it has on disk some time after its start."""
    kvmount.wait_until(lambda: client.ask("find", range(OBJECTS)) == count, 20,
                       f"{count} objects at the master")


def bytes_files(place):
    """The files that hold objects' bytes."""
    return [path for path in tiers.files(place) if not path.endswith(".meta")]


def test_objects_survive_restarts_and_a_removed_file(kind, start, place, shared_mount):
    everything = range(OBJECTS)
    cluster = start()
    one, other = cluster.clients
    half = OBJECTS // 2
    # At the same time: both wait for their next heartbeat, and both find all.
    one.tell("save", range(half))
    other.tell("save", range(half, OBJECTS))
    saved = [client.answer() for client in cluster.clients]
    assert [answer["answer"] for answer in saved] == [True, True]
    assert max(answer["began"] for answer in saved) < min(answer["ended"] for answer in saved)
    cluster.kill()
    assert len(bytes_files(place)) == OBJECTS

    shared_mount.remount()
    cluster = start()
    for client in cluster.clients:
        wait_for(client, OBJECTS)
        assert client.ask("load", everything) == ["right"] * OBJECTS

    # One file goes: its object is a miss for both, and nothing else is.
    os.unlink(bytes_files(place)[0])
    answers, _ = tiers.together(cluster.clients, "load", everything)
    assert answers[0] == answers[1] and sorted(set(answers[0])) == ["absent", "right"]
    assert answers[0].count("absent") == 1
    gone = answers[0].index("absent")
    cluster.kill()
    cluster = start()
    one = cluster.clients[0]
    others = [number for number in everything if number != gone]
    kvmount.wait_until(lambda: one.ask("find", others) == len(others), 20, "the other objects")
    assert one.ask("load", everything) == answers[0]
    assert one.ask("find", [gone]) == 0
    assert one.ask("save", [gone])
    assert one.ask("load", everything) == ["right"] * OBJECTS
    cluster.kill()

    if not kvmount.PLAIN:
        assert {tiers.known(path, "runtime") for path in tiers.files(place)} == {kind}
        policies = {tiers.known(path, "policy") for path in tiers.files(place)}
        assert policies == {recipes.policy(kind)}
        keys = tiers.by_prefix(place)
        assert len(keys) == (OBJECTS if kind == "mooncake_file" else 0)  # A bucket holds several.
