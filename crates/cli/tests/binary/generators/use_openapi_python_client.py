"""A worker's round, and the calls whose schemas are the hardest, with the client of openapi-python-client."""

import sys

from imports import import_all

modules = import_all("by_openapi_python_client")

from by_openapi_python_client import Client, models
from by_openapi_python_client.api.crawls import put_crawl
from by_openapi_python_client.api.groups import put_group
from by_openapi_python_client.api.reservations import release_reservation, reserve_groups, revoke_reservations
from by_openapi_python_client.api.urls import add_urls, lookup_url, requeue_urls

client = Client(base_url=sys.argv[1], raise_on_unexpected_status=True)
url = "https://a.example/"

body = models.AddUrlsRequest(crawl="news", urls=[models.UrlToAdd(url=url)])
added = add_urls.sync(client=client, body=body)
assert added.counts.added == 1, added

request = models.ReserveGroupsRequest(holder="worker", crawl="news", wait_ms=5_000)
(visit,) = reserve_groups.sync(client=client, body=request).reservations
assert visit.urls[0].url == url, visit
result = models.UrlResult(url=url, outcome=models.Outcome.FETCHED, found=[models.UrlToAdd(url=url + "found")])
results = models.ReleaseReservationRequest(results=[result])
released = release_reservation.sync(visit.token, client=client, body=results)
assert released.found.results[0].status == models.AddStatus.ADDED, released
assert lookup_url.sync(client=client, url_query=url, crawl="news").state == models.UrlState.FETCHED

bounds = models.RevisitAdaptive(adaptive=models.RevisitBounds(min_ms=1_000, max_ms=2_000))
crawl = put_crawl.sync("news", client=client, body=models.SetCrawlRequest(revisit=bounds))
assert crawl.revisit.adaptive.max_ms == 2_000, crawl
group = put_group.sync("sites", client=client, body=models.PutGroupRequest(hosts=["b.example", "c.example"]))
assert sorted(group.hosts) == ["b.example", "c.example"], group
assert revoke_reservations.sync(client=client, body=models.RevokeRequest(holder="worker")).reservations == 0
rework = models.ReworkUrlsRequest(crawl="news", urls=[url])
assert requeue_urls.sync(client=client, body=rework) is not None

print(f"{modules} modules; added, reserved, released")
