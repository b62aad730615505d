//! What a service manager reads. Pure.

use std::path::{Path, PathBuf};

const SYSTEMD_NAME: &str = "piton.service";
const LAUNCHD_NAME: &str = "dev.piton.server";

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Manager {
    Systemd,
    Launchd,
}

/// What the service runs.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) program: PathBuf,
    pub(super) data: PathBuf,
    pub(super) config: Option<PathBuf>,
    /// Where agents' programs are found.
    pub(super) path: Option<String>,
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

impl Manager {
    #[cfg(target_os = "macos")]
    pub(super) const HERE: Self = Self::Launchd;
    #[cfg(not(target_os = "macos"))]
    pub(super) const HERE: Self = Self::Systemd;

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Systemd => "systemd",
            Self::Launchd => "launchd",
        }
    }

    pub(super) fn file(self, home: Option<&Path>, config: Option<&Path>) -> Option<PathBuf> {
        match self {
            Self::Systemd => {
                let config = config.map(Path::to_owned).or_else(|| Some(home?.join(".config")))?;
                Some(config.join("systemd/user").join(SYSTEMD_NAME))
            }
            Self::Launchd => {
                Some(home?.join("Library/LaunchAgents").join(format!("{LAUNCHD_NAME}.plist")))
            }
        }
    }

    /// Commands that start what the file describes, now and at every login. A service that runs
    /// already is restarted, so that a changed file counts.
    pub(super) fn start(self, file: &Path, is_loaded: bool) -> Vec<Vec<String>> {
        match self {
            Self::Systemd => vec![
                words(["systemctl", "--user", "daemon-reload"]),
                words(["systemctl", "--user", "enable", SYSTEMD_NAME]),
                words(["systemctl", "--user", "restart", SYSTEMD_NAME]),
            ],
            // launchd refuses a file for a service that it has loaded.
            Self::Launchd => {
                let mut commands = if is_loaded { self.stop() } else { Vec::new() };
                let file = file.display().to_string();
                commands.push(words(["launchctl", "bootstrap", &domain(), &file]));
                commands
            }
        }
    }

    pub(super) fn stop(self) -> Vec<Vec<String>> {
        match self {
            Self::Systemd => vec![words(["systemctl", "--user", "disable", "--now", SYSTEMD_NAME])],
            Self::Launchd => {
                let service = format!("{}/{LAUNCHD_NAME}", domain());
                vec![words(["launchctl", "bootout", &service])]
            }
        }
    }

    /// Commands after the file was removed.
    pub(super) fn forget(self) -> Vec<Vec<String>> {
        match self {
            Self::Systemd => vec![words(["systemctl", "--user", "daemon-reload"])],
            Self::Launchd => Vec::new(),
        }
    }

    pub(super) fn probe(self) -> Vec<String> {
        match self {
            Self::Systemd => words(["systemctl", "--user", "show-environment"]),
            Self::Launchd => words(["launchctl", "print", &domain()]),
        }
    }

    pub(super) fn query(self) -> Vec<String> {
        match self {
            Self::Systemd => words(["systemctl", "--user", "is-active", SYSTEMD_NAME]),
            Self::Launchd => words(["launchctl", "print", &format!("{}/{LAUNCHD_NAME}", domain())]),
        }
    }
}

fn domain() -> String {
    format!("gui/{}", rustix::process::getuid().as_raw())
}

impl Service {
    pub(super) fn text(&self, manager: Manager) -> Result<String, String> {
        match manager {
            Manager::Systemd => self.unit(),
            Manager::Launchd => self.plist(),
        }
    }

    fn call(&self) -> Result<Vec<String>, String> {
        let text = |path: &Path| {
            let text = path.to_str().filter(|text| !text.contains(char::is_control));
            let why = || format!("{} cannot stand in the service's file", path.display());
            text.map(str::to_owned).ok_or_else(why)
        };
        let mut call = vec![text(&self.program)?, "--data".to_owned(), text(&self.data)?];
        if let Some(config) = &self.config {
            call.extend(["--config".to_owned(), text(config)?]);
        }
        Ok(call)
    }

    fn unit(&self) -> Result<String, String> {
        let call: Vec<String> = self.call()?.iter().map(|word| quoted(word)).collect();
        let call = call.join(" ");
        let path = self.path.as_deref().filter(|path| !path.contains(char::is_control));
        let path = path.map_or_else(String::new, |path| {
            format!("Environment={}\n", quoted_value(&format!("PATH={path}")))
        });
        Ok(format!(
            "[Unit]\n\
             Description=Piton: durable sessions for AI agents\n\
             \n\
             [Service]\n\
             ExecStart={call} serve\n\
             ExecReload={call} reload\n\
             {path}\
             Restart=on-failure\n\
             RestartSec=2\n\
             # Agents outlive the server: only the server's own process is stopped.\n\
             KillMode=process\n\
             # Each agent gets a control group of its own below the service's.\n\
             Delegate=yes\n\
             \n\
             [Install]\n\
             WantedBy=default.target\n"
        ))
    }

