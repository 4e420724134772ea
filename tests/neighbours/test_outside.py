"""What comes from outside is not believed: from who can reach the metrics port, and in names."""

import os
import socket

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="what kvcachefs takes from outside")


def send_without_end(port, head, part, most):
    """Sends `part` again and again behind the head, `most` bytes at most: (how many the server took, what it said)."""
    sent, said = 0, b""
    with socket.create_connection(("127.0.0.1", port), timeout=10 * kvmount.SLOWNESS) as client:
        try:
            client.sendall(head)
            while sent < most:
                client.sendall(part)
                sent += len(part)
        except OSError:
            pass
        try:
            said = client.recv(200)
        except OSError:
            pass
    return sent, said


@pytest.mark.gate
def test_nothing_behind_the_head_of_a_request_is_read():
    """A body of any length, in chunks or not, a head without end: no memory, and the next client is answered."""
    port = kvmount.free_port()
    with kvmount.Mount("metrics", options=["--metrics", f"127.0.0.1:{port}"]) as mount:
        before = kvmount.rss_bytes(mount.pid())
        part = b"10000\r\n" + bytes(0x10000) + b"\r\n"
        most = 256 << 20
        for method in (b"POST", b"PUT", b"GET", b"PATCH", b"DELETE", b"OPTIONS", b"BREW"):
            head = method + b" /metrics HTTP/1.1\r\nHost: x\r\n"
            for more in (b"Transfer-Encoding: chunked\r\n\r\n", b"Content-Length: 1073741824\r\n\r\n"):
                sent, said = send_without_end(port, head + more, part, most)
                # What the kernel's buffers hold is taken by nobody.
                assert sent < most, (method, more, sent)
                assert not said or said.startswith(b"HTTP/1.1 "), said
                if method == b"POST" and said:
                    assert said.startswith(b"HTTP/1.1 405 "), said
        for head in (b"GET /metrics HTTP/1.1\r\nHost: x\r\n", b"GET /"):
            sent, _ = send_without_end(port, head, b"X-Y: " + b"z" * 1000 + (b"\r\n" if b"\n" in head else b""), most)
            assert sent < most, sent
        assert kvmount.SANITIZER or kvmount.rss_bytes(mount.pid()) - before < 16 << 20
        with socket.create_connection(("127.0.0.1", port), timeout=10 * kvmount.SLOWNESS) as client:
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.mark.gate
def test_a_name_makes_no_line_of_the_log(tmp_path):
    """The log names what it is about; a name of a file is any bytes, and one of them ends a line."""
    forged = b"2026-01-01T00:00:00.000+00:00 1 error forged\x1b[31m\" errno=\"0"
    name = b"a\n" + forged

    def log():
        with open(mount.log, "rb") as file:
            return file.read()

    pool = os.path.join(tmp_path, "pool")
    with kvmount.Mount("names", options=["--pool", f"dir://{pool}"]) as mount:
        with open(os.fsencode(mount.mnt) + b"/" + name, "wb") as file:
            file.write(b"bytes")
        # The pool comes, and something is in the way of the name there: that is told by its path.
        os.makedirs(os.fsencode(pool) + b".new/" + name, 0o700)
        os.rename(pool + ".new", pool)
        kvmount.wait_until(lambda: b"not published" in log(), 30, "a word about the name")
        line, = [line for line in log().splitlines() if b"not published" in line]
        assert b'path="a\\x0a2026-01-01T00:00:00.000+00:00 1 error forged\\x1b[31m\\x22 errno=\\x220"' in line, line
        assert b"\x1b" not in log() and b"\n2026-01-01" not in log()
