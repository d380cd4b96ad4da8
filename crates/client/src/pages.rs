//! Paged listings as streams: the next page is requested when the last one is consumed.

use std::sync::{Arc, OnceLock};

use futures::{Stream, StreamExt, TryStreamExt};
use wayleave_api::Problem;

use crate::Error;

enum Cursor {
    First,
    After(String),
    End,
}

/// All items of a listing, in its order. `page` takes a cursor and returns items and the next cursor.
pub(crate) fn pages<T, F>(page: impl Fn(Option<String>) -> F) -> impl Stream<Item = Result<T, Error>>
where
    F: Future<Output = Result<(Vec<T>, Option<String>), Error>>,
{
    let step = move |cursor| {
        let asked = match cursor {
            Cursor::First => Some(page(None)),
            Cursor::After(after) => Some(page(Some(after))),
            Cursor::End => None,
        };
        async move {
            let Some(asked) = asked else { return Ok(None) };
            let (items, next) = asked.await?;
            let items = futures::stream::iter(items).map(Ok::<_, Error>);
            Ok::<_, Error>(Some((items, next.map_or(Cursor::End, Cursor::After))))
        }
    };
    futures::stream::try_unfold(Cursor::First, step).try_flatten()
}

/// The same for a listing that names what it must leave out, because the store is damaged. It ends with a problem about the first.
pub(crate) fn damaged_pages<T, F>(
    page: impl Fn(Option<String>) -> F,
    problem: impl FnOnce(String) -> Problem,
) -> impl Stream<Item = Result<T, Error>>
where
    F: Future<Output = Result<(Vec<T>, Option<String>, Vec<String>), Error>>,
{
    let damaged = Arc::new(OnceLock::new());
    let left_out = Arc::clone(&damaged);
    let all = pages(move |after| {
        let (asked, damaged) = (page(after), Arc::clone(&damaged));
        async move {
            let (items, next, unreadable) = asked.await?;
            if let Some(first) = unreadable.into_iter().next() {
                _ = damaged.set(first);
            }
            Ok((items, next))
        }
    });
    let end = async move { Some(Err(Error::Refused(Box::new(problem(left_out.get()?.clone()))))) };
    all.chain(futures::stream::once(end).filter_map(futures::future::ready))
}
