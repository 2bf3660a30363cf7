//! Runs each recipe of docs/deploy.md in the minimal root, as far as possible without its service. The page's recipes
//! must match `contrib/` word for word.

use super::root::Root;
use super::{COMPLAINT, VERSION, run, source, stage, timed};
use anyhow::{Context, Result, bail, ensure};
use lockwright_contract::environment::VARIABLES;
use lockwright_tests::{Child, End, compile};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The files of the recipes.
const RECIPES: [&str; 4] = [
    "contrib/systemd/lockwright.conf",
    "contrib/docker/Dockerfile",
    "contrib/kubernetes.yaml",
    "contrib/prometheus-alerts.yaml",
];
const PAGES: [&str; 2] = ["docs/deploy.md", "docs/install.md"];
const LIBRARY: &str = "/usr/lib/lockwright/liblockwright.so";
/// The output of `contend`.
const DONE: &str = "12000\n";
/// Runs as a user without any privileges, and without a way to get some.
const NOBODY: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --bounding-set=-all env HOME=/nonexistent";

/// Checks the recipes. The package is installed.
pub(super) fn check(root: &Root, package: &Path, dist: &Path) -> Result<()> {
    let programs = Programs::compile(root, dist)?;
    timed("recipes: pages and files agree, variables exist", pages)?;
    timed("recipe: systemd's drop-in", || systemd(root, dist))?;
    timed("recipe: Kubernetes' read-only root, library from a volume", || kubernetes(root))?;
    timed("recipe: a CPU quota", || quota(root))?;
    timed("recipe: a seccomp filter", || seccomp(root))?;
    timed("recipe: setuid and the off-switch", || setuid_and_off(root))?;
    timed("recipe: upgrade under load, and what is exported", || upgrade(root, package))?;
    programs.remove()
}

/// Programs in the root that all users may run.
struct Programs(Vec<PathBuf>);

impl Programs {
    fn compile(root: &Root, dist: &Path) -> Result<Programs> {
        let mut programs = Vec::new();
        for (name, file) in [
            ("contend", "crates/cli/tests/programs/contend.c"),
            ("server", "crates/cli/tests/programs/top.c"),
            ("fence", "tests/guests/fence.c"),
        ] {
            let program = dist.join(name);
            compile(&source().join(file), &program, &[])?;
            let there = root.path.join("usr/local/bin").join(name);
            stage::copy(&program, &there, 0o755)?;
            programs.push(there);
        }
        Ok(Programs(programs))
    }

    fn remove(self) -> Result<()> {
        Ok(self.0.iter().try_for_each(fs::remove_file)?)
    }
}

/// Checks that each recipe on a page matches its file, and that each of our variables on it exists.
fn pages() -> Result<()> {
    let read = |file: &str| {
        fs::read_to_string(source().join(file)).with_context(|| format!("cannot read '{file}'"))
    };
    let recipes = RECIPES.map(read).into_iter().collect::<Result<Vec<_>>>()?;
    let pages = PAGES.map(read).into_iter().collect::<Result<Vec<_>>>()?;
    let mut shown = 0;
    for page in &pages {
        for block in page.split("\n```").skip(1).step_by(2) {
            let (language, text) = block.split_once('\n').context("a block of code")?;
            if ["ini", "yaml", "dockerfile"].contains(&language) {
                let is_there = recipes.iter().any(|recipe| recipe.contains(text.trim_end()));
                ensure!(is_there, "no file in contrib/ has this:\n{text}");
                shown += 1;
            }
        }
    }
    ensure!(shown >= 3, "{shown} recipes on {PAGES:?}");
    for text in recipes.iter().chain(&pages) {
        for name in variables(text) {
            let is_known = VARIABLES.iter().any(|variable| variable.name == name);
            ensure!(is_known, "there is no variable {name}");
        }
    }
    let package = format!("lockwright_{VERSION}-1_");
    ensure!(pages[1].contains(&package), "{} names another version", PAGES[1]);
    Ok(())
}

/// The names of our variables in a text.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
    words.filter(|word| word.starts_with("LOCKWRIGHT_"))
}

