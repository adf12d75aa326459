//! Developer scripts: their help.

use std::process::Command;

use crate::harness::root;

#[test]
fn a_script_that_takes_a_folder_prints_its_usage_and_makes_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let scripts = [
        "gpu/build", "gpu/programs", "check-cuda", "reproduce", "get-tokenizers", "build-wheel", "check-wheels",
        "check-python",
    ];
    for script in scripts {
        for help in ["-h", "--help"] {
            let ran = Command::new(root("scripts").join(script)).arg(help).current_dir(folder.path()).output();
            let ran = ran.expect("starts");
            let (stdout, stderr) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
            assert!(ran.status.success() && stderr.is_empty(), "{script} {help}: {stderr}");
            assert!(stdout.contains(&format!("usage: scripts/{script} ")), "{script} {help}: {stdout}");
        }
    }
    assert_eq!(folder.path().read_dir().expect("readable").count(), 0);
}
