//! The numbers by which kernels choose their way, found by measuring (`dibo bench`). None
//! changes a bit of a result, but for [`DEPTH`], where a product's sums are cut.

/// The special ways of mixing. All are open; `dibo bench` closes one at a time to see what it gains.
#[derive(Clone, Copy, Debug)]
pub struct Ways {
    /// Large stacks tile by tile, instead of a second pair of stacks.
    pub tiles: bool,
    /// Smaller ones, too, where rows hear many.
    pub tiles_of_many: bool,
    /// Rows of a ring in place.
    pub in_place: bool,
    /// Pending directions added as rows are read.
    pub in_passing: bool,
    /// What many hear weighed once, as it is copied.
    pub weighed_once: bool,
    /// The next tile prefetched.
    pub prefetch: bool,
}

/// All open.
pub const OPEN: Ways = Ways {
    tiles: true,
    tiles_of_many: true,
    in_place: true,
    in_passing: true,
    weighed_once: true,
    prefetch: true,
};

/// Bytes up to which a stack is mixed as a whole, split over threads by rows; above, tile by tile.
pub const WHOLE: usize = 1 << 20;
/// The same where rows hear more than [`MANY`] others: a copy in a nearer cache then pays earlier.
pub const WHOLE_OF_MANY: usize = 1 << 18;
/// Senders per row, on average, above which reading them costs more than copying and weighing them once.
pub const MANY: usize = 8;
/// Readers per row, on average, up to which a pending direction is added as the row is read, not beforehand.
pub const ADDED_IN_PASSING: usize = 3;
/// Bytes of a stack up to which its rows come from a cache; above, they come from memory and are prefetched.
pub const CACHED: usize = 1 << 22;
/// Bytes of each row in a tile.
pub const TILE: usize = 1 << 11;
/// The same with prefetching, so that what is asked for has come when it is needed.
pub const PREFETCHED_TILE: usize = 1 << 9;
/// Bytes of a tile's copies, of v and of t each, that still lie in the second-level cache.
pub const TILE_COPIES: usize = 1 << 17;
/// Tiles that a thread takes at a time, at most: neighbours share pages, and taking costs.
pub const TILES_AT_A_TIME: usize = 128;
/// Batches of tiles for each thread, at least: cores of a shared machine are not equally fast.
pub const BATCHES: usize = 8;
/// Bytes up to which old and new rows lie in the first-level cache together: nothing is gained in place.
pub const SMALL: usize = 1 << 16;
/// Work of a thread (entries × groups of columns) below which handing rows to another core costs more.
pub const LEAST_ENTRIES: usize = 1 << 11;
/// Groups of columns of a thread below which handing them to another core costs more than it saves.
pub const LEAST_GROUPS: usize = 1 << 9;
/// The same in numbers, where whole rows are handed over.
pub const LEAST_NUMBERS: usize = 1 << 14;

/// Rows of a matrix product that meet one piece of the right operand before the next one does.
pub const BAND: usize = 192;
/// Depth of that piece, at most: what the first-level cache holds. Sums over more are taken piece by piece.
pub const DEPTH: usize = 200;

/// Looks of a worker for the next job before it sleeps (about 50 µs).
#[cfg(not(loom))]
pub const SPINS: usize = 20_000;
/// Looks of the caller for a worker's end before it does that worker's part itself, if it was not begun.
#[cfg(not(loom))]
pub const PATIENCE: usize = 1000;

/// Few looks where every order of events is tried.
#[cfg(loom)]
pub const SPINS: usize = 2;
/// As above.
#[cfg(loom)]
pub const PATIENCE: usize = 1;
