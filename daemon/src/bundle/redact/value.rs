//! Where the value stands that belongs to a name, and how far it goes, in text that need not be whole.

/// Words after which the secret follows.
const SCHEMES: [&str; 2] = ["bearer", "basic"];

pub(super) fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.')
}

fn is_end(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '"' | '\'' | ',' | ';')
}

/// What follows a name and a `:` or `=`, with whatever quotes and spaces around these. Behind the last part of a path comes a
/// complaint about it.
pub(super) fn value_after(name: &str, in_path: bool) -> Option<&str> {
    let separated =
        name.trim_start_matches(|letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'' | '\\'));
    if !separated.starts_with([':', '=']) || in_path && separated.starts_with(':') {
        return None;
    }
    Some(separated.trim_start_matches([':', '=', '>']).trim_start())
}

/// What follows an option of a command line, by a space or as the next of a list's strings. Another option is no value.
pub(super) fn value_of_option<'a>(name: &str, after: &'a str) -> Option<&'a str> {
    let is_quote = |letter: char| matches!(letter, '"' | '\'' | '\\');
    let separated = after.trim_start_matches(is_quote);
    let value = separated.trim_start_matches(|letter: char| letter.is_whitespace() || letter == ',');
    let is_value = !value.trim_start_matches(is_quote).starts_with(['-', ']', '}']) && !value.is_empty();
    (name.starts_with('-') && value.len() < separated.len() && is_value).then_some(value)
}

/// Where in a value the secret begins, and how long it is. What is not closed takes all that follows.
pub(super) fn measure(value: &str) -> (usize, usize) {
    let escapes = value.len() - value.trim_start_matches('\\').len();
    match split(value, escapes).1.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let open = escapes + 1;
            (open, quoted(split(value, open).1, quote, escapes))
        }
        Some('[' | '{') => (0, bracketed(value)),
        Some('|' | '>') => (0, block(value)),
        _ => (0, word(value)),
    }
}

/// Up to the quote that closes it: not one that is escaped deeper than the one that opened it.
fn quoted(text: &str, quote: char, escapes: usize) -> usize {
    let mut run = 0;
    for (at, letter) in text.char_indices() {
        if letter == quote && (run <= escapes || escapes == 0 && run % 2 == 0) {
            return at - run.min(escapes);
        }
        run = if letter == '\\' { run + 1 } else { 0 };
    }
    text.len()
}

/// All of a list or an object, with what is in its strings.
fn bracketed(text: &str) -> usize {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '"' if !escaped => in_string = !in_string,
            '[' | '{' if !in_string => depth += 1,
            ']' | '}' if !in_string => depth = usize::saturating_sub(depth, 1),
            _ => {}
        }
        escaped = letter == '\\' && !escaped;
        if depth == 0 {
            return at + letter.len_utf8();
        }
    }
    text.len()
}

/// Of YAML: the lines that are indented.
fn block(text: &str) -> usize {
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().map_or(0, str::len);
    first + lines.take_while(|line| line.starts_with(char::is_whitespace)).map(str::len).sum::<usize>()
}

/// A word, and the one behind a word that says what kind of secret it is.
fn word(text: &str) -> usize {
    let length = text.find(is_end).unwrap_or(text.len());
    let (first, after) = split(text, length);
    if !SCHEMES.contains(&first.to_lowercase().as_str()) {
        return length;
    }
    let next = after.trim_start();
    text.len() - next.len() + next.find(is_end).unwrap_or(next.len())
}

pub(super) fn split(text: &str, at: usize) -> (&str, &str) {
    text.split_at_checked(at).unwrap_or((text, ""))
}
