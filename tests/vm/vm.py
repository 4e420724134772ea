"""A virtual machine with a small Debian (image.sh), kvcachefs, these tests and the quickstart's runtime in it, and calls
into it.

    with Vm(image) as vm:
        vm.run("modprobe nfsd")                  # a script: its output; GuestError when it fails
        vm.call(guest.load, "/vm/file")          # a function that the guest can import
        with vm.worker(uid=1000) as worker:      # a process there that keeps its state between calls
            worker.call(guest.hold, paths)

It runs without hardware virtualisation, an order of magnitude slower than this machine: deadlines are generous, and every
call has one. What outlives it is killed in the guest, and where it stood is told (VmHung).
"""

import importlib.util
import os
import pickle
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import guest
import kvmount

IMAGE = os.path.join(kvmount.ROOT, "build", "vm")
MEMORY_MIB = 2048
CPUS = 2
# At its low priority the guest may get a hundredth of a CPU for minutes, where the machine has other work.
BOOT_S = 600
CALL_S = 600
# Beyond a call's own deadline, which the guest watches.
GRACE_S = 120


class VmError(Exception):
    """The guest has gone, or does not answer any more."""


class VmHung(VmError):
    """A call in the guest had no end; says where its processes stood."""


class GuestError(Exception):
    """What a call in the guest raised: its traceback; .kind and .errno of the exception."""

    def __init__(self, kind, number, text):
        super().__init__(text)
        self.kind, self.errno = kind, number


class Worker:
    """A process in the guest."""

    def __init__(self, vm, name, uid):
        self.vm, self.name = vm, name
        vm.send("begin", name, uid)

    def call(self, function, *arguments, seconds=CALL_S):
        self.vm.send("call", self.name, seconds, pickle.dumps((function, arguments)))
        kind, name, payload = self.vm.receive(seconds + GRACE_S)
        assert name == self.name, (kind, name, self.name)
        if kind == "hung":
            raise VmHung(f"{function.__name__}{arguments!r:.300} had no end within {seconds} s:\n{payload}")
        if kind == "died":
            raise VmError(f"{function.__name__}{arguments!r:.300}: {payload}")
        good, value = pickle.loads(payload)
        if not good:
            raise GuestError(*value)
        return value

    def run(self, script, seconds=CALL_S):
        return self.call(guest.run, script, seconds=seconds)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.vm.is_up():
            self.vm.send("end", self.name)


