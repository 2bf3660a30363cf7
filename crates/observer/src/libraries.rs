//! The libraries that the dynamic linker would load with a program.
//!
//! `ldd` asks the dynamic linker, which then maps the file, and runs code that the file names (`DT_AUDIT`). So we look for
//! them ourselves, in the places and in the order that `ld.so(8)` states.

use lockwright_files::{map_file, read_file};
use lockwright_text::Failure;
use object::Endianness;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH};
use object::read::elf::ElfFile64;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// How many libraries we follow.
const MOST: usize = 4096;

/// What a file says about the libraries that it needs.
#[derive(Default)]
struct Needs {
    names: Vec<Vec<u8>>,
    /// Folders to search, separated by colons.
    rpath: Option<Vec<u8>>,
    runpath: Option<Vec<u8>>,
}

/// A program, or a library that has been found.
struct Dependency {
    path: PathBuf,
    needs: Needs,
    /// The file, among those found, that first needed it.
    by: Option<usize>,
}

/// All libraries of a program, which names this dynamic linker, in the order in which they are loaded.
pub(crate) fn of(program: &Path, linker: &Path) -> Result<Vec<PathBuf>, Failure> {
    let places = Places::of(linker);
    let machine = machine(program);
    let mut all = vec![Dependency { path: program.to_owned(), needs: needs(program), by: None }];
    let mut seen = BTreeSet::from([linker.file_name().unwrap_or_default().as_bytes().to_vec()]);
    let mut files = BTreeSet::new();
    let mut at = 0;
    while at < all.len() {
        for name in std::mem::take(&mut all[at].needs.names) {
            if !seen.insert(name.clone()) || all.len() > MOST {
                continue;
            }
            let fits = |path: &PathBuf| machine.is_some() && self::machine(path) == machine;
            let Some(path) = places.candidates(&all, at, &name).into_iter().find(fits) else {
                let (shown, by) = (String::from_utf8_lossy(&name), all[at].path.display());
                return Err(Failure::new(format!("cannot find '{shown}', which '{by}' needs"))
                    .hint(format!("ldd '{}', if you trust it", program.display())));
            };
            if !files.insert(path.canonicalize().unwrap_or_else(|_| path.clone())) {
                continue;
            }
            let needs = needs(&path);
            all.push(Dependency { path, needs, by: Some(at) });
        }
        at += 1;
    }
    Ok(all.into_iter().skip(1).map(|found| found.path).collect())
}

/// What kind of machine a file is for; `None`: it is no program and no library.
fn machine(path: &Path) -> Option<u16> {
    let head = map_file(path).ok()?;
    head.starts_with(b"\x7fELF\x02").then_some(())?;
    Some(u16::from_le_bytes(head.get(18..20)?.try_into().ok()?))
}

fn needs(path: &Path) -> Needs {
    let mut needs = Needs::default();
    let Ok(data) = map_file(path) else { return needs };
    let Ok(elf) = ElfFile64::<Endianness>::parse(&*data) else { return needs };
    let Ok(entries) = elf.elf_dynamic_table() else { return needs };
    for entry in entries.iter() {
        let text = entries.string(entry).unwrap_or_default().to_vec();
        match entry.tag {
            DT_NEEDED => needs.names.push(text),
            DT_RPATH => needs.rpath = Some(text),
            DT_RUNPATH => needs.runpath = Some(text),
            _ => {}
        }
    }
    needs
}

/// Where the dynamic linker searches for every program.
struct Places {
    /// `LD_LIBRARY_PATH`.
    variable: Vec<u8>,
    /// `/etc/ld.so.cache`: names and paths.
    cache: Vec<(Vec<u8>, PathBuf)>,
    folders: Vec<PathBuf>,
}

impl Places {
    fn of(linker: &Path) -> Self {
        const FOLDERS: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
        let own = linker.canonicalize().unwrap_or_else(|_| linker.to_owned());
        let own = own.parent().unwrap_or(Path::new("/")).to_owned();
        let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
        let multiarch = FOLDERS[2..].iter().map(|folder| Path::new(folder).join(&triple));
        let mut folders: Vec<PathBuf> = multiarch.chain(FOLDERS.map(PathBuf::from)).collect();
        // Another glibc's has folders and a cache of its own.
        let is_systems = folders.contains(&own);
        let cache = if is_systems { cache() } else { Vec::new() };
        if !is_systems {
            folders = vec![own];
        }
        let variable = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default().into_vec();
        Self { variable, cache, folders }
    }

