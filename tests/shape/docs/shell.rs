//! What a page tells people to type.

/// The lines of a page's `sh` blocks, in order; a command over several lines is one.
pub fn lines(page: &str) -> Vec<String> {
    let blocks = page.split("```").skip(1).step_by(2);
    let blocks = blocks.filter_map(|block| block.strip_prefix("sh\n"));
    let text: String = blocks.collect();
    let text = text.replace("\\\n", " ");
    text.lines().map(str::to_owned).collect()
}