/// Checks that the unit's variables work, and that systemd accepts the unit.
fn systemd(root: &Root, dist: &Path) -> Result<()> {
    let file = source().join("contrib/systemd/lockwright.conf");
    let text = fs::read_to_string(&file)?;
    let settings = text.lines().filter_map(|line| line.strip_prefix("Environment="));
    let settings: Vec<_> = settings.collect();
    ensure!(settings.len() == 2, "its variables: {settings:?}");
    let settings = settings.join(" ");
    root.prints(&format!("{settings} contend"), DONE)?;
    is_served(root, &settings)?;

    let folder = dist.join("systemd");
    super::empty(&folder)?;
    stage::copy(&file, &folder.join("server.service.d/lockwright.conf"), 0o644)?;
    let unit = folder.join("server.service");
    stage::write(&unit, "[Service]\nExecStart=/bin/true\n")?;
    let verify = || {
        let child = Child::new("systemd-analyze").args(["verify", "--man=no"]).args([&unit]);
        // Our folder comes before systemd's own units.
        child.env("SYSTEMD_UNIT_PATH", format!("{}:", folder.display())).run()
    };
    let Ok(outcome) = verify() else {
        eprintln!("dist: not run: 'systemd-analyze verify' (no systemd here)");
        return Ok(());
    };
    let said = outcome.errors();
    ensure!(outcome.end == End::Code(0) && said.is_empty(), "systemd: {}", outcome.describe());
    // Check that it really reads the drop-in.
    let drop_in = folder.join("server.service.d/lockwright.conf");
    stage::write(&drop_in, &text.replace("\nEnvironment=", "\nEnviroment="))?;
    let said = verify()?.errors();
    ensure!(said.contains("Enviroment"), "systemd reads no drop-in: '{said}'");
    Ok(())
}

/// Checks that a program with these variables uses our functions: it must complain about a lock that doesn't exist.
fn is_served(root: &Root, settings: &str) -> Result<()> {
    let outcome = root.shell("", &format!("{settings} LOCKWRIGHT_LOCK=bogus env true"))?;
    ensure!(outcome.errors().contains(COMPLAINT), "not served: {}", outcome.describe());
    Ok(())
}

/// Runs the init container's command, then a program with the container's variables, as in the deployment, in a
/// read-only root.
fn kubernetes(root: &Root) -> Result<()> {
    for recipe in RECIPES.iter().filter(|recipe| recipe.ends_with(".yaml")) {
        parsed(recipe)?;
    }
    let deployment = parsed("contrib/kubernetes.yaml")?;
    let pod = &deployment["spec"]["template"]["spec"];
    let copy: Vec<&str> = pod["initContainers"][0]["command"]
        .as_array()
        .context("a command")?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let copy = copy.join(" ");
    let server = &pod["containers"][0];
    let variables = server["env"].as_array().context("variables")?;
    let settings: Vec<String> = variables
        .iter()
        .map(|pair| {
            let word = |key: &str| pair[key].as_str().context("text");
            Ok(format!("{}={}", word("name")?, word("value")?))
        })
        .collect::<Result<_>>()?;
    let settings = settings.join(" ");
    let volume = server["volumeMounts"][0]["mountPath"].as_str().context("a volume")?;
    for container in [server, &pod["initContainers"][0]] {
        let security = &container["securityContext"];
        ensure!(security["readOnlyRootFilesystem"] == true, "its root can be written");
    }
    // Fill the volume, then make the container's root and /dev/shm read-only.
    let before = format!(
        "mkdir \"$ROOT{volume}\"; trap 'rmdir \"$ROOT{volume}\"' EXIT; mount -t tmpfs tmpfs \"$ROOT{volume}\"; \
         chroot \"$ROOT\" {copy}; mount -o remount,bind,ro \"$ROOT{volume}\"; \
         mount -o remount,ro \"$ROOT/dev/shm\"; mount -o remount,bind,ro \"$ROOT\""
    );
    let command = format!(
        "! touch /file 2>/dev/null && ! touch /dev/shm/file 2>/dev/null && {NOBODY} {settings} contend && \
         {NOBODY} {settings} LOCKWRIGHT_LOCK=bogus true"
    );
    let outcome = root.shell(&before, &command);
    let mountpoint = root.path.join(volume.trim_start_matches('/'));
    if mountpoint.exists() {
        fs::remove_dir(&mountpoint)?;
    }
    let outcome = outcome?;
    let is_served = outcome.errors().contains(COMPLAINT);
    ensure!(
        outcome.end == End::Code(0) && outcome.text() == DONE && is_served,
        "{}",
        outcome.describe()
    );
    Ok(())
}

/// Parses a YAML file.
fn parsed(file: &str) -> Result<Value> {
    let text = fs::read(source().join(file))?;
    let program = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)";
    let json =
        run(Child::new("python3").args(["-c", program]).input(text)).context(file.to_owned())?;
    Ok(serde_json::from_str(&json)?)
}

/// With half a CPU, the library must count one, and the program must end.
fn quota(root: &Root) -> Result<()> {
    let Some(group) = ControlGroup::with_half_a_cpu() else {
        eprintln!(
            "dist: not run: the recipe with a CPU quota (this machine doesn't allow new cgroups)"
        );
        return Ok(());
    };
    let before =
        format!("echo $$ >'{}/cgroup.procs'; mount --rbind /sys \"$ROOT/sys\"", group.0.display());
    let settings = format!("LD_PRELOAD={LIBRARY}");
    let outcome =
        root.shell(&before, &format!("lockwright doctor --topology && {settings} contend"))?;
    let text = outcome.text();
    ensure!(
        outcome.end == End::Code(0)
            && text.contains("the cpu quota of 50 ms in 100 ms allows 1")
            && text.ends_with(DONE),
        "{}",
        outcome.describe()
    );
    Ok(())
}

