//! Redaction: secrets in a text are replaced, line by line, and counted. It recognizes what tools and people write as secrets; it
//! cannot know all of them.

use std::borrow::Cow;
use std::fmt;
use std::ops::{AddAssign, Range};

use regex::{Captures, Regex, RegexBuilder, RegexSet};
use serde::{Deserialize, Serialize};

/// In the place of a secret.
const REDACTED: &str = "[redacted]";
/// The most lines of a PEM block, if its end does not come.
const PEM_LINES_MAX: usize = 500;
/// The memory that one expression may use for its states, in bytes.
const STATES_MAX: usize = 256 << 10;

/// Words behind "bearer" that messages have, and that are not a token.
const PROSE: [&str; 5] = ["token", "tokens", "auth", "authentication", "authorization"];

/// A kind of secret, what its lines contain in any case, and the expression; its group `secret` is replaced.
const EXPRESSIONS: [(SecretKind, &[&str], &str); 7] = [
    // PEM in one line, and its start. In Base64, as kubeconfigs have it.
    (SecretKind::Pem, &["-----begin "], r"(?<secret>-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|$))"),
    (SecretKind::Pem, &["ls0tls1crudjtib"], r"(?<secret>LS0tLS1CRUdJTiB[A-Za-z0-9+/=]*)"),
    (SecretKind::Jwt, &["eyj"], r"\b(?<secret>eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)*)"),
    (SecretKind::UrlCredential, &["://"], r#"[A-Za-z][A-Za-z0-9+.-]*://(?<secret>[^\s/@"'<>]+)@"#),
    // Pre-authenticated requests of OCI's Object Storage.
    (SecretKind::UrlCredential, &["/p/"], r#"/p/(?<secret>[A-Za-z0-9_~.-]{16,})/n/"#),
    (
        SecretKind::BearerToken,
        &["bearer", "basic", "authorization"],
        r#"(?i)(?:\b(?:bearer|basic)(?:\s+|%20)|authorization\\*["']?\s*[:=]\s*\\*["']?(?:[a-z]+\s+)?)(?<secret>[A-Za-z0-9._~+/=-]+)"#,
    ),
    (
        SecretKind::NamedValue,
        &[
            "passw",
            "passphrase",
            "secret",
            "token",
            "apikey",
            "api_key",
            "api-key",
            "private_key",
            "private-key",
            "credential",
        ],
        r#"(?i)(?<key>["']?[a-z0-9_.-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|private[_-]?key|credentials?)[a-z0-9_.-]*\\*["']?)(?:\s*(?:=>?|:|%3d)\s*|\s+(?<flag>))(?<secret>\\*"(?:[^"\\]|\\[^"])*\\*"|'[^']*'|[^\s"'\\,;&\]})]+)"#,
    ),
];

/// A kind of secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecretKind {
    Pem,
    Jwt,
    UrlCredential,
    BearerToken,
    NamedValue,
}

/// How many secrets were replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Redactions {
    /// The number of removed keys and certificates.
    pub pem: u64,
    /// The number of removed JSON web tokens.
    pub jwt: u64,
    /// Users and passwords in URLs, and pre-authenticated requests.
    pub url_credentials: u64,
    /// Bearer and basic authorizations.
    pub bearer_tokens: u64,
    /// Values of names such as password, secret and token.
    pub named_values: u64,
}

/// Redacts the lines of one text after the other.
pub struct Redactor {
    /// Whether a line has words of an expression: most lines have none.
    words: RegexSet,
    expressions: Vec<(SecretKind, Regex)>,
    /// The lines that a PEM block may still have.
    pem_lines: usize,
    counts: Redactions,
}

impl Redactor {
    /// One that has read nothing.
    ///
    /// # Errors
    /// When an expression is not valid.
    pub fn new() -> Result<Self, regex::Error> {
        let words = RegexSet::new(EXPRESSIONS.map(|(_, words, _)| format!("(?i-u:{})", words.join("|"))))?;
        let compile = |text: &str| RegexBuilder::new(text).dfa_size_limit(STATES_MAX).build();
        let expressions = EXPRESSIONS.into_iter().map(|(kind, _, text)| Ok((kind, compile(text)?)));
        let expressions = expressions.collect::<Result<_, regex::Error>>()?;
        Ok(Self { words, expressions, pem_lines: 0, counts: Redactions::default() })
    }

    /// What was replaced, up to now.
    pub const fn counts(&self) -> Redactions {
        self.counts
    }

