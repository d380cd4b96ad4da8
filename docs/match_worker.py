"""A worker of a pool: three calls, with nothing but Python's standard library. See matches.md."""
import os, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

SLOTS = int(os.environ.get("SLOTS", "1"))
lock, held = threading.Lock(), {}  # client -> (token, when it ends unless it is confirmed)


def is_held(client, token):
    return client in held and held[client][0] == token


class Worker(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status):
        self.send_response(status)
        self.send_header("wayleave-reservation", self.headers.get("wayleave-reservation", ""))
        self.send_header("content-length", "0")
        self.end_headers()

    def reservation(self):
        """The client that is asked about, its token, and how long to keep it."""
        _, _, client = self.path.partition("/reservation/")
        now = time.monotonic()
        for name in [name for name, (_, end) in held.items() if end <= now]:
            del held[name]
        keep = int(self.headers.get("wayleave-reservation-ms", "60000")) / 1000
        return unquote(client), self.headers.get("wayleave-reservation"), now + keep

    def do_POST(self):  # reserve: asked again with the same token, the answer is the same
        with lock:
            client, token, end = self.reservation()
            free = client not in held and len(held) < SLOTS
            if not free and not is_held(client, token):
                return self.answer(409)
            held[client] = (token, end)
            self.answer(200)

    def do_GET(self):  # check: a yes extends the reservation
        with lock:
            client, token, end = self.reservation()
            if not is_held(client, token):
                return self.answer(404)
            held[client] = (token, end)
            self.answer(200)

    def do_DELETE(self):  # release
        with lock:
            client, token, _ = self.reservation()
            self.answer(200 if is_held(client, token) and held.pop(client) else 404)


if __name__ == "__main__":
    address = os.environ["HOST"], int(os.environ["PORT"])
    print("listening on %s:%d as %s" % (*address, os.environ["WAYLEAVE_WORKER"]), flush=True)
    ThreadingHTTPServer(address, Worker).serve_forever()
