//! Delegation for tests that wrap an engine to observe or break some of its calls.

/// Delegates the named engine methods to the engine in a field.
#[macro_export]
macro_rules! pass_on {
    ($inner:ident: $($call:ident)*) => { $($crate::pass_on! { @ $inner $call })* };
    (@ $inner:ident now) => {
        fn now(&self) -> wayleave_core::time::Time {
            self.$inner.now()
        }
    };
    (@ $inner:ident own) => {
        fn own<'a>(
            &'a self,
            shard: wayleave_core::ids::ShardId,
            expects: &'a [$crate::Expect],
        ) -> $crate::Pending<'a, (wayleave_core::ids::Epoch, u64)> {
            self.$inner.own(shard, expects)
        }
    };
    (@ $inner:ident get_many) => {
        fn get_many<'a>(&'a self, keys: &'a [$crate::Key]) -> $crate::Pending<'a, Vec<Option<$crate::Value>>> {
            self.$inner.get_many(keys)
        }
    };
    (@ $inner:ident scan_many) => {
        fn scan_many<'a>(&'a self, scans: &'a [$crate::Scan]) -> $crate::Pending<'a, Vec<Vec<$crate::Row>>> {
            self.$inner.scan_many(scans)
        }
    };
    (@ $inner:ident look) => {
        fn look<'a>(&'a self, scans: &'a [$crate::Scan]) -> $crate::Pending<'a, $crate::Look> {
            self.$inner.look(scans)
        }
    };
    (@ $inner:ident commit) => {
        fn commit(&self, batch: $crate::Batch) -> $crate::Commit {
            self.$inner.commit(batch)
        }
    };
}
