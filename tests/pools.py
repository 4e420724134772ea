"""Pools for tests: a directory, or a real NFS server in front of one, also behind a slow link; and mounts on them."""

import atexit
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile

import kvmount

SERVER = os.path.join(kvmount.TESTS, "servers", "nfs_server.sh")


def block(number):
    """Of a file of a block, as LMCache has it: the name says what is in the file."""
    return f"meta-llama-Llama-3.1-8B-Instruct@1@0@{1000 + number}3f2a11c0de@bfloat16.data"


def store(directory, name, data, mode=None, keep_open=False):
    """As runtimes do: under another name, then by rename. Makes the directories that `name` has. Returns the path; with
    `keep_open` the descriptor, still open for writing."""
    path = os.path.join(directory, name)
    if "/" in name:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    descriptor = os.open(path + ".tmp", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        if mode is not None:
            os.fchmod(descriptor, mode)
        os.rename(path + ".tmp", path)
    except BaseException:
        os.close(descriptor)
        raise
    if keep_open:
        return descriptor
    os.close(descriptor)
    return path


def load(path):
    """The bytes; None: a miss. Whatever else goes wrong is not meant to."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def block_name(kind, number):
    """Of a file of a block, as vLLM's file tier of a model of that name has it."""
    digest = hashlib.sha256(f"{kind} {number}".encode()).hexdigest()
    return f"{kind}_1a2b3c4d5e6f_r0/{digest[:3]}/{digest[3:5]}_g0/{digest}.bin"


def free_ports():
    """Two in a row that nobody has now."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


class SharedServer:
    """The NFS server of this process: every test has a directory of its own on it. It ends with this process, however that
    ends: `nfs_server.sh serve` reads from a pipe that only this process writes to."""

    _started = None

    @classmethod
    def get(cls):
        if cls._started is None:
            cls._started = cls()
            atexit.register(cls._started.end)
        return cls._started

    def __init__(self):
        self.work = tempfile.mkdtemp(prefix="kvcachefs-nfs-", dir="/var/tmp")
        self.root = os.path.join(self.work, "export")
        os.mkdir(self.root)
        server = os.path.join(self.work, "server")
        self.port = free_ports()
        # A session of its own: a signal to the tests' process group must not end the script before the server.
        self.process = subprocess.Popen([SERVER, "serve", self.root, server, str(self.port), self.work],
                                        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)

        def is_ready():
            if self.process.poll() is not None:
                raise kvmount.MountError(f"the NFS server ended with {self.process.returncode}")
            return os.path.exists(os.path.join(server, "ready"))

        try:
            kvmount.wait_until(is_ready, 30, "the NFS server")
        except BaseException:
            self.end()
            raise

    def end(self):
        """Returns when the server has ended and its directory is gone."""
        self.process.stdin.close()
        self.process.wait(timeout=60)


class Pool:
    """`with Pool("dir")` or `with Pool("nfs")`; .uri is what a mount is given, .root the directory."""

    def __init__(self, kind, own=False, root=None, squash="No_Root_Squash", link=None):
        """`own`: an NFS server of its own, which the test may stop, kill and start again; default: a directory on the server of
        this process. `root`: a directory that is there; default: one of its own. `squash`: whom the server takes for nobody.
        `link`: a link.Link at whose far end the server is; default: it is on loopback. With any of these three the server is
        its own, too."""
        self.kind = kind
        self.root = root
        self.squash = squash
        self.own = own or root is not None or squash != "No_Root_Squash" or link is not None
        self.there, self.address = (link.there, link.address) if link else ([], "127.0.0.1")

    def __enter__(self):
        shared = SharedServer.get() if self.kind == "nfs" and not self.own else None
        self.work = tempfile.mkdtemp(prefix="kvcachefs-pool-", dir=shared.root if shared else "/var/tmp")
        if self.root is None:
            self.root = os.path.join(self.work, "export")
            os.mkdir(self.root)
        self.uri = f"dir://{self.root}"
        if self.kind == "nfs":
            self.export = f"/export/{os.path.basename(self.work)}/export" if shared else "/export"
            self.port = shared.port if shared else free_ports()
            self.uri = self.uri_through(self.port)
        if self.kind == "nfs" and self.own:
            self.server = os.path.join(self.work, "server")
            os.mkdir(self.server)
            try:
                self.up()
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *_):
        if self.kind == "nfs" and self.own:
            self.resume()
            subprocess.run([SERVER, "down", self.server], check=False, timeout=60)
        shutil.rmtree(self.work, ignore_errors=True)

    def uri_through(self, port):
        """The URI for a mount that reaches the server by another port: that of a proxy."""
        return f"nfs://{self.address}{self.export}?nfsport={port}&mountport={self.port + 1}"

    def up(self, access="RW"):
        """Starts the server, once more after kill()."""
        self._check_own()
        subprocess.run([*self.there, SERVER, "up", self.root, self.server, str(self.port),
                        self.address], check=True, timeout=60,
                       env={**os.environ, "NFS_ACCESS": access, "NFS_SQUASH": self.squash})

    def pid(self):
        """The server's process; None: there is none."""
        self._check_own()
        said = subprocess.run([SERVER, "pid", self.server], check=True, timeout=60,
                              capture_output=True, text=True).stdout.strip()
        return int(said) if said else None

    def _check_own(self):
        if not self.own:
            raise kvmount.MountError('this server serves other tests: Pool("nfs", own=True) has its own')

    def _signal(self, number):
        try:
            os.kill(self.pid() or 0, number) if self.pid() else None
        except ProcessLookupError:
            pass

    def stop(self):
        """It answers nothing any more: every thread of it has stopped."""
        self._signal(signal.SIGSTOP)
        pid = self.pid()
        kvmount.wait_until(lambda: not pid or kvmount.is_stopped(pid), 10, "the server's threads to stop")

    def resume(self):
        self._signal(signal.SIGCONT)

    def kill(self):
        self._signal(signal.SIGKILL)

    def path(self, *names):
        return os.path.join(self.root, *names)


BEAT = "100ms"  # Two mounts know each other after one of these: a test should not wait 2 s for that.


def node(pool, name, beat=BEAT, uri=None, **more):
    """A mount on the pool, as a server would have it. `beat`: for --pool-beat; None: the default of the program. `uri`: how
    the mount reaches the pool; default: pool.uri."""
    return kvmount.Mount(name, options=["--pool", uri or pool.uri, *(["--pool-beat", beat] if beat else []),
                                        *more.pop("options", [])], **more)


def state(mount):
    """What the mount says of its pool."""
    return mount.status()["pool"]


def wait_until_joined(*mounts):
    for mount in mounts:
        kvmount.wait_until(lambda mount=mount: state(mount)["nodes"] == len(mounts), 20,
                           f"{mount.name} knows {len(mounts)} nodes")


def wait_until_published(mount, files):
    kvmount.wait_until(lambda: state(mount)["published"] + state(mount)["duplicates"] >= files,
                       30, f"{mount.name} has published {files} files")


def users_bytes(pool):
    """Bytes of the users' files there."""
    total = 0
    for where, directories, names in os.walk(pool.root):
        if where == pool.root and ".kvcachefs" in directories:
            directories.remove(".kvcachefs")
        for name in names:
            try:
                total += os.lstat(os.path.join(where, name)).st_size
            except FileNotFoundError:
                pass
    return total
