"""A complete Wayleave worker in one thread: python3 worker.py --holder NAME. docs/getting-started.md explains it."""
import argparse, html, http.client, json, os, re, signal, time, urllib.error, urllib.request, uuid
from urllib.parse import urldefrag, urljoin
from urllib.robotparser import RobotFileParser

cli = argparse.ArgumentParser()
cli.add_argument("--server", default=os.environ.get("WAYLEAVE_SERVER", "http://127.0.0.1:7071"))
cli.add_argument("--crawl", default="DEFAULT")
cli.add_argument("--holder", default="worker-1", help="name of this worker")
cli.add_argument("--agent", default="example-crawler", help="product token for User-Agent and robots.txt")
cli.add_argument("--urls", default=5, type=int, help="URLs per visit, at most 10")
cli.add_argument("--lease", default=60, type=int, help="seconds; more than --timeout")
cli.add_argument("--timeout", default=20, type=int, help="seconds for one fetch")
cli.add_argument("--wait", default=10, type=int, help="seconds of a long poll")
args = cli.parse_args()
stop = []  # not empty after SIGTERM
robots = {}  # address of a robots.txt to its rules


def call(path, body):
    """Calls Wayleave until it answers. Returns None if the lease is no longer ours."""
    request = urllib.request.Request(args.server + path, json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    while True:
        try:
            with urllib.request.urlopen(request, timeout=args.wait + 30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 409:
                return None
            if error.code not in (408, 429, 503):
                raise RuntimeError(error.read().decode()) from None
            time.sleep(int(error.headers.get("Retry-After", 1)))
        except (OSError, http.client.HTTPException):
            time.sleep(1)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def fetch(url, *handlers):
    """Returns status, headers and body. The status is 0 if no complete response arrived in time."""
    request = urllib.request.Request(url, headers={"User-Agent": f"{args.agent} ({args.holder})"})
    try:
        signal.alarm(args.timeout)  # bounds the whole fetch; a socket timeout restarts with every byte
        try:
            answer = urllib.request.build_opener(*handlers).open(request)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return answer.status, answer.headers, answer.read(5_000_000)
    except (OSError, ValueError, http.client.HTTPException):
        return 0, {}, b""
    finally:
        signal.alarm(0)


def link(base, href, depth):
    try:
        return {"url": urldefrag(urljoin(base, html.unescape(href))).url, "depth": depth}
    except ValueError:
        return {"url": href, "depth": depth}  # Wayleave rejects it and accepts the others


def judge(page, status, headers, body):
    """Turns a response into the result that the release reports."""
    result = {"url": page["url"], "outcome": "fetched"}
    if status:
        result["status"] = status
    if headers.get("Retry-After", "").isdigit():
        result["retry_after_ms"] = int(headers["Retry-After"]) * 1000
    if status in (0, 408, 429) or status >= 500:
        result["outcome"] = "retry"
    elif status in (404, 410):
        result["outcome"] = "gone"
    elif status >= 400:
        result["outcome"] = "failed"
    elif status >= 300:
        result["found"] = [link(page["url"], headers.get("Location", ""), page["depth"])]
    else:
        hrefs = re.findall(r"<a\s[^<>]*?href\s*=\s*[\"']?([^\"'\s>]+)", body.decode("utf-8", "replace"), re.I)
        result["found"] = [link(page["url"], href, page["depth"] + 1) for href in hrefs[:1000]]
    return result


def visit(reservation):
    path = "/v1/reservations/" + reservation["token"]
    delay = reservation["delay_ms"] / 1000
    last, results = None, []

    def polite_fetch(url, *handlers):
        """Waits for the delay, and fetches only while the lease is ours."""
        nonlocal last
        if last is not None:
            pause = max(0, last + delay - time.monotonic())
            lease_ms = int((pause + args.timeout + args.lease) * 1000)
            if call(path + "/renew", {"lease_ms": lease_ms}) is None:
                return 0, {}, b""
            time.sleep(pause)
        answer, last = fetch(url, *handlers), time.monotonic()
        return answer

    for page in reservation["urls"]:
        site = urljoin(page["url"], "/robots.txt")
        if site not in robots or time.time() - robots[site].mtime() > 86_400:
            status, headers, body = polite_fetch(site)
            if status in (0, 429) or status >= 500:
                results.append(judge(page, status, headers, body))
                break
            robots[site] = RobotFileParser()
            robots[site].parse(body.decode("utf-8", "replace").splitlines() if status == 200 else [])
        crawl_delay = min(300, int(robots[site].crawl_delay(args.agent) or 0))
        delay = max(delay, crawl_delay)
        if robots[site].can_fetch(args.agent, page["url"]):
            result = judge(page, *polite_fetch(page["url"], NoRedirect))
        else:
            result = {"url": page["url"], "outcome": "failed"}
        results.append(result | {"crawl_delay_ms": crawl_delay * 1000})
        if stop or result.get("status") in (429, 503):
            break  # URLs that the release does not name return to the queue
    call(path + "/release", {"results": results})


def time_out(*_):
    raise TimeoutError


signal.signal(signal.SIGALRM, time_out)
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
while not stop:
    ask = {"holder": args.holder, "crawl": args.crawl, "urls": args.urls, "request_id": str(uuid.uuid4())}
    answer = call("/v1/reservations", ask | {"lease_ms": args.lease * 1000, "wait_ms": args.wait * 1000})
    for reservation in answer["reservations"]:
        visit(reservation)
    if answer.get("finished"):
        break