    /// The paths where a library may be that the file `by` needs, the best first.
    fn candidates(&self, all: &[Dependency], by: usize, name: &[u8]) -> Vec<PathBuf> {
        let name = OsStr::from_bytes(name);
        if name.as_bytes().contains(&b'/') {
            return expanded(name.as_bytes(), &all[by].path);
        }
        let mut folders = Vec::new();
        let mut add = |list: &[u8], of: &Path| {
            for folder in list.split(|byte| matches!(byte, b':' | b';')) {
                let here: &[u8] = if folder.is_empty() { b"." } else { folder };
                folders.extend(expanded(here, of));
            }
        };
        let needs = &all[by].needs;
        if needs.runpath.is_none() {
            // Those of the files that asked for this one count, too.
            let mut next = Some(by);
            while let Some(at) = next {
                if let (Some(list), None) = (&all[at].needs.rpath, &all[at].needs.runpath) {
                    add(list, &all[at].path);
                }
                next = all[at].by;
            }
        }
        if !self.variable.is_empty() {
            add(&self.variable, &all[0].path);
        }
        if let Some(list) = &needs.runpath {
            add(list, &all[by].path);
        }
        let within = |folders: &[PathBuf]| -> Vec<PathBuf> {
            folders.iter().flat_map(|folder| variants(folder).map(|one| one.join(name))).collect()
        };
        let mut paths = within(&folders);
        let known = self.cache.iter().filter(|(known, _)| known == name.as_bytes());
        let mut known: Vec<_> = known.filter_map(|(_, path)| Some((rank(path)?, path))).collect();
        known.sort_by_key(|(rank, _)| *rank);
        paths.extend(known.into_iter().map(|(_, path)| path.clone()));
        paths.extend(within(&self.folders));
        paths
    }
}

/// A path, with the words that stand for folders replaced. `of`: the file that has it.
fn expanded(path: &[u8], of: &Path) -> Vec<PathBuf> {
    let Ok(text) = std::str::from_utf8(path) else {
        return vec![OsStr::from_bytes(path).into()];
    };
    let of = of.canonicalize().unwrap_or_else(|_| of.to_owned());
    let origin = of.parent().unwrap_or(Path::new("/")).display().to_string();
    let replaced = |text: &str, word: &str, by: &str| {
        text.replace(&format!("${{{word}}}"), by).replace(&format!("${word}"), by)
    };
    let text = replaced(&replaced(text, "ORIGIN", &origin), "PLATFORM", std::env::consts::ARCH);
    // What `$LIB` is was fixed when glibc was built.
    let multiarch = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
    let libs = [multiarch.as_str(), "lib64", "lib"];
    let mut all: Vec<PathBuf> = libs.iter().map(|lib| replaced(&text, "LIB", lib).into()).collect();
    all.dedup();
    all
}

const VARIANTS: &str = "glibc-hwcaps";

/// The levels of this machine, the best first.
fn levels() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    {
        use std::is_x86_feature_detected as has;
        let v2 = has!("sse4.2") && has!("ssse3") && has!("popcnt") && has!("cmpxchg16b");
        let v3 = v2 && has!("avx2") && has!("bmi2") && has!("fma") && has!("movbe");
        let v4 = v3 && has!("avx512f") && has!("avx512bw") && has!("avx512vl");
        let all = [(v4, "x86-64-v4"), (v3, "x86-64-v3"), (v2, "x86-64-v2")];
        all.into_iter().filter_map(|(has, level)| has.then_some(level)).collect()
    }
    #[cfg(not(target_arch = "x86_64"))]
    Vec::new()
}

/// A folder's variants for this machine, then the folder.
fn variants(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let better = folder.join(VARIANTS);
    let better = levels().into_iter().map(move |level| better.join(level));
    better.chain([folder.to_owned()])
}

/// How good a library of the cache is, 0 the best; `None`: it isn't for this machine.
fn rank(path: &Path) -> Option<usize> {
    let mut parts = path.iter().skip_while(|part| *part != VARIANTS);
    match parts.nth(1) {
        None => Some(usize::MAX),
        Some(level) => levels().iter().position(|known| *known == level),
    }
}

