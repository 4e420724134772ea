"""--metrics: text for Prometheus by HTTP."""

import http.client
import os
import re
import socket
import threading
import time

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="metrics of kvcachefs")

SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def get(port, path="/metrics", method="GET"):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10 * kvmount.SLOWNESS)
    try:
        client.request(method, path)
        answer = client.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read().decode()
    finally:
        client.close()


def parse(text):
    """Checks the format; {name: (type, {labels: value})}, with histograms under their whole name."""
    assert text.endswith("\n")
    metrics, helped = {}, set()
    current = None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in helped, f"{name} twice"
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name in helped and name not in metrics
            assert kind in ("counter", "gauge", "histogram")
            assert (kind == "counter") == name.endswith("_total"), name
            metrics[name] = (kind, {})
            current = name
        else:
            match = SAMPLE.match(line)
            assert match, line
            name, labels, value = match.groups()
            found = LABEL.findall(labels or "")
            assert ",".join(f'{k}="{v}"' for k, v in found) == (labels or ""), line
            assert name == current or (metrics[current][0] == "histogram" and
                                       re.sub("_(bucket|sum|count)$", "", name) == current), line
            key = (name[len(current):], *sorted(found))
            assert key not in metrics[current][1], f"twice: {line}"
            metrics[current][1][key] = float(value)
    assert helped == set(metrics)
    return metrics


def check_histogram(samples):
    """Buckets grow, and the last one has all."""
    for operation in {dict(key[1:])["operation"] for key in samples}:
        buckets = sorted((float(dict(key[1:])["le"]), value) for key, value in samples.items()
                         if key[0] == "_bucket" and dict(key[1:])["operation"] == operation)
        assert [v for _, v in buckets] == sorted(v for _, v in buckets)
        assert buckets[-1][0] == float("inf")
        assert buckets[-1][1] == samples[("_count", ("operation", operation))]
        assert samples[("_sum", ("operation", operation))] > 0


@pytest.mark.gate
@pytest.mark.short
def test_they_tell_what_happens(mounts):
    port = kvmount.free_port()
    mount = mounts(options=["--metrics", str(port)])
    block = f"{mount.mnt}/{'a' * 64}_my\"model_0_1.bin"
    with open(block, "wb") as file:
        file.write(b"x" * 5000)
    with open(block, "rb") as file:
        file.read()
    mount.wait_sealed(30)
    assert mount.cli("evict", block).returncode == 0
    assert not os.path.exists(block)
    status, kind, text = get(port)
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    metrics = parse(text)
    assert all(name.startswith("kvcachefs_") for name in metrics)
    series = (("model", 'my\\"model'), ("runtime", "sglang_file"))
    loads = metrics["kvcachefs_block_loads_total"][1]
    assert loads[("", *series)] == 1
    assert metrics["kvcachefs_block_loaded_bytes_total"][1][("", *series)] == 5000
    misses = metrics["kvcachefs_block_lookups_total"][1][
        ("", series[0], ("result", "miss"), series[1])]
    assert misses >= 1
    dropped = metrics["kvcachefs_dropped_files_total"][1]
    assert dropped[("", ("reason", "asked"))] == 1 and dropped[("", ("reason", "room"))] == 0
    assert metrics["kvcachefs_dropped_bytes_total"][1][("", ("reason", "asked"))] == 5000
    device = (("device", mount.nvme), ("kind", "nvme"))
    assert metrics["kvcachefs_device_capacity_bytes"][1][("", *device)] > 0
    check_histogram(metrics["kvcachefs_operation_duration_seconds"][1])
    models = mount.status()["models"]
    assert [(m["runtime"], m["model"], m["loads"]) for m in models] == [
        ("sglang_file", 'my"model', 1)]
    assert "sglang_file my\"model" in mount.cli("status", mount.mnt).stdout


def test_only_metrics_are_served(mounts):
    port = kvmount.free_port()
    mounts(options=["--metrics", f"127.0.0.1:{port}"])
    assert get(port, "/")[0] == 404
    assert get(port, "/metrics/../etc/passwd")[0] == 404
    assert get(port, method="POST")[0] == 405
    assert get(port)[0] == 200


def test_a_port_in_use_is_said(mounts):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(kvmount.MountError, match=f"--metrics: 127.0.0.1:{port}: Address"):
            mounts(options=["--metrics", str(port)])


def test_two_daemons_do_not_share_a_port(mounts):
    port = kvmount.free_port()
    mounts(name="first", options=["--metrics", str(port)])
    with pytest.raises(kvmount.MountError, match="Address already in use"):
        mounts(name="second", options=["--metrics", str(port)])


def test_silent_clients_hold_nobody_up(mounts):
    port = kvmount.free_port()
    mount = mounts(options=["--metrics", str(port)])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]
    stop = threading.Event()

    def drip():
        # One byte at a time: the deadline is the connection's, not the byte's.
        while not stop.wait(0.2):
            for client in silent:
                try:
                    client.send(b"G")
                except OSError:
                    pass

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        began = time.monotonic()
        assert get(port)[0] == 200
        # Twelve of them, two at a time, two seconds each.
        assert time.monotonic() - began < 14 * kvmount.SLOWNESS
        began = time.monotonic()
        mount.stop()
        assert time.monotonic() - began < 10 * kvmount.SLOWNESS
    finally:
        stop.set()
        dripping.join()
        for client in silent:
            client.close()


def test_wrong_addresses_are_refused(mounts):
    mount = mounts()
    for address in ("", "0", "65536", "host:", ":9100", "::1:9100", "9100x"):
        done = mount.cli("mount", "--nvme", mount.nvme, "--metrics", address, mount.control)
        assert done.returncode != 0 and "metrics" in done.stderr, done
