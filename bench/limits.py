#!/usr/bin/env python3
"""Measures what page limits cost: the same clients, the same crawls, with and without limits.

    LIMITS=1,100,1000 bench/nodes.sh        # on three nodes over one PostgreSQL

Clients put a URL, reserve its host, release it and begin again, each in the next of the crawls and on the next node. Rounds without
limits and rounds in which every crawl has a limit of pages alternate. Prints one JSON object per number of crawls: the time and the
transactions of setting one crawl, and visits per second with their CPU time. Needs Python and psql.
"""

import argparse
import http.client
import itertools
import json
import os
import subprocess
import threading
import time

TICKS = os.sysconf("SC_CLK_TCK")
JSON = {"content-type": "application/json"}


def call(on, method, path, body=None):
    on.request(method, path, json.dumps(body), JSON)
    answer = on.getresponse()
    text = answer.read()
    if answer.status >= 300:
        raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]}")
    return json.loads(text)


def connect(address):
    return http.client.HTTPConnection(*address.rsplit(":", 1), timeout=60)


def cpu(pids):
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def transactions(args):
    """Of the database; it counts with a delay of up to a second."""
    time.sleep(1.5)
    sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    return int(subprocess.run(["psql", "-qAt", args.database, "-c", sql], check=True, capture_output=True, text=True).stdout)


def crawl_name(no):
    return f"limits-{no}"


def set_limits(args, crawls, pages):
    """Sets every crawl through the next node; returns the milliseconds each took, and the transactions of one."""
    nodes = itertools.cycle([connect(address) for address in args.address])
    before, took = transactions(args), []
    for no in range(crawls):
        begun = time.monotonic()
        call(next(nodes), "PUT", f"/v1/crawls/{crawl_name(no)}", {"delay_ms": 0, "limits": {"pages": pages}})
        took.append((time.monotonic() - begun) * 1000)
    each = (transactions(args) - before) / crawls
    took.sort()
    return {"p50_ms": round(took[len(took) // 2], 1), "max_ms": round(took[-1], 1), "transactions": round(each, 1)}


class Work:
    """Clients that put, reserve and release until they are told to end."""

    def __init__(self, args, crawls, label):
        self.args, self.crawls, self.label = args, crawls, label
        self.over, self.lock, self.visits, self.failed = threading.Event(), threading.Lock(), 0, []
        self.threads = [threading.Thread(target=self.run, args=(no,)) for no in range(args.clients)]

    def run(self, no):
        nodes = itertools.cycle([connect(address) for address in self.args.address])
        for count in itertools.count():
            if self.over.is_set():
                return
            on, crawl = next(nodes), crawl_name((no + count * self.args.clients) % self.crawls)
            try:
                visited = self.round(on, crawl, f"https://{self.label}-{no}-{count % 500}.test/{count}", no)
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                self.failed.append(str(error))
                on.close()
                continue
            with self.lock:
                self.visits += visited

    def round(self, on, crawl, url, no):
        call(on, "POST", "/v1/urls", {"crawl": crawl, "urls": [{"url": url}]})
        ask = {"holder": f"c{no}", "crawl": crawl, "groups": 1, "urls": 1, "lease_ms": 60_000}
        got = call(on, "POST", "/v1/reservations", ask)["reservations"]
        for one in got:
            results = [{"url": page["url"], "outcome": "fetched"} for page in one["urls"]]
            call(on, "POST", f"/v1/reservations/{one['token']}/release", {"results": results})
        return len(got)

    def measure(self):
        before, begun = cpu(self.args.pid), time.monotonic()
        for thread in self.threads:
            thread.start()
        time.sleep(self.args.seconds)
        self.over.set()
        for thread in self.threads:
            thread.join()
        seconds = time.monotonic() - begun
        seen = {"visits_s": round(self.visits / seconds, 1), "cpu_ms_a_visit": round(1000 * (cpu(self.args.pid) - before) / max(1, self.visits), 2)}
        return seen | ({"failed": len(self.failed), "error": self.failed[0]} if self.failed else {})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", required=True, type=lambda text: text.split(","), help="of the nodes, on loopback")
    parser.add_argument("--pid", required=True, type=lambda text: text.split(","), help="of the nodes")
    parser.add_argument("--database", required=True, help="whose transactions are counted")
    parser.add_argument("--crawls", default="1,100,1000", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--clients", default=8, type=int)
    parser.add_argument("--seconds", default=8, type=float, help="of a round")
    parser.add_argument("--rounds", default=3, type=int)
    args = parser.parse_args()
    for crawls in args.crawls:
        seen = {"crawls": crawls, "rounds": []}
        for no in range(args.rounds):
            cleared = set_limits(args, crawls, None)
            free = Work(args, crawls, f"free{crawls}-{no}").measure()
            limited = set_limits(args, crawls, 1_000_000)
            held = Work(args, crawls, f"held{crawls}-{no}").measure()
            seen["rounds"].append({"clear": cleared, "without": free, "set": limited, "with": held})
        rates = sorted(one["with"]["visits_s"] / one["without"]["visits_s"] for one in seen["rounds"])
        seen["with_of_without"] = round(rates[len(rates) // 2], 3)
        print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
