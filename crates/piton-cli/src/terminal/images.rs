//! The images that a prompt names: `@name` in the workspace, and absolute paths as terminals paste them
//! when a file is dragged in: quoted, with escaped blanks, or as `file://`.

use std::path::{Path, PathBuf};

const ENDS: [&str; 5] = [".png", ".jpg", ".jpeg", ".gif", ".webp"];

/// The images of a prompt that are files, each once, in their order.
pub(crate) fn named(text: &str, folder: Option<&Path>, home: Option<&Path>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for line in text.lines() {
        // A path alone on its line may have blanks that nothing escapes.
        let alone = resolve(line.trim(), folder, home).filter(|path| is_image(path));
        let files = match alone {
            Some(path) => vec![path],
            None => words(line)
                .into_iter()
                .filter_map(|word| resolve(&word, folder, home))
                .filter(|path| is_image(path))
                .collect(),
        };
        for path in files {
            if !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}

fn is_image(path: &Path) -> bool {
    let name = path.to_string_lossy().to_ascii_lowercase();
    ENDS.iter().any(|end| name.ends_with(end)) && path.is_file()
}

fn resolve(word: &str, folder: Option<&Path>, home: Option<&Path>) -> Option<PathBuf> {
    if let Some(name) = word.strip_prefix('@') {
        return folder.map(|folder| folder.join(name));
    }
    if let Some(path) = word.strip_prefix("file://") {
        return Some(PathBuf::from(unescaped(path.strip_prefix("localhost").unwrap_or(path))));
    }
    if let Some(rest) = word.strip_prefix("~/") {
        return home.map(|home| home.join(rest));
    }
    word.starts_with('/').then(|| PathBuf::from(word))
}

/// `%20` and its like; what is none stays as it is.
fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        if let Some(byte) = code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            out.push(byte);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The words of a line. A quote counts where a word begins, so that an apostrophe is none.
fn words(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(end)) if c == end => quote = None,
            ('\'' | '"', None) if matches!(word.as_str(), "" | "@") => quote = Some(c),
            ('\\', None) if chars.peek().is_some_and(|next| !next.is_alphanumeric()) => {
                word.extend(chars.next());
            }
            (c, None) if c.is_whitespace() => {
                found.push(std::mem::take(&mut word));
            }
            (c, _) => word.push(c),
        }
    }
    // A quote without an end was none: its words are looked at one by one.
    if quote.is_some() {
        found.extend(word.split_whitespace().map(str::to_owned));
    } else {
        found.push(word);
    }
    found.retain(|word| !word.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_found_as_they_are_typed_pasted_and_dragged() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        for name in ["a.png", "two words.JPG", "it's.gif", "notes.txt"] {
            std::fs::write(here.join(name), "x").unwrap();
        }
        let path = |name: &str| here.join(name);
        let shown = here.display().to_string();
        for (text, wanted) in [
            ("what is on @a.png ?".to_owned(), vec!["a.png"]),
            ("see @\"two words.JPG\"".to_owned(), vec!["two words.JPG"]),
            (
                format!("don't use {shown}/a.png or '{shown}/two words.JPG'"),
                vec!["a.png", "two words.JPG"],
            ),
            (
                format!("look: {shown}/two\\ words.JPG {shown}/it\\'s.gif"),
                vec!["two words.JPG", "it's.gif"],
            ),
            (format!("{shown}/two words.JPG"), vec!["two words.JPG"]),
            (
                format!("file://{shown}/two%20words.JPG and file://{shown}/a.png"),
                vec!["two words.JPG", "a.png"],
            ),
            (format!("@a.png {shown}/a.png ~/a.png"), vec!["a.png"]),
            (format!("{shown}/notes.txt {shown}/missing.png a.png \"{shown}/a.png"), vec!["a.png"]),
            ("100% of 5%zz".to_owned(), vec![]),
        ] {
            let wanted: Vec<PathBuf> = wanted.into_iter().map(path).collect();
            assert_eq!(named(&text, Some(here), Some(here)), wanted, "{text}");
        }
        assert_eq!(named("@a.png", None, None), Vec::<PathBuf>::new());
    }
}
