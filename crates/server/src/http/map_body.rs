//! The map as it is sent, written once for all readers: it is large, and a change wakes all of them at once.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Mutex;
use wayleave_api::{Code, Problem, map};
use wayleave_core::placement::Map;

use super::refused::Refused;

/// The last map that was sent, with its bytes.
#[derive(Default)]
pub struct MapBody(Mutex<Option<(Arc<Map>, Bytes)>>);

impl MapBody {
    /// The JSON of a map. Readers of the same map share the bytes; they wait while another one has it written, so that two
    /// maps at most are in memory.
    pub async fn of(&self, map: Arc<Map>) -> Result<Bytes, Refused> {
        let mut last = self.0.lock().await;
        if let Some((_, body)) = last.as_ref().filter(|(known, _)| Arc::ptr_eq(known, &map)) {
            return Ok(body.clone());
        }
        let known = map.clone();
        // Writing takes long: not on a thread that serves others.
        let written = tokio::task::spawn_blocking(move || serde_json::to_vec(&map::Map::from(&*map))).await;
        let failed = |cause: &dyn std::fmt::Display| {
            Refused::from(Problem::new(Code::Internal, format!("the map cannot be sent: {cause}")))
        };
        let body = Bytes::from(written.map_err(|cause| failed(&cause))?.map_err(|cause| failed(&cause))?);
        *last = Some((known, body.clone()));
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(version: u64) -> Arc<Map> {
        Arc::new(Map { version, rows: Vec::new(), missing: Vec::new(), missing_count: 0 })
    }

    #[tokio::test]
    async fn readers_of_one_map_share_its_bytes_and_another_map_has_its_own() {
        let (body, first, second) = (MapBody::default(), map(1), map(2));
        let all = futures::future::join_all((0..100).map(|_| body.of(first.clone()))).await;
        let place = all[0].as_ref().unwrap().as_ptr();
        assert!(all.iter().all(|bytes| bytes.as_ref().unwrap().as_ptr() == place));
        let other = body.of(second).await.unwrap();
        assert_eq!(&other[..], br#"{"version":2,"rows":[],"missing":[],"missing_count":0}"#);
        assert_eq!(&body.of(first).await.unwrap(), all[0].as_ref().unwrap());
    }
}
