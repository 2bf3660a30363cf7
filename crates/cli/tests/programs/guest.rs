//! What a program that runs under us may expect.

use super::*;

/// AddressSanitizer refuses to start behind another library, unless told otherwise; programs that the program
/// starts are not loaded with it.
#[test]
fn a_program_with_address_sanitizer_runs() -> Result<()> {
    let script = format!("{} exit 0; echo $ASAN_OPTIONS; echo $LD_PRELOAD", ASAN.display());
    for (given, told) in [
        ("", "verify_asan_link_order=0"),
        ("detect_leaks=0", "detect_leaks=0:verify_asan_link_order=0"),
    ] {
        let child =
            lockwright().args(["run", "--", "sh", "-c", &script]).env("ASAN_OPTIONS", given);
        let outcome = child.run()?;
        assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
        let preloaded = preloaded()?;
        assert_eq!(outcome.text(), format!("{COUNT}{told}\n{preloaded}\n"), "{}", outcome.errors());
    }
    Ok(())
}

/// Recordings hold addresses.
#[test]
fn folders_of_recordings_are_their_owners_alone() -> Result<()> {
    let output = FOLDER.path().join("modes.bin").display().to_string();
    let record = ["profile", "--record", "--force", "--output", &output];
    for (options, variable) in
        [(&record[..], "LOCKWRIGHT_TRACE"), (&["run", "--stats"], "LOCKWRIGHT_STATS")]
    {
        let command = env!("CARGO_BIN_EXE_lockwright");
        let script = format!("umask 0; exec {command} \"$@\"");
        let shown = format!("stat -c %a \"${variable}\" \"${variable}\"/*");
        let child =
            Child::new("sh").env("LOCKWRIGHT_LIBRARY", &*LIBRARY).args(["-c", &script, "sh"]);
        let outcome = child.args(options).args(["--", "sh", "-c", &shown]).run()?;
        assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
        let text = outcome.text();
        let (folder, files) = text.split_once('\n').context("two lines")?;
        assert_eq!(folder, "700");
        assert!(files.lines().count() > 0 && files.lines().all(|mode| mode == "600"), "{text}");
    }
    Ok(())
}
