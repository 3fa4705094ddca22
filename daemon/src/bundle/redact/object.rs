//! The object that a name stands in, in a text that may be no document: where it ends, as far as that can be told. In doubt it
//! goes on, for what stands in it may be a secret.

/// What begins the next of a list, in YAML.
const ITEM: &str = "-";

/// An object, from a value in it on.
#[derive(Debug)]
pub(super) struct Object {
    /// Where its keys begin in their lines.
    column: usize,
    /// Objects that were opened in it.
    depth: usize,
    /// What closes the string that we are in, and how deep that is escaped.
    quote: Option<(char, usize)>,
    /// Backslashes right before.
    escapes: usize,
    in_word: bool,
    /// Right behind the quote that opens a string.
    opens: bool,
}

/// How far in its line a place is, as a text is gone through.
#[derive(Debug)]
pub(super) struct Line<'a> {
    text: &'a str,
    seen: usize,
    begin: usize,
    /// Nothing but spaces before it. Kept, for a line may be all that a text has.
    is_first: bool,
}

impl Object {
    pub(super) const fn new(column: usize) -> Self {
        Self { column, depth: 0, quote: None, escapes: 0, in_word: false, opens: false }
    }

    /// Another key of it, or of one in it, whose value begins here.
    pub(super) fn again(&mut self, column: usize) {
        *self = Self { depth: self.depth, ..Self::new(self.column.min(column)) };
    }

    /// Whether it goes on behind a piece of text.
    pub(super) fn goes_on(&mut self, piece: &str) -> bool {
        for letter in piece.chars() {
            let opened = self.quote;
            match (letter, self.quote) {
                (_, Some((quote, escapes))) => {
                    let closes = self.escapes <= escapes || escapes == 0 && self.escapes.is_multiple_of(2);
                    self.quote = self.quote.filter(|_| letter != quote || !closes);
                }
                ('"', None) => self.quote = Some((letter, self.escapes)),
                // Else it is an apostrophe.
                ('\'', None) if !self.in_word => self.quote = Some((letter, self.escapes)),
                ('{', None) => self.depth += 1,
                ('}', None) => match self.depth.checked_sub(1) {
                    Some(depth) => self.depth = depth,
                    None => return false,
                },
                _ => {}
            }
            self.opens = opened.is_none() && self.quote.is_some();
            self.escapes = if letter == '\\' { self.escapes + 1 } else { 0 };
            self.in_word = letter.is_alphanumeric();
        }
        true
    }

    /// Whether a word here is the next of the list that it is of. A list in it is indented as far as its keys, or further.
    pub(super) fn is_next(&self, word: &str, line: &Line<'_>) -> bool {
        word == ITEM && line.is_first && line.column() < self.column
    }

    /// Whether a word here, before `after`, is a key of it: not of an object in it, and not in a string.
    pub(super) fn is_key(&self, after: &str) -> bool {
        let closes = |quote| self.opens && after.trim_start_matches('\\').starts_with(quote);
        self.depth == 0 && self.quote.is_none_or(|(quote, _)| closes(quote))
    }
}

impl<'a> Line<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, seen: 0, begin: 0, is_first: true }
    }

    /// Goes on to where `rest` begins, a later part of the text.
    pub(super) fn reach(&mut self, rest: &str) {
        let at = self.text.len().saturating_sub(rest.len());
        let piece = self.text.get(self.seen..at).unwrap_or_default();
        let (is_first, in_line) = match piece.rfind('\n') {
            Some(end) => {
                self.begin = self.seen + end + 1;
                (true, piece.get(end..).unwrap_or_default())
            }
            None => (self.is_first, piece),
        };
        self.is_first = is_first && in_line.chars().all(char::is_whitespace);
        self.seen = at;
    }

    /// Where in the line a word or its quote begins.
    pub(super) fn column(&self) -> usize {
        self.before().trim_end_matches(['"', '\'', '\\']).len()
    }

    fn before(&self) -> &str {
        self.text.get(self.begin..self.seen).unwrap_or_default()
    }
}