class Vm:
    def __init__(self, image=IMAGE):
        self.image = image
        self.name = "vm"
        self.process = None
        self.connection = None
        self.workers = 0

    def __enter__(self):
        self.work = tempfile.mkdtemp(prefix="kvcachefs-vm-", dir="/var/tmp")
        self.console = os.path.join(self.work, "console")
        kvmount.live_mounts.append(self)  # Its console is shown with a failure, and the watchdog ends it.
        try:
            self._boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.abort()
        if self.connection is not None:
            self.connection.close()
        kvmount.live_mounts.remove(self)
        shutil.rmtree(self.work, ignore_errors=True)

    def _boot(self):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.join(self.work, "agent"))
            listener.listen(1)
            self._start(self._checkout_disk())
            self._wait(listener, 60)
            self.connection = listener.accept()[0]
        began = time.monotonic()
        assert self.receive(BOOT_S) == ("up",)
        print(f"the guest is up after {time.monotonic() - began:.0f} s", file=sys.__stderr__)

    def _checkout_disk(self):
        """The programs, the tests and the runtime, as /checkout."""
        checkout = os.path.join(self.work, "checkout")
        for folder in ("tests/vm", "tests/mount/replay", "packaging/quickstart"):
            shutil.copytree(os.path.join(kvmount.ROOT, folder), os.path.join(checkout, folder))
        shutil.copy(os.path.join(kvmount.TESTS, "kvmount.py"), os.path.join(checkout, "tests"))
        # The quickstart's runtime, as pip has installed it: tests/vm/requirements.txt.
        installed = importlib.util.find_spec(guest.RUNTIME)
        assert installed, f"this Python has no {guest.RUNTIME}: tests/run.sh vm gives its own what tests need"
        shutil.copytree(os.path.dirname(installed.origin), os.path.join(checkout, "build", "runtime", guest.RUNTIME))
        programs = os.path.join(checkout, "build", "release", "bin")
        os.makedirs(programs)
        for name in ("kvcachefs", "mount.kvcachefs"):
            # Without what is only for debuggers, most of it.
            subprocess.run(["strip", "-g", "-o", os.path.join(programs, name), os.path.join(kvmount.BIN, name)],
                           check=True, timeout=120)
        disk = os.path.join(self.work, "checkout.disk")
        with open(disk, "wb") as file:
            file.truncate(1 << 30)
        subprocess.run(["/sbin/mkfs.ext4", "-q", "-F", "-d", checkout, disk], check=True, timeout=120)
        return disk

    def _start(self, checkout):
        words = ["console=ttyS0", "panic=-1", "mitigations=off", "nokaslr", "random.trust_cpu=on", "tsc=reliable",
                 "no_timer_check"]
        command = [
            "nice", "-n", "10", "setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64",
            "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max,la57=off", "-smp", str(CPUS),
            "-m", str(MEMORY_MIB), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-kernel", f"{self.image}/vmlinuz", "-initrd", f"{self.image}/initrd",
            "-append", " ".join(words), "-serial", f"file:{self.console}",
            # What is written goes to a file without a name.
            "-drive", f"file={self.image}/root,if=virtio,format=raw,snapshot=on",
            "-drive", f"file={checkout},if=virtio,format=raw,readonly=on",
            # This machine is machine.HOST for it, whatever hears on 127.0.0.1 here.
            "-netdev", "user,id=net,ipv6=off", "-device", "virtio-net-pci,netdev=net,romfile=",
            "-chardev", f"socket,id=agent,path={self.work}/agent",
            "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=agent"]
        with open(os.path.join(self.work, "qemu.err"), "wb") as said:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                                            env={**os.environ, "TMPDIR": self.work})

    # ---- calls -------------------------------------------------------------------------------

    def worker(self, uid=0):
        self.workers += 1
        return Worker(self, self.workers, uid)

    def call(self, function, *arguments, seconds=CALL_S, uid=0):
        """One call in a process of its own."""
        with self.worker(uid) as worker:
            return worker.call(function, *arguments, seconds=seconds)

    def run(self, script, seconds=CALL_S, uid=0):
        return self.call(guest.run, script, seconds=seconds, uid=uid)

    def drop_caches(self):
        self.run("sync; echo 3 >/proc/sys/vm/drop_caches")

    # ---- messages ----------------------------------------------------------------------------

    def is_up(self):
        return self.process is not None and self.process.poll() is None

    def _wait(self, channel, seconds):
        deadline = time.monotonic() + seconds
        while not select.select([channel], [], [], 1)[0]:
            if not self.is_up():
                raise VmError(f"the guest has ended\n{self.logs()}")
            if time.monotonic() > deadline:
                raise VmError(f"no answer within {seconds} s\n{self.logs()}")

    def send(self, *message):
        data = pickle.dumps(message)
        try:
            self.connection.sendall(struct.pack("<I", len(data)) + data)
        except OSError as error:
            raise VmError(f"the guest has gone: {error}\n{self.logs()}") from error

    def _take(self, size, deadline):
        parts = []
        while size:
            self._wait(self.connection, max(deadline - time.monotonic(), 0))
            part = self.connection.recv(size)
            if not part:
                raise VmError(f"the guest has gone\n{self.logs()}")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def receive(self, seconds):
        deadline = time.monotonic() + seconds
        size = struct.unpack("<I", self._take(4, deadline))[0]
        return pickle.loads(self._take(size, deadline))

    # ---- what conftest.py asks of everything that lives --------------------------------------

    def logs(self):
        """The end of the console, and what QEMU has said."""
        text = ""
        for name in ("qemu.err", "console"):
            try:
                with open(os.path.join(self.work, name), errors="replace") as file:
                    text += file.read()[-4000:]
            except FileNotFoundError:
                pass
        return text

    def abort(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(60)
