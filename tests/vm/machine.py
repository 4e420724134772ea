"""What stands in the guest: mounts of kvcachefs, the kernel's NFS server and its client."""

import os

import guest
import kvmount

USER = 1000  # who works on the client's side
HOST = "10.0.2.2"  # the machine around the guest, where it hears on 127.0.0.1
ADDRESS = "10.0.2.15/24"  # the guest's own there
README = os.path.join(kvmount.ROOT, "README.md")


class Node:
    """A mount of kvcachefs in the guest. Other names than these are methods of kvmount.Mount, run there."""

    def __init__(self, vm, name, *options):
        self.name, self.worker = name, vm.worker()
        self.mnt = self.worker.call(guest.make_node, name, list(options))

    def __getattr__(self, method):
        return lambda *arguments, seconds=600: self.worker.call(
            guest.on_node, self.name, method, arguments, seconds=seconds)

    def path(self, *names):
        return os.path.join(self.mnt, *names)

    def kvcachefs(self, *words):
        """`kvcachefs WORDS...`: what it prints."""
        done = self.cli(*words)
        assert done.returncode == 0, done
        return done.stdout

    def pool(self):
        return self.status()["pool"]


class Server:
    """The kernel's NFS server, as Debian's units start it."""

    THREADS = 8

    def __init__(self, vm):
        self.vm = vm
        vm.run("""
            modprobe -a fuse nfsd nfs nfsv3 nfsv4
            mkdir -p /run/rpc_pipefs /run/rpcbind /var/lib/nfs/nfsdcld
            mount -t nfsd nfsd /proc/fs/nfsd
            mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
            : >/etc/exports; : >/var/lib/nfs/etab; : >/var/lib/nfs/rmtab
            echo 10 >/proc/fs/nfsd/nfsv4leasetime
            echo 10 >/proc/fs/nfsd/nfsv4gracetime
            rpcbind -w
            nfsdcld
            rpc.mountd
        """)
        self.up()

    def export(self, line):
        """A line of /etc/exports."""
        self.vm.run(f"echo '{line}' >>/etc/exports; exportfs -ra")

    def up(self):
        self.vm.run(f"rpc.nfsd {self.THREADS}")

    def down(self):
        """Whoever calls it is refused, and tries again."""
        self.vm.run("rpc.nfsd 0")

    def block(self):
        """Nobody answers whoever calls it."""
        self.vm.run("nft add table inet cut; nft 'add chain inet cut in { type filter hook input priority 0; }'; "
                    "nft add rule inet cut in tcp dport 2049 drop; nft add rule inet cut in tcp sport 2049 drop")

    def unblock(self):
        self.vm.run("nft delete table inet cut")


def export_line(directory):
    """The README's line of /etc/exports, for this directory and a client here."""
    with open(README) as readme:
        line, = (line.split() for line in readme if "fsid=" in line and line.startswith("    /mnt/kvcachefs "))
    return f"{directory} 127.0.0.1{line[1][line[1].index('('):]}"


class Client:
    """A directory that the kernel's NFS client has mounted."""

    def __init__(self, vm, exported, version, options=""):
        self.vm, self.path = vm, f"/vm/client-{version}{exported.replace('/', '-')}"
        self.source, self.options = f"127.0.0.1:{exported}", f"vers={version}{options}"
        if version == "3":
            self.options += ",nolock"

    def __enter__(self):
        self.vm.run(f"mkdir -p {self.path}; mount -t nfs -o {self.options} {self.source} {self.path}")
        return self.path

    def __exit__(self, kind, *_):
        if self.vm.is_up():
            self.vm.run(f"umount {self.path} || umount -f -l {self.path}")


class ClientOfHost:
    """The guest's kernel has mounted what this machine exports, by the line that `kvcachefs export` prints."""

    def __init__(self, vm, export):
        self.vm, self.path = vm, f"/vm/host-{export.port}"
        self.line = export.mount_line().replace("127.0.0.1:", f"{HOST}:")

    def __enter__(self):
        self.vm.run(f"""
            modprobe -a virtio_net nfs nfsv3 nfsv4
            ip link set eth0 up
            ip address replace {ADDRESS} dev eth0
            mkdir -p {self.path}
            {self.line} {self.path}
        """)
        return self.path

    def __exit__(self, *_):
        if self.vm.is_up():
            self.vm.run(f"umount {self.path} || umount -f -l {self.path}; rmdir {self.path}")
