#!/usr/bin/env python3
"""Measures a store that grows, is killed, and is emptied again.

    cargo build --release --bin wayleave
    bench/lives.py --urls 1000000 --hosts 1                # the queue of one host, deleted
    bench/lives.py --urls 1000000 --hosts 1000000          # start after kill -9 with a million hosts
    bench/lives.py --links 1000                            # what renewals and reports of a chunk write

Prints one JSON object: bytes on disk per URL, memory, time from a start to the first reservation, then the CPU time of deleting the
crawl by thread, the latency of other calls meanwhile, and what is left afterwards. Needs nothing but Python.
"""

import argparse
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

TICKS = os.sysconf("SC_CLK_TCK")
CRAWL = "bench-put-batches-4"
JSON = {"content-type": "application/json"}


class Server:
    """A server on a folder of its own."""

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.data = os.path.join(folder, "data")
        self.process = None

    def start(self):
        """Returns the seconds until it is ready, and until the first reservation."""
        begun = time.monotonic()
        command = [self.args.binary, "serve", "--listen", f"127.0.0.1:{self.args.port}", "--data", self.data]
        command += ["--shards", str(self.args.shards)] if not os.path.exists(self.data) else []
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(command + self.args.serve, stdout=log, stderr=log)
        while not self.answers("GET", "/readyz"):
            time.sleep(0.005)
        ready = time.monotonic() - begun
        # `wait_ms` is 0: without URLs nothing is waited for.
        while not self.answers("POST", "/v1/reservations", {"holder": "first", "groups": 1, "urls": 1, "lease_ms": 100}):
            time.sleep(0.005)
        return ready, time.monotonic() - begun

    def stop(self, how):
        self.process.send_signal(how)
        self.process.wait()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.args.port, timeout=600)

    def call(self, method, path, body=None, on=None):
        on = on or self.connect()
        on.request(method, path, json.dumps(body) if body is not None else None, JSON)
        answer = on.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]}")
        return json.loads(text) if text[:1] in (b"{", b"[") else text.decode()

    def answers(self, method, path, body=None):
        if self.process.poll() is not None:
            raise RuntimeError(f"the server ended: see {self.folder}/log")
        try:
            self.call(method, path, body)
            return True
        except (OSError, RuntimeError, http.client.HTTPException):
            return False

    def metrics(self):
        found = re.findall(r"^(wayleave_store_\w+)(?:{[^}]*})? ([0-9.e+]+)$", self.call("GET", "/metrics"), re.M)
        return {name.removeprefix("wayleave_store_"): float(value) for name, value in found}

    def cpu(self):
        """CPU seconds by thread name, without the number of a thread."""
        seconds = {}
        for task in os.listdir(f"/proc/{self.process.pid}/task"):
            try:
                with open(f"/proc/{self.process.pid}/task/{task}/stat") as file:
                    name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
            except OSError:
                continue
            fields = rest.split()
            name = re.sub(r"[-#:]?\d+$", "", name)
            seconds[name] = seconds.get(name, 0) + (int(fields[11]) + int(fields[12])) / TICKS
        return seconds

    def cpu_all(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rest(self, share=0.03, seconds=4):
        """Waits until the process uses less than this share of a core for this long."""
        quiet, before = 0, self.cpu_all()
        for _ in range(1_800):
            time.sleep(1)
            now = self.cpu_all()
            quiet = quiet + 1 if now - before <= share else 0
            if quiet >= seconds:
                return
            before = now

    def memory(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            text = file.read()
        value = lambda name: int(re.search(rf"{name}:\s+(\d+)", text).group(1)) // 1024
        return {"mib": value("VmRSS"), "anonymous_mib": value("RssAnon")}

    def written(self):
        """Bytes that the process has given to its disk."""
        with open(f"/proc/{self.process.pid}/io") as file:
            return int(re.search(r"write_bytes: (\d+)", file.read()).group(1))

    def files(self):
        for folder, _, names in os.walk(self.data):
            for name in names:
                yield os.path.join(folder, name)

    def disk(self):
        """Allocated bytes: the journal allocates ahead."""
        total = 0
        for path in self.files():
            try:
                total += os.stat(path).st_blocks * 512
            except FileNotFoundError:
                continue
        return total

    def naming(self, what):
        """How often files contain these bytes, by the last folder."""
        found = {}
        for path in self.files():
            with open(path, "rb") as file:
                count = file.read().count(what)
            if count:
                folder = os.path.basename(os.path.dirname(path))
                found[folder] = found.get(folder, 0) + count
        return found

    def queued(self):
        stats = self.call("GET", "/v1/stats")
        return next(value for key, value in walk(stats) if key == "queued")


def walk(value):
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from walk(inner)
        else:
            yield key, inner


class Probe:
    """Other calls at a fixed rate: a URL in, a visit of its host, a release."""

    def __init__(self, server, threads=2, rate=40):
        self.server, self.pause = server, 1 / rate
        self.over, self.took = threading.Event(), []
        self.failed = []
        server.call("PUT", "/v1/crawls/probe", {"delay_ms": 0})
        self.threads = [threading.Thread(target=self.run, args=(no,)) for no in range(threads)]
        for thread in self.threads:
            thread.start()

    def run(self, no):
        on = self.server.connect()
        count = 0
        while not self.over.is_set():
            begun = time.monotonic()
            try:
                self.round(on, f"https://p{no}-{count % 50}.test/{count}", no)
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                self.failed.append(str(error))
                on = self.server.connect()
            count += 1
            time.sleep(max(0, self.pause - (time.monotonic() - begun)))

    def round(self, on, url, no):
        self.timed("put", on, "/v1/urls", {"crawl": "probe", "urls": [{"url": url}]})
        ask = {"holder": f"p{no}", "crawl": "probe", "groups": 1, "urls": 1, "lease_ms": 60_000}
        got = self.timed("reserve", on, "/v1/reservations", ask)["reservations"]
        for one in got:
            results = [{"url": page["url"], "outcome": "fetched"} for page in one["urls"]]
            self.timed("release", on, f"/v1/reservations/{one['token']}/release", {"results": results})

    def timed(self, what, on, path, body):
        begun = time.monotonic()
        answer = self.server.call("POST", path, body, on)
        self.took.append((time.monotonic() - begun) * 1000)
        return answer

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()
        took = sorted(self.took)
        at = lambda share: round(took[min(len(took) - 1, int(len(took) * share))], 2)
        seen = {"calls": len(took), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1)}
        return seen | ({"failed": len(self.failed), "error": self.failed[0]} if self.failed else {})


def load(server, urls, hosts):
    """Adds URLs through the fastest door."""
    seed = 1
    while (lacking := urls - server.queued()) > urls // 200:
        seconds = min(4, max(0.1, lacking / 500_000))
        bench = [server.args.binary, "bench", "--no-null", "--address", f"127.0.0.1:{server.args.port}", "--rounds", "1"]
        bench += ["--scenario", "put-batches-4", "--hosts", str(hosts), "--known", "0", "--seed", str(seed)]
        subprocess.run(bench + ["--seconds", str(seconds)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seed += 1
    return server.queued()


def size(server, urls):
    disk = server.disk()
    return {"disk_mib": disk >> 20, "bytes_a_url": round(disk / urls, 1), **server.memory()}


def delete(server, urls, seen):
    probe, before, begun = Probe(server), server.cpu(), time.monotonic()
    time.sleep(8)
    alone = server.cpu()
    share = sum(alone.values()) - sum(before.values())
    share /= time.monotonic() - begun
    seen["calls_before"] = probe.end()
    a_call = {name: (secs - before.get(name, 0)) / len(probe.took) for name, secs in alone.items()}

    probe, before, begun = Probe(server), server.cpu(), time.monotonic()
    server.call("DELETE", f"/v1/crawls/{CRAWL}")
    answered = time.monotonic() - begun
    server.rest(share=1.3 * share + 0.03)
    seconds = time.monotonic() - begun
    seen["calls_meanwhile"] = probe.end()
    server.rest()
    # Without what the probe's calls cost before.
    own = {name: secs - before.get(name, 0) - a_call.get(name, 0) * len(probe.took) for name, secs in server.cpu().items()}
    seen["deletion"] = {
        "answered_ms": round(answered * 1000, 1),
        "seconds": round(seconds, 1),
        "cpu_s": {name: round(secs, 2) for name, secs in own.items() if secs > 0.004},
        "cpu_us_a_url": round(1e6 * sum(own.values()) / urls, 2),
    }
    seen["deleted"] = server.memory() | {"disk_mib": server.disk() >> 20, "names": server.naming(b"h0.example"), **server.metrics()}


def grow(server, seen):
    args = server.args
    server.start()
    before, begun = server.cpu_all(), time.monotonic()
    urls = load(server, args.urls, args.hosts)
    seen["urls"], seen["loaded"] = urls, size(server, urls)
    server.rest()
    seen["load_cpu_us_a_url"] = round(1e6 * (server.cpu_all() - before) / urls, 2)
    seen["rested"] = size(server, urls)
    for how, name in [] if args.no_starts else [(signal.SIGKILL, "after_kill_9"), (signal.SIGTERM, "after_stop")]:
        for _ in range(args.starts):
            server.stop(how)
            ready, first = server.start()
            seen.setdefault(name, []).append({"ready_s": round(ready, 2), "first_s": round(first, 2), "cpu_s": round(server.cpu_all(), 2)})
            server.rest()
    if not args.no_starts:
        seen["started"] = size(server, urls)
    if args.no_deletion:
        return
    delete(server, urls, seen)
    server.stop(signal.SIGTERM)
    ready, _ = server.start()
    seen["after_all"] = {"ready_s": round(ready, 2)} | server.memory() | {"disk_mib": server.disk() >> 20}


def chunks(server, seen):
    """What renewals and reports of chunks write, for as many links as the argument says."""
    args = server.args
    server.start()
    server.call("PUT", "/v1/crawls/probe", {"delay_ms": 0})
    urls = [{"url": f"https://c{n}.test/a/page/of/some/length/{n}"} for n in range(args.links)]
    server.call("POST", "/v1/urls", {"crawl": "probe", "urls": urls})
    ask = {"stage": "crawl", "worker": "w", "crawl": "probe", "max": 1, "links": args.links, "lease_ms": 3_600_000, "wait_ms": 5_000}
    on = server.connect()
    chunk = server.call("POST", "/v1/chunks/claim", ask, on)["chunks"][0]
    seen["links"], most = len(chunk["links"]), 0

    def cost(name, calls):
        nonlocal most
        before, cpu = server.written(), server.cpu_all()
        for path, body in calls:
            server.call("POST", f"/v1/chunks/{chunk['id']}/{path}", {"token": chunk["token"]} | body, on)
            most = max(most, server.disk()) if path == "renew" else most
        time.sleep(0.5)
        count = len(calls)
        seen[name] = {"calls": count, "bytes_a_call": (server.written() - before) // count, "cpu_us_a_call": round(1e6 * (server.cpu_all() - cpu) / count)}

    cost("renewals", [("renew", {"lease_ms": 3_600_000 - n}) for n in range(args.renewals)])
    done = [{"url": link["url"], "outcome": "fetched", "status": 200} for link in chunk["links"]]
    cost("reports", [("links", {"results": [one]}) for one in done])
    seen["disk_mib_at_most"] = max(most, server.disk()) >> 20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/release/wayleave")
    parser.add_argument("--urls", type=int, default=1_000_000)
    parser.add_argument("--hosts", type=int, default=50_000)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--starts", type=int, default=2, help="kills and clean stops")
    parser.add_argument("--no-starts", action="store_true")
    parser.add_argument("--no-deletion", action="store_true")
    parser.add_argument("--links", type=int, help="measure a chunk of so many links instead")
    parser.add_argument("--renewals", type=int, default=5_000)
    parser.add_argument("--port", type=int, default=7191)
    parser.add_argument("--keep", help="keep everything in this folder")
    parser.add_argument("serve", nargs="*", help="more arguments of the server, after --")
    args = parser.parse_args()
    folder = args.keep or tempfile.mkdtemp(prefix="lives-")
    os.makedirs(folder, exist_ok=True)
    server, seen = Server(args, folder), {"hosts": args.hosts, "shards": args.shards}
    try:
        chunks(server, seen) if args.links else grow(server, seen)
    finally:
        print(json.dumps(seen, indent=1))
        if server.process and server.process.poll() is None:
            server.stop(signal.SIGTERM)
        if not args.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
