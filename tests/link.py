"""A link of a given rate, with a network namespace of its own at the far end: what a server behind a network is to a client,
on one machine.

    with Link("2500mbit") as link:
        subprocess.run([*link.there, "ip", "address"], check=True)   # runs at the far end
        ...                                                          # and is reached from here at link.address

A veth pair leads to a router, a namespace of its own too, another from there to the far end; the router's two ends are shaped
by tbf, each a direction. Were it the senders' ends, a sender would know what waits there, and TCP would put next to nothing
into the queue; a switch does not tell. As root. What runs at the far end is the caller's to end. The namespaces have no name:
they last as long as their processes, and the pairs no longer than they do; those that keep them end when this process does,
however that may be.
"""

import contextlib
import json
import re
import subprocess

# TCP's segments come in pieces of up to 64 KiB, and what is more than a burst would be cut up. A timer's wake-up comes a
# millisecond late where processors are busy: less than twice that of bytes would be a lower rate.
LEAST_BURST, BURST_S = 256 << 10, 0.002
# Linux' default, which fills the queue of a link; this machine's own may be one that does not.
CONGESTION = "cubic"

_BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def bytes_a_second(rate):
    """`rate` as tc writes it, 200mbit or 2.5gbit."""
    number = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(kbit|mbit|gbit)", rate)
    if not number or not float(number[1]):
        raise ValueError(f"{rate} is no rate: write 200mbit or 2.5gbit")
    return float(number[1]) * _BITS[number[2]] / 8


class Link:
    """`queue_ms`: what would wait at the router for longer than that is dropped."""

    def __init__(self, rate, queue_ms=50):
        self.rate = rate
        self.bytes_a_second = bytes_a_second(rate)
        self.queue_ms = queue_ms

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            between, there = (stack.enter_context(_namespace()) for _ in range(2))
            self.there = _inside(there)
            self._make(stack, between, there)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _make(self, stack, between, there):
        device, router = f"kvlink{there}", _inside(between)
        _run("ip", "link", "add", device, "type", "veth", "peer", "name", "here", "netns", str(between))
        # Without it, it would go with the namespace, a moment later.
        stack.callback(subprocess.run, ["ip", "link", "delete", device], check=False, timeout=60)
        _run(*router, "ip", "link", "add", "there", "type", "veth", "peer", "name", "eth0", "netns", str(there))
        # Networks for measurements (RFC 2544): two of four addresses each, and no two devices have one number.
        first = 8 * json.loads(_run("ip", "-json", "link", "show", "dev", device))[0]["ifindex"]
        own, near, far, self.address = (_address(first + n) for n in (1, 2, 5, 6))
        for words, end, address in (([], device, own), (router, "here", near), (router, "there", far),
                                    (self.there, "eth0", self.address)):
            _run(*words, "ip", "address", "add", f"{address}/30", "dev", end)
            _run(*words, "ip", "link", "set", end, "up")
        burst = max(LEAST_BURST, int(self.bytes_a_second * BURST_S))
        for end in ("here", "there"):
            _run(*router, "tc", "qdisc", "add", "dev", end, "root", "tbf", "rate", self.rate,
                 "burst", str(burst), "latency", f"{self.queue_ms}ms")
        _run(*router, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        _run(*self.there, "ip", "link", "set", "lo", "up")
        for words, to, via in (([], f"{_address(first + 4)}/30", near), (self.there, "default", far)):
            _run(*words, "ip", "route", "add", to, "via", via, "congctl", CONGESTION)


@contextlib.contextmanager
def _namespace():
    """A process in a network namespace of its own. It ends with its standard input: also when this one is killed."""
    with subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, start_new_session=True) as keeper:
        keeper.stdout.readline()
        try:
            yield keeper.pid
        finally:
            keeper.terminate()  # Forked processes of this one may have the pipe, too.


def _inside(pid):
    return ["nsenter", f"--net=/proc/{pid}/ns/net"]


def _address(number):
    number %= 1 << 17
    return f"198.{18 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def _run(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