fn cache() -> Vec<(Vec<u8>, PathBuf)> {
    let bytes = read_file("/etc/ld.so.cache", 64 << 20).unwrap_or_default();
    cache_in(&bytes).unwrap_or_default()
}

/// glibc's `struct cache_file_new`, which may follow an older one. The entries are in its order: the best first.
fn cache_in(bytes: &[u8]) -> Option<Vec<(Vec<u8>, PathBuf)>> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEAD: usize = 48;
    const ENTRY: usize = 24;
    let start = bytes.windows(MAGIC.len()).position(|part| part == MAGIC)?;
    let bytes = &bytes[start..];
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(word.try_into().ok()?) as usize)
    };
    let text = |at: usize| bytes.get(at..)?.split(|byte| *byte == 0).next();
    let mut all = Vec::new();
    for at in (HEAD..bytes.len()).step_by(ENTRY).take(word(MAGIC.len())?) {
        let (name, path) = (text(word(at + 4)?)?, text(word(at + 8)?)?);
        all.push((name.to_vec(), OsStr::from_bytes(path).into()));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Compiles an empty library or program in `folder`.
    fn compile(folder: &Path, words: &str) {
        let source = folder.join("empty.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let mut command = Command::new("cc");
        command.current_dir(folder).args(words.split(' ')).arg(source);
        assert!(command.status().unwrap().success(), "{words}");
    }

    #[test]
    fn they_are_those_that_the_dynamic_linker_loads() {
        let linker = "/lib64/ld-linux-x86-64.so.2";
        let programs = ["/usr/bin/python3", "/usr/bin/gdb", "/usr/bin/git", "/usr/bin/cmake"];
        let own = std::env::current_exe().unwrap();
        let own = own.to_str().unwrap();
        for program in programs.iter().copied().chain([own]) {
            if !Path::new(linker).exists() || !Path::new(program).exists() {
                continue;
            }
            let said = Command::new(linker).args(["--list", program]).output().unwrap();
            let said = String::from_utf8(said.stdout).unwrap();
            let theirs: Vec<PathBuf> = said
                .lines()
                .filter_map(|line| Some(line.split_once(" => ")?.1.split_once(" (")?.0.into()))
                .filter(|path| path != Path::new(linker))
                .collect();
            let program = Path::new(program).canonicalize().unwrap();
            let same = |paths: Vec<PathBuf>| -> Vec<PathBuf> {
                paths.into_iter().map(|path| path.canonicalize().unwrap()).collect()
            };
            assert_eq!(same(of(&program, Path::new(linker)).unwrap()), same(theirs), "{program:?}");
        }
    }

    #[test]
    fn they_lie_where_the_files_say() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(folder.join("sub/deep")).unwrap();
        let shared = "-shared -fPIC -nostdlib";
        // What the program says counts for its library, too.
        compile(&folder, &format!("{shared} -o sub/deep/libdeep.so -Wl,-soname,libdeep.so"));
        let needs = "-Wl,--no-as-needed,-soname,libplain.so -Lsub/deep -ldeep";
        compile(&folder, &format!("{shared} -o libplain.so {needs}"));
        let paths = "-Wl,--disable-new-dtags,-rpath,$ORIGIN:${ORIGIN}/sub/deep";
        let needs = "-Wl,--no-as-needed,--allow-shlib-undefined -L. -lplain";
        // Its linker would run the file that it names for audits.
        compile(
            &folder,
            &format!("-o program -Wl,--audit={}/audit.so {paths} {needs}", folder.display()),
        );
        let find = || {
            let program = crate::elf::inspect(&folder.join("program")).unwrap();
            program.objects().map(|all| all.into_iter().map(|one| one.path).collect::<Vec<_>>())
        };
        let mut found = find().unwrap();
        found.retain(|path| path.starts_with(&folder));
        let ours = ["program", "libplain.so", "sub/deep/libdeep.so"].map(|name| folder.join(name));
        assert_eq!(found, ours);
        std::fs::remove_file(folder.join("libplain.so")).unwrap();
        let why = find().unwrap_err();
        assert!(why.message().starts_with("cannot find 'libplain.so', which '"), "{why}");
    }
}