/// A control group, removed when dropped.
struct ControlGroup(PathBuf);

impl ControlGroup {
    /// A group of cgroup version 2 or 1; `None` if we may not create one.
    fn with_half_a_cpu() -> Option<ControlGroup> {
        let name = format!("lockwright-dist-{}", std::process::id());
        for (parent, file, quota) in [
            ("/sys/fs/cgroup", "cpu.max", "50000 100000"),
            ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "50000"),
        ] {
            let path = Path::new(parent).join(&name);
            if !Path::new(parent).join("cgroup.procs").exists() || fs::create_dir(&path).is_err() {
                continue;
            }
            let group = ControlGroup(path);
            if fs::write(group.0.join(file), quota).is_ok() {
                return Some(group);
            }
        }
        None
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Its processes have ended, so it is empty.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Runs under a filter that kills a program for system calls that neither loading nor locking needs.
fn seccomp(root: &Root) -> Result<()> {
    root.prints(&format!("fence {LIBRARY} /usr/local/bin/contend"), DONE)
}

/// The dynamic linker loads nothing into a setuid program; `glibc` selects glibc's algorithm.
fn setuid_and_off(root: &Root) -> Result<()> {
    let plain = "setpriv --reuid 65534 --regid 65534 --clear-groups env";
    let settings = format!("LD_PRELOAD={LIBRARY} LOCKWRIGHT_LOCK=bogus");
    let copy = "cp /usr/local/bin/contend /usr/local/bin/suid && chmod 4755 /usr/local/bin/suid";
    let outcome = root.shell(
        "",
        &format!("{copy} && {plain} {settings} suid; rm /usr/local/bin/suid; {plain} {settings} contend >&2"),
    )?;
    let (text, errors) = (outcome.text(), outcome.errors());
    // Only the program that isn't setuid complains.
    ensure!(
        text == DONE && errors.matches(COMPLAINT).count() == 1 && errors.ends_with(DONE),
        "{}",
        outcome.describe()
    );
    root.prints(&format!("LD_PRELOAD={LIBRARY} LOCKWRIGHT_LOCK=glibc contend"), DONE)?;
    let rule = rule_in_force(root, "glibc")?;
    ensure!(rule == "glibc", "with LOCKWRIGHT_LOCK=glibc it has '{rule}'");
    let rule = rule_in_force(root, "auto")?;
    ensure!(rule == "auto", "with LOCKWRIGHT_LOCK=auto it has '{rule}'");
    Ok(())
}

/// A server in the background, as `$pid`. It ends when descriptor 3 is closed.
const SERVER: &str = "set -e; mkfifo /root/fifo; \
    server </root/fifo & pid=$!; exec 3>/root/fifo; rm /root/fifo; \
    until grep -q liblockwright.so /proc/$pid/maps; do sleep 0.05; done;";

/// The lock of a process, from `lockwright top`.
fn rule_in_force(root: &Root, lock: &str) -> Result<String> {
    let settings = format!("export LD_PRELOAD={LIBRARY} LOCKWRIGHT_LOCK={lock}");
    let said = root.run(&format!(
        "{settings}; {SERVER} unset LD_PRELOAD; lockwright top $pid --batch --count 1; exec 3>&-; wait $pid"
    ))?;
    let line: Value = serde_json::from_str(said.trim()).with_context(|| said.clone())?;
    Ok(line["lock"].as_str().context("the process's lock")?.to_owned())
}

/// Reinstalls the package while a server runs. The server must keep its mapped file, and continue.
fn upgrade(root: &Root, package: &Path) -> Result<()> {
    stage::copy(package, &root.path.join("root/lockwright.deb"), 0o644)?;
    let said = root.run(&format!(
        "export LD_PRELOAD={LIBRARY}; {SERVER} unset LD_PRELOAD; \
         old=$(stat -c %i {LIBRARY}); \
         lockwright top --export $pid --output /root/metrics --interval 1s --count 2; \
         dpkg --install /root/lockwright.deb >&2; rm /root/lockwright.deb; \
         test $old != $(stat -c %i {LIBRARY}); \
         grep -q 'liblockwright.so (deleted)$' /proc/$pid/maps; \
         exec 3>&-; wait $pid; cat /root/metrics; rm /root/metrics"
    ))?;
    let alerts = parsed("contrib/prometheus-alerts.yaml")?;
    let rules = alerts["groups"][0]["rules"].as_array().context("rules")?;
    ensure!(rules.len() >= 3, "{} alerts", rules.len());
    for rule in rules {
        let query = rule["expr"].as_str().context("a query")?;
        let words = query.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
        for name in words.filter(|word| word.starts_with("lockwright_")) {
            if !said.lines().any(|line| line.starts_with(&format!("{name}{{"))) {
                bail!("{}: no metric is called {name}", rule["alert"]);
            }
        }
    }
    Ok(())
}
