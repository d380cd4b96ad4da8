"""A worker's round, and the calls whose schemas are the hardest, with the client of openapi-generator."""

import sys

from imports import import_all

modules = import_all("by_openapi_generator")

import by_openapi_generator as client
from by_openapi_generator.api import CrawlsApi, GroupsApi, ReservationsApi, UrlsApi

api = client.ApiClient(client.Configuration(host=sys.argv[1]))
url = "https://a.example/"

added = UrlsApi(api).add_urls(client.AddUrlsRequest(crawl="news", urls=[client.UrlToAdd(url=url)]))
assert added.counts.added == 1, added

reservations = ReservationsApi(api)
request = client.ReserveGroupsRequest(holder="worker", crawl="news", wait_ms=5_000)
(visit,) = reservations.reserve_groups(request).reservations
assert visit.urls[0].url == url, visit
result = client.UrlResult(url=url, outcome=client.Outcome.FETCHED, found=[client.UrlToAdd(url=url + "found")])
released = reservations.release_reservation(visit.token, client.ReleaseReservationRequest(results=[result]))
assert released.found.results[0].status == client.AddStatus.ADDED, released
assert UrlsApi(api).lookup_url(url, crawl="news").state == client.UrlState.FETCHED

bounds = client.RevisitAdaptive(adaptive=client.RevisitBounds(min_ms=1_000, max_ms=2_000))
crawl = CrawlsApi(api).put_crawl("news", client.SetCrawlRequest(revisit=client.Revisit(bounds)))
assert crawl.revisit.actual_instance.adaptive.max_ms == 2_000, crawl
group = GroupsApi(api).put_group("sites", client.PutGroupRequest(hosts=["b.example", "c.example"]))
assert sorted(group.hosts) == ["b.example", "c.example"], group
assert reservations.revoke_reservations(client.RevokeRequest(holder="worker")).reservations == 0
requeued = UrlsApi(api).requeue_urls(client.ReworkUrlsRequest(crawl="news", urls=[url]))
assert requeued is not None

print(f"{modules} modules; added, reserved, released")
