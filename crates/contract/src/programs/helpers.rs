//! The helpers that hooks may call. The numbers below 0x10000 are the kernel's, with the kernel's meaning.

/// What an argument must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// Any number.
    Number,
    /// A map that has keys: any kind but a ring.
    Map,
    /// A hash.
    Hash,
    /// A ring.
    Ring,
    /// Initialised memory of as many bytes as the map's key has.
    Key,
    /// Initialised memory of as many bytes as the map's value has.
    Value,
    /// Initialised memory of as many bytes as the next argument says.
    Memory,
    /// That number: 1 to 512.
    Size,
}

/// What a helper returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// A number.
    Number,
    /// A number of 32 bits.
    Number32,
    /// The map's value, or null.
    ValueOrNull,
}

/// A helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Helper {
    /// Its number in `call`.
    pub id: u32,
    /// Its name in `lockwright_policy.h`.
    pub name: &'static str,
    /// Its arguments.
    pub args: &'static [Arg],
    /// What it returns.
    pub returns: Returns,
    /// The kernel's helper with the same signature, which a cross-check by the kernel's verifier may put in its place.
    pub like: u32,
}

/// How many there are.
pub const HELPERS: usize = ALL.len();

macro_rules! helpers {
    ($($constant:ident $id:literal $name:literal ($($arg:ident),*) $returns:ident, like $like:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`.")]
            pub const $constant: u32 = $id;
        )*
        /// All helpers.
        pub const ALL: &[Helper] = &[$(Helper {
            id: $id,
            name: $name,
            args: &[$(Arg::$arg),*],
            returns: Returns::$returns,
            like: $like,
        },)*];
    };
}

helpers! {
    LOOKUP 1 "lw_lookup" (Map, Key) ValueOrNull, like 1;
    UPDATE 2 "lw_update" (Map, Key, Value, Number) Number, like 2;
    DELETE 3 "lw_delete" (Map, Key) Number, like 3;
    NOW 5 "lw_now" () Number, like 5;
    CPU 8 "lw_cpu" () Number32, like 8;
    PID_TGID 14 "lw_pid_tgid" () Number, like 14;
    NUMA 42 "lw_numa" () Number32, like 42;
    REPORT 130 "lw_report" (Ring, Memory, Size, Number) Number, like 130;
    TAG 0x10000 "lw_tag" (Number) Number, like 5;
    PRIO 0x10001 "lw_prio" (Number) Number, like 5;
    LOG2 0x10002 "lw_log2" (Number) Number32, like 8;
    CLASS 0x10003 "lw_class" () Number32, like 8;
    STORAGE 0x10004 "lw_storage" (Hash, Key) ValueOrNull, like 1;
}

/// The helper with this number.
pub fn find(id: u32) -> Option<&'static Helper> {
    ALL.iter().find(|helper| helper.id == id)
}

/// The place of the helper with this number in [`ALL`], and in an environment.
///
/// # Panics
/// If there is none.
pub const fn index(id: u32) -> usize {
    let mut index = 0;
    while ALL[index].id != id {
        index += 1;
    }
    index
}

impl Helper {
    /// Its place in [`ALL`], and in an environment.
    pub const fn index(&self) -> usize {
        index(self.id)
    }
}
