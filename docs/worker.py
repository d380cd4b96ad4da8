"""A complete Wayleave worker in one thread: python3 worker.py --holder NAME. docs/getting-started.md explains it."""
import argparse, html, http.client, json, os, re, signal, time, urllib.error, urllib.request, uuid
from urllib.parse import urldefrag, urljoin
from urllib.robotparser import RobotFileParser

OPTIONS = {"server": os.environ.get("WAYLEAVE_SERVER", "http://127.0.0.1:7071"), "crawl": "DEFAULT",
           "agent": "example-crawler", "holder": "worker-1", "urls": 5, "lease": 60, "timeout": 20, "wait": 10}
cli = argparse.ArgumentParser(epilog="--urls is per visit, at most 10. --lease, --timeout and --wait are seconds.")
for name, default in OPTIONS.items(): cli.add_argument("--" + name, default=default, type=type(default))
args, robots, stop = cli.parse_args(), {}, []  # rules by address of robots.txt; stop is not empty after SIGTERM

def call(path, body):  # retries until Wayleave answers; None if the lease is no longer ours
    post = urllib.request.Request(args.server + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    while True:
        try: return json.load(urllib.request.urlopen(post, timeout=args.wait + 30))
        except urllib.error.HTTPError as error:
            if error.code == 409: return None
            if error.code not in (408, 429, 503): raise RuntimeError(error.read().decode()) from None
            time.sleep(int(error.headers.get("Retry-After", 1)))
        except (OSError, http.client.HTTPException): time.sleep(1)

class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_): return None  # reported as a result instead

def fetch(url, *handlers):  # status, headers and body; the status is 0 if no complete response arrived in time
    request = urllib.request.Request(url, headers={"User-Agent": f"{args.agent} ({args.holder})"})
    try:
        signal.alarm(args.timeout)  # bounds the whole fetch; a socket timeout restarts with every byte
        with urllib.request.build_opener(*handlers).open(request) as answer:
            return answer.status, answer.headers, answer.read(5_000_000)
    except urllib.error.HTTPError as error: return error.code, error.headers, b""
    except (OSError, ValueError, http.client.HTTPException): return 0, {}, b""
    finally: signal.alarm(0)

def link(base, href, depth):
    try: return {"url": urldefrag(urljoin(base, html.unescape(href))).url, "depth": depth}
    except ValueError: return {"url": href, "depth": depth}  # Wayleave rejects it and accepts the others

def judge(page, status, headers, body):  # turns a response into the result that the release reports
    result = {"url": page["url"], "outcome": "fetched"} | ({"status": status} if status else {})
    if headers.get("Retry-After", "").isdigit(): result["retry_after_ms"] = int(headers["Retry-After"]) * 1000
    if status in (0, 408, 429) or status >= 500: return result | {"outcome": "retry"}
    if status >= 400: return result | {"outcome": "gone" if status in (404, 410) else "failed"}
    if status >= 300: return result | {"found": [link(page["url"], headers.get("Location", ""), page["depth"])]}
    hrefs = re.findall(r"<a\s[^<>]*?href\s*=\s*[\"']?([^\"'\s>]+)", body.decode("utf-8", "replace"), re.I)
    return result | {"found": [link(page["url"], href, page["depth"] + 1) for href in hrefs[:1000]]}

def visit(reservation):
    path, delay = "/v1/reservations/" + reservation["token"], reservation["delay_ms"] / 1000
    last, results = float("-inf"), []  # end of the last request; what the release reports
    def polite_fetch(url, *handlers):  # waits for the delay, and fetches only while the lease is ours
        nonlocal last
        pause = max(0, last + delay - time.monotonic())
        lease_ms = int((pause + args.timeout + args.lease) * 1000)
        if last > 0 and call(path + "/renew", {"lease_ms": lease_ms}) is None: return 0, {}, b""
        time.sleep(pause)
        answer, last = fetch(url, *handlers), time.monotonic()
        return answer
    for page in reservation["urls"]:
        site, result = urljoin(page["url"], "/robots.txt"), {"url": page["url"], "outcome": "failed"}
        if site not in robots or time.time() - robots[site].mtime() > 86_400:
            status, headers, body = polite_fetch(site)
            if status in (0, 429) or status >= 500: results.append(judge(page, status, headers, body)); break
            robots[site] = RobotFileParser()
            robots[site].parse(body.decode("utf-8", "replace").splitlines())
        crawl_delay = min(300, int(robots[site].crawl_delay(args.agent) or 0))
        delay = max(delay, crawl_delay)
        if robots[site].can_fetch(args.agent, page["url"]): result = judge(page, *polite_fetch(page["url"], NoRedirect))
        results.append(result | {"crawl_delay_ms": crawl_delay * 1000})
        if stop or result.get("status") in (429, 503): break  # URLs that the release does not name return to the queue
    call(path + "/release", {"results": results})

def time_out(*_): raise TimeoutError
signal.signal(signal.SIGALRM, time_out)
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
while not stop:
    ask = {"holder": args.holder, "crawl": args.crawl, "urls": args.urls, "request_id": str(uuid.uuid4())}
    answer = call("/v1/reservations", ask | {"lease_ms": args.lease * 1000, "wait_ms": args.wait * 1000})
    for reservation in answer["reservations"]: visit(reservation)
    if answer.get("finished"): break
