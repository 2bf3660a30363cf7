//! Drives the pages and pictures that the commands write in a browser: no error on its console, tables that sort, flame
//! graphs that zoom, nothing that is cut or can't be read, on wide and narrow screens, light and dark. The script is
//! `tests/pages/check.mjs`. It needs a browser, so it isn't one of the tests.

use crate::answer::No;
use crate::root::root;
use anyhow::{Context, Result, bail};
use lockwright_tests::{Child, End, compile, scratch, target_dir};
use std::fs;
use std::path::{Path, PathBuf};

/// Names of the browser, the first that is there.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// A page, or a run of the command that makes it, seconds.
const LIMIT: u64 = 900;

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Pages (HTML) and pictures (SVG) [default: make one by each command that writes any]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Folder for what is made, and for a picture of each in `pictures` (default: `pages` in cargo's target folder).
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The command that makes the pages, whose library LOCKWRIGHT_LIBRARY may name (default: the release build).
    #[arg(long, value_name = "FILE", conflicts_with = "files")]
    command: Option<PathBuf>,
    /// Leave out the demo, which builds SQLite.
    #[arg(long, conflicts_with = "files")]
    no_demo: bool,
}

pub(crate) fn main(args: Args) -> Result<()> {
    let browser = needed(&BROWSERS, "chromium")?;
    let node = needed(&["node"], "nodejs")?;
    let npm = needed(&["npm"], "npm")?;
    let out = args.output.clone().map_or_else(|| scratch("pages"), Ok)?;
    let files = match args.files.is_empty() {
        true => made(&args, &out)?,
        false => args.files,
    };
    let script = installed(&npm)?;
    let pictures = out.join("pictures");
    eprintln!("looking at {} files in {}", files.len(), browser.display());
    let check = Child::new(node).args([&script, &browser, &pictures]).args(&files).limit(LIMIT);
    let outcome = check.run()?;
    print!("{}", outcome.text());
    match outcome.end {
        End::Code(0) => println!("{} files: nothing is wrong", files.len()),
        End::Code(1) => {
            let wrong = outcome.text().lines().count();
            return Err(No(format!("{wrong} things are wrong")).into());
        }
        _ => bail!("{}: {}", script.display(), outcome.describe()),
    }
    println!("pictures: {}", pictures.display());
    Ok(())
}

/// The first of these programs that is installed.
fn needed(names: &[&str], package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let at = |name: &&str| {
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
    };
    names.iter().find_map(at).with_context(|| {
        format!("'{}' is not installed\nhint: sudo apt-get install {package}", names[0])
    })
}

/// The script beside the library that it needs, which npm installs once.
fn installed(npm: &Path) -> Result<PathBuf> {
    let (source, folder) = (root().join("tests/pages"), scratch("pages/node")?);
    let wanted = fs::read_to_string(source.join("package.json"))?;
    let script = folder.join("check.mjs");
    fs::copy(source.join("check.mjs"), &script)?;
    let known = folder.join("installed.json");
    if fs::read_to_string(&known).is_ok_and(|known| known == wanted) {
        return Ok(script);
    }
    fs::write(folder.join("package.json"), &wanted)?;
    let options = ["install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"];
    good("npm install", Child::new(npm).args(options).dir(&folder))?;
    fs::write(known, wanted)?;
    Ok(script)
}

/// Pages and pictures of all commands that make any. The figures on them mean nothing.
fn made(args: &Args, out: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(out).with_context(|| format!("cannot make '{}'", out.display()))?;
    let target = target_dir()?;
    let command = match &args.command {
        Some(command) => {
            command.canonicalize().with_context(|| format!("'{}'", command.display()))?
        }
        None => {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let build = Child::new(cargo).args(["build", "--quiet", "--release"]).dir(&root());
            good("cargo build", build.env("CARGO_TARGET_DIR", &target))?;
            target.join("release/lockwright")
        }
    };
    let programs = root().join("crates/cli/tests/programs");
    for name in ["hoard", "readers", "top"] {
        compile(&programs.join(format!("{name}.c")), &out.join(name), &[])?;
    }
    // A program that ends with its input gets some for a while.
    let for_a_while = |words: &str| format!("sleep 1 | \"$LOCKWRIGHT\" {words}");
    let lines = [
        "\"$LOCKWRIGHT\" profile --html hoard.html --flame hoard.svg -- ./hoard 300".to_owned(),
        "\"$LOCKWRIGHT\" profile --html order.html --order -- ./hoard 100".to_owned(),
        "\"$LOCKWRIGHT\" profile --html sections.html --sections -- ./hoard 100".to_owned(),
        "\"$LOCKWRIGHT\" profile --html nothing.html -- true".to_owned(),
        for_a_while("profile --html readers.html --flame readers.svg -- ./readers"),
        for_a_while("profile --top 30 --html top.html -- ./top"),
        "\"$LOCKWRIGHT\" compare --quiet --rounds 2 --html compare.html -- ./hoard 50".to_owned(),
        "\"$LOCKWRIGHT\" tune --quiet --slo-range 20us..2ms --steps 3 --rounds 1 --time 300ms --epoch wait=usleep@p95 \
         --pareto --output tune -- ./hoard 9999"
            .to_owned(),
        "\"$LOCKWRIGHT\" bench --quiet --lock glibc,auto --threads 2 --rounds 2 --time 50ms --svg bench".to_owned(),
        "\"$LOCKWRIGHT\" sim --quiet --lock mcs,glibc --machine m1 --threads 1,8 --seeds 2 --duration 1ms --output sim"
            .to_owned(),
        "\"$LOCKWRIGHT\" sim --quiet --lock all --machine m1 --seeds 1 --duration 1ms --output sim-all".to_owned(),
        // Not each figure is accepted when it is rough.
        "\"$LOCKWRIGHT\" reproduce --quiet --quick --seeds 1 libasl-1 libasl-8h --output reproduce || test $? = 1"
            .to_owned(),
    ];
    for line in lines {
        eprintln!("{}", line.replace("\"$LOCKWRIGHT\"", "lockwright"));
        let child = Child::new("sh").args(["-c", &line]).env("LOCKWRIGHT", &command).dir(out);
        good(&line, child)?;
    }
    if !args.no_demo {
        eprintln!("cargo xtask demo --quick");
        let demo = Child::new(std::env::current_exe()?).args(["demo", "--quick", "--output"]);
        good("cargo xtask demo", demo.args([out.join("demo")]))?;
    }
    let mut files = pages_in(out)?;
    for folder in ["tune", "bench", "sim", "sim-all", "reproduce", "demo"] {
        let folder = out.join(folder);
        if folder.is_dir() {
            files.extend(pages_in(&folder)?);
        }
    }
    Ok(files)
}

/// The pages and pictures in a folder, sorted by name.
fn pages_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let is_one = |path: &PathBuf| {
        path.extension().is_some_and(|end| ["html", "svg"].iter().any(|one| end == *one))
    };
    let all =
        fs::read_dir(folder).with_context(|| format!("cannot read '{}'", folder.display()))?;
    let mut all: Vec<PathBuf> = all.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    all.retain(is_one);
    all.sort();
    Ok(all)
}

fn good(what: &str, child: Child) -> Result<()> {
    let outcome = child.limit(LIMIT).run().with_context(|| format!("cannot run {what}"))?;
    if outcome.end != End::Code(0) {
        bail!("{what}: {}", outcome.describe());
    }
    Ok(())
}
