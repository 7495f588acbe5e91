//! Lays out text and tags so that white space comes out as Go's trims leave it.
//!
//! White space that a Go tag trims is kept between the tags, and trimmed there by a `-`, so that
//! authors recognize their lines. Jinja trims more kinds of white space than Go. Where text would
//! lose some of its own, the trimmed white space is omitted instead.

/// Sequences that cannot be written in text, because Jinja would read them as tags.
const MARKS: [&str; 3] = ["{{", "{%", "{#"];

/// The text between two tags.
enum Piece {
    Text(String),
    Trimmed(String),
}

/// The end of the text between two tags.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    Tag,
    End,
}

/// A template that is being written.
#[derive(Default)]
pub(super) struct Page {
    out: String,
    pieces: Vec<Piece>,
    /// The position of the last tag's closing delimiter.
    close: Option<usize>,
}

impl Page {
    pub(super) fn text(&mut self, text: &str) {
        self.pieces.push(Piece::Text(text.to_owned()));
    }

    pub(super) fn trimmed(&mut self, space: &str) {
        self.pieces.push(Piece::Trimmed(space.to_owned()));
    }

    /// `{% … %}`
    pub(super) fn statement(&mut self, content: &str) {
        self.tag(["{%", content, "%}"]);
    }

    /// `{{ … }}`
    pub(super) fn print(&mut self, content: &str) {
        self.tag(["{{", content, "}}"]);
    }

    /// `{# … #}`
    pub(super) fn comment(&mut self, content: &str) {
        let content = content.trim().replace("#}", "# }");
        self.tag(["{#", &content, "#}"]);
    }

    fn tag(&mut self, [open, content, close]: [&str; 3]) {
        let trim = self.settle(Edge::Tag);
        self.out.push_str(open);
        self.out.push_str(trim);
        self.out.push(' ');
        self.out.push_str(content);
        self.out.push(' ');
        self.close = Some(self.out.len());
        self.out.push_str(close);
    }

    pub(super) fn finish(mut self) -> String {
        self.settle(Edge::End);
        self.out
    }

    /// Writes the text since the last tag. Returns the mark that makes the next tag trim.
    fn settle(&mut self, edge: Edge) -> &'static str {
        let pieces = std::mem::take(&mut self.pieces);
        let mut kept = String::new();
        for piece in &pieces {
            if let Piece::Text(text) = piece {
                kept.push_str(text);
            }
        }
        let (first, last) = (trimmed_of(pieces.first()), trimmed_of(pieces.last()));
        let is_blank = kept.is_empty();
        let is_gap = is_blank && edge == Edge::Tag;
        let before = first.filter(|_| !is_gap && !kept.starts_with(char::is_whitespace));
        let after = last.filter(|_| edge == Edge::Tag && !kept.ends_with(char::is_whitespace));
        if let (Some(space), Some(close)) = (before, self.close) {
            self.out.insert(close, '-');
            self.out.push_str(space);
        }
        self.literal(&kept, edge);
        match after {
            Some(space) => {
                self.out.push_str(space);
                "-"
            }
            None => "",
        }
    }

    fn literal(&mut self, text: &str, edge: Edge) {
        let mut rest = text;
        while let Some(at) = MARKS.iter().filter_map(|mark| rest.find(mark)).min() {
            let (before, mark) = rest.split_at(at);
            let (mark, after) = mark.split_at(2);
            self.out.push_str(before);
            self.quoted(mark);
            rest = after;
        }
        match rest.strip_suffix('{') {
            Some(before) if edge == Edge::Tag => {
                self.out.push_str(before);
                self.quoted("{");
            }
            _ => self.out.push_str(rest),
        }
    }

    fn quoted(&mut self, mark: &str) {
        self.out.push_str("{{ \"");
        self.out.push_str(mark);
        self.out.push_str("\" }}");
    }
}

fn trimmed_of(piece: Option<&Piece>) -> Option<&str> {
    match piece {
        Some(Piece::Trimmed(space)) => Some(space),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(build: impl FnOnce(&mut Page)) -> String {
        let mut page = Page::default();
        build(&mut page);
        page.finish()
    }

    #[test]
    fn a_tag_trims_what_the_author_wrote_beside_it() {
        let text = page(|page| {
            page.text("a");
            page.trimmed("\n  ");
            page.statement("if x");
            page.trimmed("\n");
            page.text("b");
            page.statement("endif");
            page.trimmed("\n");
        });
        assert_eq!(text, "a\n  {%- if x -%}\nb{% endif -%}\n");
    }

    #[test]
    fn text_keeps_white_space_that_only_jinja_trims() {
        let text = page(|page| {
            page.statement("x");
            page.trimmed("\n");
            page.text("\u{a0}a\u{c}");
            page.trimmed("\n");
            page.statement("y");
        });
        assert_eq!(text, "{% x %}\u{a0}a\u{c}{% y %}");
    }

    #[test]
    fn marks_of_jinja_in_text_stay_text() {
        let text = page(|page| {
            page.text("${#a} {% {{{");
            page.print("x");
            page.text("}{");
        });
        assert_eq!(
            text,
            r#"${{ "{#" }}a} {{ "{%" }} {{ "{{" }}{{ "{" }}{{ x }}}{"#
        );
    }
}
