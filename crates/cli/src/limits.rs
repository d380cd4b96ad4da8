//! The bounds of the files that the command line reads. They may come from anywhere. What is beyond a bound ends the input
//! with an error that names it, unless its comment says otherwise.

/// The maximum nesting of sitemap indexes; deeper ones are listed as not followed.
pub const INDEX_NESTING_MAX: usize = 4;
/// The total size of the locations that all index files name: they are kept until they are read or listed.
pub const INDEX_BYTES_MAX: usize = 32 << 20;
/// The longest line of a list that is read; longer ones are sent truncated, for the server to reject.
pub const LINE_BYTES_MAX: u64 = 16 * 1024;
/// A longer one is not a line of a list at all.
pub const LINE_SKIPPED_MAX: u64 = 16 << 20;
/// The longest tag, text or comment of a sitemap, which is read into memory as a whole.
pub const TAG_BYTES_MAX: usize = 1 << 20;
/// The longest location in a sitemap; the server accepts URLs of at most half this length.
pub const LOCATION_BYTES_MAX: usize = 16 * 1024;
/// The maximum nesting of elements; sitemaps and their extensions need fewer than ten levels.
pub const ELEMENT_DEPTH_MAX: usize = 64;
/// The maximum number of bytes unpacked from one byte of gzip.
pub const GZIP_RATIO_MAX: u64 = 250;
/// Up to this many unpacked bytes the ratio does not matter: small files may be anything.
pub const GZIP_FREE_BYTES: u64 = 64 << 20;
