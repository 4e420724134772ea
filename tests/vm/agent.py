"""The guest's process 1: runs what vm.py asks for over a virtio port, each worker in a process of its own.

A message is a 4-byte length and a pickle. From the host:

    ("begin", worker, uid)                 a process that makes calls one after the other and keeps state between them
    ("call", worker, seconds, payload)     payload: a pickle of (function, arguments), read in the worker
    ("end", worker)

To the host: ("up",) once, then for each call one of

    ("done", worker, payload)              payload: a pickle of (True, value) or (False, (type, errno, traceback))
    ("died", worker, text)                 the worker has ended
    ("hung", worker, text)                 it was killed at the deadline; text: where its processes stood

The end of this process is the end of the guest (a panic; QEMU does not start it again).
"""

import glob
import os
import pickle
import selectors
import signal
import socket
import struct
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path[:0] = [HERE, TESTS, os.path.join(TESTS, "mount", "replay"),
                os.path.join(os.path.dirname(TESTS), "packaging", "quickstart")]

import guest  # pylint: disable=wrong-import-position  (here, so that workers have it at once)

guest.kvmount.SLOWNESS = 12  # Emulated.


def read_text(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError as error:
        return f"({error.strerror})\n"


def receive(read, size):
    """`size` bytes; None at the end of the stream."""
    parts = []
    while size:
        part = read(min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def receive_frame(read):
    head = receive(read, 4)
    return None if head is None else receive(read, struct.unpack("<I", head)[0])


def frame(data):
    return struct.pack("<I", len(data)) + data


def work(channel, uid):
    """The life of a worker's process."""
    os.setsid()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    while True:
        payload = receive_frame(channel.recv)
        if payload is None:
            return
        try:
            function, arguments = pickle.loads(payload)
            outcome = (True, function(*arguments))
        except BaseException as error:  # The host must learn of everything.
            outcome = (False, (type(error).__name__, getattr(error, "errno", None),
                               traceback.format_exc()))
        sys.stdout.flush()
        channel.sendall(frame(pickle.dumps(outcome)))


class Worker:
    def __init__(self, uid, to_close):
        self.channel, theirs = socket.socketpair()
        self.deadline = None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.channel.close()
                for descriptor in to_close:
                    os.close(descriptor)
                work(theirs, uid)
            finally:
                os._exit(0)
        theirs.close()

    def processes(self):
        """Those of its session: a daemon has left it."""
        for path in glob.glob("/proc/[0-9]*/stat"):
            fields = read_text(path).rpartition(") ")[2].split()
            if len(fields) > 3 and fields[3] == str(self.pid):
                yield int(path.split("/")[2])

    def where(self):
        return "".join(f"{pid} {read_text(f'/proc/{pid}/cmdline')!r}\n{read_text(f'/proc/{pid}/stack')}"
                       for pid in self.processes())

    def kill(self):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.channel.close()


class Agent:
    def __init__(self, port):
        self.port = port
        self.workers = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(port, selectors.EVENT_READ, None)

    def say(self, *message):
        data = memoryview(frame(pickle.dumps(message)))
        while data:
            data = data[os.write(self.port, data):]

    def loop(self):
        self.say("up")
        while True:
            for key, _ in self.selector.select(1):
                if key.data is not None:
                    self.hear_worker(key.data)
                elif not self.hear_host():
                    return
            now = time.monotonic()
            for name, worker in list(self.workers.items()):
                if worker.deadline is not None and now > worker.deadline:
                    self.give_up(name, worker)
            self.reap()

    def hear_host(self):
        message = receive_frame(lambda size: os.read(self.port, size))
        if message is None:
            return False
        kind, *rest = pickle.loads(message)
        if kind == "begin":
            to_close = [self.port] + [w.channel.fileno() for w in self.workers.values()]
            worker = Worker(rest[1], to_close)
            self.workers[rest[0]] = worker
            self.selector.register(worker.channel, selectors.EVENT_READ, rest[0])
        elif rest[0] not in self.workers:
            if kind == "call":
                self.say("died", rest[0], "it had ended before")
        elif kind == "call":
            worker = self.workers[rest[0]]
            worker.deadline = time.monotonic() + rest[1]
            worker.channel.sendall(frame(rest[2]))
        elif kind == "end":
            self.forget(rest[0]).channel.close()
        return True

    def forget(self, name):
        worker = self.workers.pop(name)
        self.selector.unregister(worker.channel)
        return worker

    def hear_worker(self, name):
        if name not in self.workers:
            return
        worker = self.workers[name]
        payload = receive_frame(worker.channel.recv)
        if payload is None:
            self.forget(name).channel.close()
            if worker.deadline is not None:
                self.say("died", name, f"process {worker.pid} has ended")
        else:
            worker.deadline = None
            self.say("done", name, payload)

    def give_up(self, name, worker):
        where = worker.where()
        with open("/proc/sysrq-trigger", "w") as trigger:
            trigger.write("w")  # All that hang, to the console.
        self.forget(name).kill()
        self.say("hung", name, where)

    @staticmethod
    def reap():
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def main():
    # The console is a log.
    console = os.open("/dev/console", os.O_WRONLY | os.O_NOCTTY)
    null = os.open("/dev/null", os.O_RDONLY)
    for descriptor, target in ((null, 0), (console, 1), (console, 2)):
        os.dup2(descriptor, target)
    os.environ.update(PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME="/root",
                      LC_ALL="C.UTF-8", PYTHONDONTWRITEBYTECODE="1",
                      PYTHONPATH=os.path.join(guest.kvmount.ROOT, "build", "runtime"))
    os.chdir("/")
    port = next(os.path.basename(os.path.dirname(path))
                for path in glob.glob("/sys/class/virtio-ports/*/name")
                if read_text(path).strip() == "agent")
    Agent(os.open(f"/dev/{port}", os.O_RDWR)).loop()
    os.sync()
    with open("/proc/sysrq-trigger", "w") as trigger:
        trigger.write("o")  # Off.
    time.sleep(60)


if __name__ == "__main__":
    main()
