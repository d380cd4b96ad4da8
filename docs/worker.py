"""A complete Wayleave worker in one thread: python3 worker.py --holder NAME. docs/worker.md explains it."""
import argparse, html, http.client, json, re, signal, time, urllib.error, urllib.request, uuid
from urllib.parse import urldefrag, urljoin
from urllib.robotparser import RobotFileParser

TEXTS = {"holder": "worker-1", "server": "http://127.0.0.1:7071", "crawl": "DEFAULT", "agent": "example-crawler"}
NUMBERS = {"urls": 5, "lease": 60, "timeout": 20, "wait": 10}  # URLs of a visit; the others in seconds
cli, robots, stop = argparse.ArgumentParser(), {}, []
for name, default in (TEXTS | NUMBERS).items(): cli.add_argument("--" + name, default=default, type=type(default))
args = cli.parse_args()

def call(path, body=None):  # asks Wayleave until it answers; None if the token is not current
    request = urllib.request.Request(args.server + path, body and json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    while True:
        try:
            with urllib.request.urlopen(request, timeout=args.wait + 30) as answer: return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 409: return None
            if error.code not in (408, 429, 503): raise RuntimeError(error.read().decode()) from None
            time.sleep(int(error.headers.get("Retry-After", 1)))
        except (OSError, http.client.HTTPException): time.sleep(1)

class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_): return None  # a redirect is an answer like any other
def fetch(url, *handlers):  # status, headers, body; status 0 if there is no whole answer in time
    request = urllib.request.Request(url, headers={"User-Agent": f"{args.agent} ({args.holder})"})
    try:
        signal.alarm(args.timeout)  # bounds all of it: a socket's own timeout starts again with every byte
        try: answer = urllib.request.build_opener(*handlers).open(request)
        except urllib.error.HTTPError as error: answer = error
        with answer: return answer.status, answer.headers, answer.read(5_000_000)
    except (OSError, ValueError, http.client.HTTPException): return 0, {}, b""
    finally: signal.alarm(0)

def link(base, href, depth):
    try: return {"url": urldefrag(urljoin(base, html.unescape(href))).url, "depth": depth}
    except ValueError: return {"url": href, "depth": depth}  # Wayleave rejects it, and takes the others

def judge(page, status, headers, body):  # the result that Wayleave is told
    result = {"url": page["url"], "outcome": "fetched"} | ({"status": status} if status else {})
    if headers.get("Retry-After", "").isdigit(): result["retry_after_ms"] = int(headers["Retry-After"]) * 1000
    if status in (0, 408, 429) or status >= 500: return result | {"outcome": "retry"}
    if status >= 400: return result | {"outcome": "gone" if status in (404, 410) else "failed"}
    if status >= 300: return result | {"found": [link(page["url"], headers.get("Location", ""), page["depth"])]}
    hrefs = re.findall(r"<a\s[^<>]*?href\s*=\s*[\"']?([^\"'\s>]+)", body.decode("utf-8", "replace"), re.I)
    return result | {"found": [link(page["url"], href, page["depth"] + 1) for href in hrefs[:1000]]}

def visit(reservation):
    path, delay, last, results = "/v1/reservations/" + reservation["token"], reservation["delay_ms"] / 1000, 0, []
    def ask(url, *handlers):  # one request: after the delay, and only while the group is ours
        nonlocal last
        pause = max(0, last + delay - time.monotonic()) if last else 0
        lease = {"lease_ms": int((pause + args.timeout + args.lease) * 1000)}
        if last and not call(path + "/renew", lease): return 0, {}, b""
        time.sleep(pause)
        answer, last = fetch(url, *handlers), time.monotonic()
        return answer
    for page in reservation["urls"]:
        site, result = urljoin(page["url"], "/robots.txt"), {"url": page["url"], "outcome": "failed"}
        if site not in robots or time.time() - robots[site].mtime() > 86_400:
            status, headers, body = ask(site)
            if status in (0, 429) or status >= 500: results.append(judge(page, status, headers, body)); break
            robots[site] = RobotFileParser()
            robots[site].parse(body.decode("utf-8", "replace").splitlines() if status == 200 else [])
        wanted = min(300, int(robots[site].crawl_delay(args.agent) or 0))
        delay = max(delay, wanted)
        if robots[site].can_fetch(args.agent, page["url"]): result = judge(page, *ask(page["url"], Stay))
        results.append(result | {"crawl_delay_ms": wanted * 1000})
        if stop or result.get("status") in (429, 503): break  # the rest goes back untouched
    call(path + "/release", {"results": results})

def expire(*_): raise TimeoutError
signal.signal(signal.SIGALRM, expire)
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
while not stop:
    wish = {"holder": args.holder, "crawl": args.crawl, "urls": args.urls, "request_id": str(uuid.uuid4())}
    granted = call("/v1/reservations", wish | {"lease_ms": args.lease * 1000, "wait_ms": args.wait * 1000})
    for reservation in granted["reservations"]: visit(reservation)
    if granted.get("finished"): break
