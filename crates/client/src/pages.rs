//! Paged listings as streams: the next page is requested when the last one is consumed.

use futures::{Stream, StreamExt, TryStreamExt};

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
