//! Patterns of commands, names and paths.

/// Whether a pattern matches the whole text. `*` stands for any number of characters that `takes`
/// accepts, `?` for one of them; everything else stands for itself.
pub(super) fn matches(pattern: &str, text: &str, takes: impl Fn(char) -> bool) -> bool {
    let text: Vec<char> = text.chars().collect();
    // `reached[i]`: the pattern so far matches the first `i` characters.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for p in pattern.chars() {
        let mut next = vec![false; text.len() + 1];
        for (at, is_reached) in reached.iter().enumerate() {
            match p {
                '*' => {
                    let is_taken = at > 0 && next[at - 1] && takes(text[at - 1]);
                    next[at] = *is_reached || is_taken;
                }
                '?' if *is_reached && at < text.len() => next[at + 1] = takes(text[at]),
                p if *is_reached && at < text.len() => next[at + 1] = p == text[at],
                _ => {}
            }
        }
        reached = next;
    }
    reached[text.len()]
}

/// Whether a pattern of absolute paths matches a path. `*` and `?` stay within a name, `**` stands
/// for any number of whole names, also none.
pub(super) fn matches_path(pattern: &str, path: &str) -> bool {
    let names = |path: &str| -> Vec<String> {
        path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let path = names(path);
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    for p in names(pattern) {
        let mut next = vec![false; path.len() + 1];
        for (at, is_reached) in reached.iter().enumerate() {
            if p == "**" {
                next[at] = *is_reached || at > 0 && next[at - 1];
            } else if *is_reached && at < path.len() {
                next[at + 1] = matches(&p, &path[at], |_| true);
            }
        }
        reached = next;
    }
    reached[path.len()]
}

/// A path without `.` and `..`, below `folder` if it is relative; `None` if it cannot be told where
/// it lies. Links are not followed.
pub(super) fn normal_path(path: &str, folder: Option<&str>) -> Option<String> {
    if path.is_empty() || path.starts_with('~') || path.chars().any(char::is_control) {
        return None;
    }
    let whole = match path.strip_prefix('/') {
        Some(_) => path.to_owned(),
        None => format!("{}/{path}", folder.filter(|folder| folder.starts_with('/'))?),
    };
    let mut names: Vec<&str> = Vec::new();
    for name in whole.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    Some(format!("/{}", names.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_take_what_they_may() {
        let all = |pattern: &str, text: &str| matches(pattern, text, |_| true);
        assert!(all("git *", "git status") && all("*", "") && all("a?c", "abc") && all("", ""));
        assert!(!all("git *", "git") && !all("git", "git status") && !all("a?c", "ac"));
        assert!(all("*a*b*", "xxaxxbxx") && !all("*a*b", "xxaxxbxx"));
        let careful = |pattern: &str, text: &str| matches(pattern, text, |c| c != ';');
        assert!(careful("git *", "git status"));
        assert!(!careful("git *", "git status; rm x") && !careful("git?rm", "git;rm"));
        assert!(careful("git *; ls", "git status; ls"), "what is spelled out is meant");
        assert!(!careful("*; ls", "a; b; ls"));
    }

    #[test]
    fn paths_match_by_names() {
        for (pattern, path, is_match) in [
            ("/w/src/**", "/w/src/a/b.rs", true),
            ("/w/src/**", "/w/src", true),
            ("/w/src/**", "/w/srcs/a", false),
            ("/w/*.rs", "/w/a.rs", true),
            ("/w/*.rs", "/w/a/b.rs", false),
            ("/**/.env", "/w/x/.env", true),
            ("/**/.env", "/.env", true),
            ("/w/**/t/?.md", "/w/t/a.md", true),
            ("/w/**/t/?.md", "/w/a/b/t/ab.md", false),
        ] {
            assert_eq!(matches_path(pattern, path), is_match, "{pattern} {path}");
        }
    }

    #[test]
    fn a_path_is_where_it_leads() {
        for (path, normal) in [
            ("src/./a//b", Some("/w/src/a/b")),
            ("src/../../etc/passwd", Some("/etc/passwd")),
            ("/../../x", Some("/x")),
            ("~/x", None),
            ("", None),
            ("a\nb", None),
        ] {
            assert_eq!(normal_path(path, Some("/w")).as_deref(), normal, "{path}");
        }
        assert_eq!(normal_path("src", None), None);
        assert_eq!(normal_path("src", Some("w")), None);
    }
}
