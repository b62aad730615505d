//! `piton service`, with a systemctl that only writes down what it is asked for.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use crate::cli::home::Home;

/// Does what a command asks for as far as `is-active` shows; the command that the file `fail` names fails.
const SYSTEMCTL: &str = "#!/bin/sh
echo \"$*\" >>\"$HOME/calls\"
if [ -e \"$HOME/fail\" ] && [ \"$2\" = \"$(cat \"$HOME/fail\")\" ]; then
    echo 'Failed to connect to bus' >&2
    exit 1
fi
case $2 in
restart) touch \"$HOME/runs\" ;;
disable) rm -f \"$HOME/runs\" ;;
is-active) if [ -e \"$HOME/runs\" ]; then echo active; else echo inactive; exit 3; fi ;;
esac
";

fn home() -> Home {
    let mut home = Home::new();
    home.write("bin/systemctl", SYSTEMCTL);
    let stub = home.path().join("bin/systemctl");
    fs::set_permissions(stub, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}/bin:/usr/bin:/bin:/opt/$x/100%", home.path().display());
    home.set("PATH", &path);
    home
}

/// What was asked of the manager since the last call.
fn calls(home: &Home) -> Vec<String> {
    let file = home.path().join("calls");
    let calls = fs::read_to_string(&file).unwrap_or_default();
    let _ = fs::remove_file(file);
    calls.lines().map(str::to_owned).collect()
}

fn unit(home: &Home) -> PathBuf {
    home.path().join(".config/systemd/user/piton.service")
}

/// Wants to show: install writes the unit and starts it, a second install makes a changed file count,
/// and uninstall leaves nothing.
#[test]
fn the_service_is_installed_updated_and_removed() {
    let home = home();
    let started = [
        "--user show-environment",
        "--user daemon-reload",
        "--user enable piton.service",
        "--user restart piton.service",
    ];
    let installed = home.run("service install");
    assert!(installed.contains("The service is installed and started"), "{installed}");
    assert!(installed.ends_with("--- exit 0\n"), "{installed}");
    assert_eq!(calls(&home), started);
    let text = fs::read_to_string(unit(&home)).unwrap();
    // systemd expands specifiers in `Environment=`, and no variables.
    assert!(text.contains("/bin:/opt/$x/100%%\"\n"), "{text}");
    assert!(home.run("service status").contains("systemd: running"));
    calls(&home);

    let updated = home.run("--data other service install");
    assert!(updated.contains("The service is updated and restarted"), "{updated}");
    assert_eq!(calls(&home), started);
    let other = home.path().join("other").display().to_string();
    assert!(fs::read_to_string(unit(&home)).unwrap().contains(&format!("\"--data\" \"{other}\"")));

    let removed = home.run("service uninstall");
    assert!(removed.contains("The service is stopped and"), "{removed}");
    let stopped = ["--user disable --now piton.service", "--user daemon-reload"];
    assert_eq!(calls(&home), stopped);
    assert!(!unit(&home).exists());
    let status = home.run("service status");
    assert!(status.contains("The service is not installed.") && status.contains("--- exit 1"));
}

/// Wants to show: a manager that refuses is an error of its own, with what it printed; one that is not
/// there leaves no file.
#[test]
fn a_manager_that_refuses_is_named() {
    let home = home();
    home.write("fail", "restart");
    let refused = home.run("service install");
    assert!(refused.contains("`systemctl --user restart piton.service` failed"), "{refused}");
    assert!(refused.contains("Failed to connect to bus"), "{refused}");
    assert!(refused.contains("Code: service_manager_failed"), "{refused}");
    fs::remove_file(unit(&home)).unwrap();

    home.write("fail", "show-environment");
    let absent = home.run("service install");
    assert!(absent.contains("systemd does not answer here"), "{absent}");
    assert!(absent.contains("--- exit 2"), "{absent}");
    assert!(!unit(&home).exists());
}