    /// A whole text; the next one begins outside a PEM block.
    pub fn text<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        self.pem_lines = 0;
        let (mut redacted, mut kept) = (String::new(), 0);
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            let content = line.trim_end_matches(['\n', '\r']);
            if let Cow::Owned(content) = self.line(content) {
                redacted.push_str(text.get(kept..at).unwrap_or_default());
                redacted.push_str(&content);
                kept = at + line.trim_end_matches(['\n', '\r']).len();
            }
            at += line.len();
        }
        if kept == 0 && redacted.is_empty() {
            return Cow::Borrowed(text);
        }
        redacted.push_str(text.get(kept..).unwrap_or_default());
        Cow::Owned(redacted)
    }

    /// A line without its end.
    pub fn line<'a>(&mut self, line: &'a str) -> Cow<'a, str> {
        if self.pem_lines > 0 {
            return self.line_of_pem(line);
        }
        let mut redacted = Cow::Borrowed(line);
        for index in &self.words.matches(line) {
            if let Some((kind, expression)) = self.expressions.get(index) {
                let replaced = replace(expression, *kind, &redacted, &mut self.counts);
                redacted = replaced.map_or(redacted, Cow::Owned);
            }
        }
        if let Some((_, rest)) = line.rsplit_once("-----BEGIN ")
            && !rest.contains("-----END ")
        {
            self.pem_lines = PEM_LINES_MAX;
        }
        redacted
    }

    /// Its last word is a part of the block, if it is Base64. A journal writes other words before it, and other lines between.
    fn line_of_pem<'a>(&mut self, line: &'a str) -> Cow<'a, str> {
        self.pem_lines -= 1;
        let (start, last) = line.trim_end().rsplit_once(' ').unwrap_or(("", line.trim_end()));
        if let Some((before, after)) = line.split_once("-----END ") {
            self.pem_lines = 0;
            let start = before.rsplit_once(' ').map_or("", |(start, _)| start);
            let after = after.split_once("-----").map_or("", |(_, after)| after);
            return Cow::Owned(format!("{start} {REDACTED}{after}").trim_start().to_owned());
        }
        let is_base64 = last.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        if !is_base64 || last.is_empty() {
            return Cow::Borrowed(line);
        }
        Cow::Owned(format!("{start} {REDACTED}").trim_start().to_owned())
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Redactor").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// The line with its secrets of one kind replaced, if there are any.
fn replace(expression: &Regex, kind: SecretKind, line: &str, counts: &mut Redactions) -> Option<String> {
    let (mut replaced, mut end) = (String::new(), 0);
    for found in expression.captures_iter(line) {
        let Some(secret) = secret_of(kind, &found) else { continue };
        replaced.push_str(line.get(end..secret.start)?);
        replaced.push_str(REDACTED);
        end = secret.end;
        *counts.of(kind) += 1;
    }
    replaced.push_str(line.get(end..)?);
    (end > 0).then_some(replaced)
}

/// Which part of a match is secret; `None` for prose, for a number of JSON, and if it is redacted already.
fn secret_of(kind: SecretKind, found: &Captures<'_>) -> Option<Range<usize>> {
    let secret = found.name("secret")?;
    let text = secret.as_str();
    let quotes: &[char] = &['\\', '"', '\''];
    let inner = text.trim_matches(quotes);
    let start = secret.start() + (text.len() - text.trim_start_matches(quotes).len());
    if inner.is_empty() || inner.starts_with(REDACTED.trim_end_matches(']')) {
        return None;
    }
    if kind == SecretKind::BearerToken && PROSE.contains(&inner.to_ascii_lowercase().as_str()) {
        return None;
    }
    if kind == SecretKind::NamedValue {
        let key = found.name("key")?.as_str();
        // A number, or another value of JSON without quotes.
        let is_literal = text == inner && (["null", "true", "false"].contains(&inner) || inner.parse::<f64>().is_ok());
        // `token abc` is prose, `--token abc` is not.
        if key.starts_with(quotes) && is_literal
            || found.name("flag").is_some() && !key.starts_with("--")
            || inner.starts_with(['{', '['])
        {
            return None;
        }
    }
    Some(start..start + inner.len())
}

impl Redactions {
    fn of(&mut self, kind: SecretKind) -> &mut u64 {
        match kind {
            SecretKind::Pem => &mut self.pem,
            SecretKind::Jwt => &mut self.jwt,
            SecretKind::UrlCredential => &mut self.url_credentials,
            SecretKind::BearerToken => &mut self.bearer_tokens,
            SecretKind::NamedValue => &mut self.named_values,
        }
    }
}

impl AddAssign for Redactions {
    fn add_assign(&mut self, other: Self) {
        self.pem += other.pem;
        self.jwt += other.jwt;
        self.url_credentials += other.url_credentials;
        self.bearer_tokens += other.bearer_tokens;
        self.named_values += other.named_values;
    }
}

impl fmt::Display for Redactions {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pem, jwt, url_credentials, bearer_tokens, named_values } = self;
        write!(
            to,
            "PEM blocks {pem}, JSON web tokens {jwt}, credentials in URLs {url_credentials}, bearer and basic authorizations \
             {bearer_tokens}, values named password, secret, token and the like {named_values}"
        )
    }
}

#[cfg(test)]
mod tests;
