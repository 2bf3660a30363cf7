//! The configuration: what the rewriter can't find out by itself.
//!
//! ```toml
//! # Functions that any thread may call for another one, whatever they do.
//! harmless = ["pthread_getspecific"]
//!
//! # Functions or macros that lock and unlock a mutex, by their arguments $1, $2, ...
//! [[lock]]
//! lock = "queue_lock"
//! unlock = "queue_unlock"
//! mutex = "&$1->mutex"
//!
//! # Classes whose objects lock a mutex until their scope ends, by what they are made of, $1.
//! [[guard]]
//! type = "leveldb::MutexLock"
//! mutex = "($1)->handle()"
//! ```

use crate::names::{LockNames, LockOp, Wrapper};
use serde::Deserialize;

/// A pair of wrappers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrapperPair {
    lock: String,
    unlock: String,
    mutex: String,
}

/// A class of guards.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuardType {
    /// The class, with its namespaces.
    #[serde(rename = "type")]
    pub name: String,
    /// The `pthread_mutex_t *`, of $1.
    pub mutex: String,
}

/// What the file says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    #[serde(default)]
    lock: Vec<WrapperPair>,
    #[serde(default)]
    /// Classes of guards.
    #[serde(rename = "guard")]
    pub guards: Vec<GuardType>,
    /// Functions that any thread may call for another one, whatever they do.
    #[serde(default)]
    pub harmless: Vec<String>,
}

impl Config {
    /// Reads it.
    ///
    /// # Errors
    /// It isn't TOML, or says something unknown.
    pub fn read(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|cause| cause.message().to_owned())
    }

    /// pthreads' names, and those of the file.
    pub fn names(&self) -> LockNames {
        let mut names = LockNames::default();
        let parameters: Vec<String> = (1..10).map(|number| format!("${number}")).collect();
        for WrapperPair { lock, unlock, mutex } in &self.lock {
            for (name, what) in [(lock, LockOp::Lock), (unlock, LockOp::Unlock)] {
                let (mutex, parameters) = (mutex.clone(), parameters.clone());
                let wrapper = Wrapper { what, mutex, parameters, accessor: None };
                names.0.insert(name.clone(), wrapper);
            }
        }
        names
    }
}
