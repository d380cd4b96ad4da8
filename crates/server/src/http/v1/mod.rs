//! Version 1 of the native API: one file per resource. Handlers parse, call the frontier, the pipeline or the roles, and answer; they
//! decide nothing.

mod add_batch;
mod add_urls;
mod chunks;
mod crawls;
mod fleet;
mod groups;
mod hosts;
mod jobs;
mod list_urls;
mod lookup_url;
mod matches;
mod nodes;
mod placements;
mod pools;
mod reservations;
mod result_buffer;
mod roles;
mod snapshot;
mod stats;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::app::App;

/// All calls under `/v1`.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(add_urls::add_urls, list_urls::list_urls))
        .routes(routes!(lookup_url::lookup_url))
        .routes(routes!(jobs::requeue_urls))
        .routes(routes!(jobs::delete_urls))
        .routes(routes!(jobs::list_jobs))
        .routes(routes!(jobs::get_job, jobs::cancel_job))
        .routes(routes!(reservations::revoke_reservations))
        .routes(routes!(reservations::reserve_groups, reservations::list_reservations))
        .routes(routes!(reservations::renew_reservation))
        .routes(routes!(reservations::release_reservation))
        .routes(routes!(hosts::list_hosts))
        .routes(routes!(hosts::get_host, hosts::put_host, hosts::patch_host))
        .routes(routes!(hosts::delete_queue))
        .routes(routes!(groups::list_groups))
        .routes(routes!(groups::get_group, groups::put_group, groups::patch_group, groups::delete_group))
        .routes(routes!(crawls::list_crawls))
        .routes(routes!(crawls::get_crawl, crawls::put_crawl, crawls::patch_crawl, crawls::delete_crawl))
        .routes(routes!(crawls::purge_crawl))
        .routes(routes!(stats::get_stats))
        .routes(routes!(nodes::list_nodes))
        .routes(routes!(snapshot::get_snapshot))
        .merge(chunks::routes())
        .merge(fleet::routes())
        .merge(matches::routes())
        .merge(placements::routes())
        .merge(pools::routes())
        .merge(roles::routes())
}