    fn plist(&self) -> Result<String, String> {
        let mut call = self.call()?;
        call.push("serve".to_owned());
        let call: Vec<String> =
            call.iter().map(|word| format!("    <string>{}</string>\n", xml(word))).collect();
        let path = self.path.as_deref().filter(|path| !path.contains(char::is_control));
        let path = path.map_or_else(String::new, |path| {
            format!(
                "  <key>EnvironmentVariables</key>\n  <dict>\n    <key>PATH</key>\n    \
                 <string>{}</string>\n  </dict>\n",
                xml(path)
            )
        });
        let log = self.data.join("server.log").display().to_string();
        let log = xml(&log);
        Ok(format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \
             \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
             <plist version=\"1.0\">\n<dict>\n\
             \x20 <key>Label</key>\n  <string>{LAUNCHD_NAME}</string>\n\
             \x20 <key>ProgramArguments</key>\n  <array>\n{}  </array>\n{path}\
             \x20 <key>RunAtLoad</key>\n  <true/>\n\
             \x20 <key>KeepAlive</key>\n  <dict>\n    <key>SuccessfulExit</key>\n    <false/>\n  </dict>\n\
             \x20 <!-- Agents outlive the server: only the server's own process is stopped. -->\n\
             \x20 <key>AbandonProcessGroup</key>\n  <true/>\n\
             \x20 <key>StandardOutPath</key>\n  <string>{log}</string>\n\
             \x20 <key>StandardErrorPath</key>\n  <string>{log}</string>\n\
             </dict>\n</plist>\n",
            call.concat()
        ))
    }
}

/// As systemd reads one word of a command line: specifiers, variables and quotes are only characters.
fn quoted(word: &str) -> String {
    quoted_value(word).replace('$', "$$")
}

/// As systemd reads an assignment of `Environment=`, where `$` has no meaning.
fn quoted_value(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '%' => out.push_str("%%"),
            c => out.push(c),
        }
    }
    out + "\""
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Service {
        Service {
            program: "/opt/my \"piton\"/piton".into(),
            data: "/srv/a/100% & <data>$x".into(),
            config: Some("/srv/a/config.toml".into()),
            path: Some("/usr/bin:/srv/a/$x/100%/bin".to_owned()),
        }
    }

    #[test]
    fn a_unit_ends_the_server_alone_and_quotes_its_words() {
        insta::assert_snapshot!("service_systemd", service().text(Manager::Systemd).unwrap());
    }

    #[test]
    fn a_launchd_agent_ends_the_server_alone_and_escapes_its_words() {
        insta::assert_snapshot!("service_launchd", service().text(Manager::Launchd).unwrap());
    }

    #[test]
    fn a_path_that_would_add_lines_is_refused() {
        let service = Service { data: "/a\nExecStartPre=/bin/evil".into(), ..service() };
        for manager in [Manager::Systemd, Manager::Launchd] {
            assert!(service.text(manager).unwrap_err().contains("cannot stand"), "{manager:?}");
        }
    }

    /// A changed file counts: systemd restarts the unit, launchd loads the file again.
    #[test]
    fn a_service_that_runs_is_restarted() {
        let file = Path::new("/h/agent.plist");
        let lines = |manager: Manager, is_loaded| -> Vec<String> {
            let commands = manager.start(file, is_loaded);
            let lines = commands.iter().map(|words| words.join(" "));
            lines.map(|line| line.replace(&domain(), "DOMAIN")).collect()
        };
        let systemd = [
            "systemctl --user daemon-reload",
            "systemctl --user enable piton.service",
            "systemctl --user restart piton.service",
        ];
        assert_eq!(lines(Manager::Systemd, false), systemd);
        assert_eq!(lines(Manager::Systemd, true), systemd);
        let bootstrap = "launchctl bootstrap DOMAIN /h/agent.plist";
        assert_eq!(lines(Manager::Launchd, false), [bootstrap]);
        let bootout = "launchctl bootout DOMAIN/dev.piton.server";
        assert_eq!(lines(Manager::Launchd, true), [bootout, bootstrap]);
    }

    #[test]
    fn the_file_lies_where_the_manager_looks() {
        let file = |manager: Manager, config| manager.file(Some(Path::new("/h")), config);
        let unit = file(Manager::Systemd, None).unwrap();
        assert_eq!(unit, Path::new("/h/.config/systemd/user/piton.service"));
        let elsewhere = file(Manager::Systemd, Some(Path::new("/c"))).unwrap();
        assert_eq!(elsewhere, Path::new("/c/systemd/user/piton.service"));
        let agent = file(Manager::Launchd, None).unwrap();
        assert_eq!(agent, Path::new("/h/Library/LaunchAgents/dev.piton.server.plist"));
        assert_eq!(Manager::Launchd.file(None, None), None);
    }
}
