//! Rewrites a template so that everything that it allocates is charged.
//!
//! The engine's fuel counts instructions and the bytes of its own filters, but not those of our
//! functions. So a template is parsed into the engine's own syntax tree and printed again,
//! with every expression that creates or scans a value inside a function that charges bytes (see
//! `allocation_limit`). Every statement stays on its line, so that errors name the line that the
//! author wrote.
//!
//! The printed form has its own delimiters, which no source may contain. Its text therefore needs
//! no escaping, and whitespace was trimmed before. Inheritance, recursive loops and escaping blocks
//! have no use in configuration files, and are refused.

use std::fmt::Write;

use minijinja::{
    machinery::{
        Span,
        ast::{CallBlock, Expr, ForLoop, Macro, Spanned, Stmt},
        parse,
    },
    syntax::SyntaxConfig,
};

mod chains;
mod expressions;

/// The reason why a template cannot be rewritten.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) line: Option<usize>,
    pub(super) problem: String,
}

/// The character that every delimiter of the printed form contains.
pub(super) const MARK: char = '\u{1}';
/// The prefix of the names of charging functions.
const RESERVED: &str = "osm_";

/// The syntax of the printed form.
pub(super) fn syntax() -> SyntaxConfig {
    // Building fails only if two delimiters are equal.
    SyntaxConfig::builder()
        .block_delimiters("\u{1}%", "%\u{1}")
        .variable_delimiters("\u{1}=", "=\u{1}")
        .comment_delimiters("\u{1}#", "#\u{1}")
        .keep_trailing_newline(true)
        .build()
        .unwrap_or_default()
}

/// Rewrites a template. `included_bytes` is the maximum number of bytes that an include may add.
pub(super) fn rewrite(source: &str, included_bytes: usize) -> Result<String, Refusal> {
    if source.contains(MARK) {
        return Err(Refusal {
            line: None,
            problem: "the template holds the control character U+0001".to_owned(),
        });
    }
    let syntax = SyntaxConfig::builder()
        .keep_trailing_newline(true)
        .build()
        .unwrap_or_default();
    chains::check(source, syntax.clone())?;
    let tree = parse(source, "template", syntax).map_err(|error| Refusal {
        line: error.line(),
        problem: error.detail().unwrap_or("syntax error").to_owned(),
    })?;
    let mut printer = Printer {
        out: String::with_capacity(source.len() * 2),
        line: 1,
        at: None,
        included_bytes,
    };
    printer.statement(&tree)?;
    Ok(printer.out)
}

struct Printer {
    out: String,
    /// The current line of the output.
    line: usize,
    /// The current line of the source.
    at: Option<usize>,
    included_bytes: usize,
}

type Outcome = Result<(), Refusal>;

impl Printer {
    fn refuse(&self, problem: &str) -> Refusal {
        Refusal {
            line: self.at,
            problem: problem.to_owned(),
        }
    }

    fn statements(&mut self, statements: &[Stmt<'_>]) -> Outcome {
        statements
            .iter()
            .try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Stmt<'_>) -> Outcome {
        match statement {
            Stmt::Template(template) => self.statements(&template.children),
            Stmt::EmitRaw(raw) => {
                self.raw(raw.raw);
                Ok(())
            }
            Stmt::EmitExpr(emit) => {
                self.open("\u{1}=", emit.span());
                self.expression(&emit.expr)?;
                self.out.push_str(" =\u{1}");
                Ok(())
            }
            Stmt::ForLoop(for_loop) => self.for_loop(for_loop),
            Stmt::IfCond(condition) => {
                self.open("\u{1}%", condition.span());
                self.out.push_str("if ");
                self.expression(&condition.expr)?;
                self.close();
                self.statements(&condition.true_body)?;
                if !condition.false_body.is_empty() {
                    self.tag("else");
                    self.statements(&condition.false_body)?;
                }
                self.tag("endif");
                Ok(())
            }
            other => self.rarer_statement(other),
        }
    }

    fn rarer_statement(&mut self, statement: &Stmt<'_>) -> Outcome {
        match statement {
            Stmt::WithBlock(block) => {
                self.open("\u{1}%", block.span());
                self.out.push_str("with ");
                for (index, (target, value)) in block.assignments.iter().enumerate() {
                    self.separate(index);
                    self.target(target)?;
                    self.out.push_str(" = ");
                    self.expression(value)?;
                }
                self.close();
                self.statements(&block.body)?;
                self.tag("endwith");
            }
            Stmt::Set(set) => {
                self.open("\u{1}%", set.span());
                self.out.push_str("set ");
                self.target(&set.target)?;
                self.out.push_str(" = ");
                let is_attribute = matches!(set.target, Expr::GetAttr(_));
                self.call_if(is_attribute.then_some("osm_plain"), &set.expr)?;
                self.close();
            }
            Stmt::SetBlock(block) => {
                self.open("\u{1}%", block.span());
                self.out.push_str("set ");
                self.target(&block.target)?;
                if let Some(filter) = &block.filter {
                    self.out.push_str(" | ");
                    self.bare_filter(filter)?;
                }
                self.close();
                self.statements(&block.body)?;
                self.tag("endset");
            }
            Stmt::FilterBlock(block) => {
                self.open("\u{1}%", block.span());
                self.out.push_str("filter ");
                self.bare_filter(&block.filter)?;
                self.close();
                self.statements(&block.body)?;
                self.tag("endfilter");
            }
            Stmt::Macro(macro_) => self.macro_statement(macro_)?,
            Stmt::CallBlock(block) => self.call_block(block)?,
            Stmt::Do(do_) => {
                self.open("\u{1}%", do_.span());
                self.out.push_str("do osm_made(");
                self.call(&do_.call)?;
                self.out.push(')');
                self.close();
            }
            Stmt::Continue(_) => self.tag("continue"),
            Stmt::Break(_) => self.tag("break"),
            other => return self.other_template(other),
        }
        Ok(())
    }

    /// Prints statements that name another template.
    fn other_template(&mut self, statement: &Stmt<'_>) -> Outcome {
        match statement {
            Stmt::Include(include) => {
                self.open("\u{1}%", include.span());
                self.out.push_str("include osm_included(");
                self.expression(&include.name)?;
                let _ = write!(self.out, ", {})", self.included_bytes);
                if include.ignore_missing {
                    self.out.push_str(" ignore missing");
                }
                self.close();
            }
            Stmt::Import(import) => {
                self.open("\u{1}%", import.span());
                self.out.push_str("import ");
                self.expression(&import.expr)?;
                self.out.push_str(" as ");
                self.target(&import.name)?;
                self.close();
            }
            Stmt::FromImport(import) => {
                self.open("\u{1}%", import.span());
                self.out.push_str("from ");
                self.expression(&import.expr)?;
                self.out.push_str(" import ");
                for (index, (name, alias)) in import.names.iter().enumerate() {
                    self.separate(index);
                    self.target(name)?;
                    if let Some(alias) = alias {
                        self.out.push_str(" as ");
                        self.target(alias)?;
                    }
                }
                self.close();
            }
            Stmt::Extends(_) | Stmt::Block(_) => {
                return Err(self.refuse("`extends` and `block` are not supported: use `include`"));
            }
            _ => return Err(self.refuse("`autoescape` is not supported")),
        }
        Ok(())
    }

    fn for_loop(&mut self, for_loop: &Spanned<ForLoop<'_>>) -> Outcome {
        self.open("\u{1}%", for_loop.span());
        if for_loop.recursive {
            return Err(self.refuse("`recursive` loops are not supported"));
        }
        self.out.push_str("for ");
        self.target(&for_loop.target)?;
        let bytes = raw_bytes(&for_loop.body);
        self.out.push_str(" in osm_loop(");
        self.expression(&for_loop.iter)?;
        let _ = write!(self.out, ", {bytes})");
        if let Some(filter) = &for_loop.filter_expr {
            self.out.push_str(" if ");
            self.expression(filter)?;
        }
        self.close();
        self.statements(&for_loop.body)?;
        if !for_loop.else_body.is_empty() {
            self.tag("else");
            self.statements(&for_loop.else_body)?;
        }
        self.tag("endfor");
        Ok(())
    }

    fn macro_statement(&mut self, macro_: &Spanned<Macro<'_>>) -> Outcome {
        self.open("\u{1}%", macro_.span());
        self.out.push_str("macro ");
        self.name(macro_.name)?;
        self.parameters(macro_)?;
        self.close();
        self.statements(&macro_.body)?;
        self.tag("endmacro");
        Ok(())
    }

    fn call_block(&mut self, block: &Spanned<CallBlock<'_>>) -> Outcome {
        self.open("\u{1}%", block.span());
        self.out.push_str("call");
        self.parameters(&block.macro_decl)?;
        self.out.push(' ');
        self.call(&block.call)?;
        self.close();
        self.statements(&block.macro_decl.body)?;
        self.tag("endcall");
        Ok(())
    }

    fn parameters(&mut self, macro_: &Spanned<Macro<'_>>) -> Outcome {
        let first_default = macro_.args.len().saturating_sub(macro_.defaults.len());
        self.out.push('(');
        for (index, argument) in macro_.args.iter().enumerate() {
            self.separate(index);
            self.target(argument)?;
            let default = index
                .checked_sub(first_default)
                .and_then(|index| macro_.defaults.get(index));
            if let Some(default) = default {
                self.out.push_str(" = ");
                self.expression(default)?;
            }
        }
        self.out.push(')');
        Ok(())
    }

    fn raw(&mut self, text: &str) {
        self.line += text.matches('\n').count();
        self.out.push_str(text);
    }

    /// Opens a tag, and moves it to the line on which the author wrote it.
    fn open(&mut self, delimiter: &str, span: Span) {
        let line = usize::from(span.start_line);
        self.at = Some(line);
        self.out.push_str(delimiter);
        self.out.push(' ');
        while self.line < line {
            self.out.push('\n');
            self.line += 1;
        }
    }

    fn close(&mut self) {
        self.out.push_str(" %\u{1}");
    }

    fn tag(&mut self, word: &str) {
        let _ = write!(self.out, "\u{1}% {word} %\u{1}");
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.out.push_str(", ");
        }
    }

    /// Prints a name. The names of the charging functions are refused.
    fn name(&mut self, name: &str) -> Outcome {
        if name.starts_with(RESERVED) {
            return Err(self.refuse("names that start with `osm_` are reserved"));
        }
        self.out.push_str(name);
        Ok(())
    }
}

/// Returns the maximum number of bytes of text that one pass through the statements writes by
/// itself.
fn raw_bytes(statements: &[Stmt<'_>]) -> usize {
    statements
        .iter()
        .map(|statement| match statement {
            Stmt::EmitRaw(raw) => raw.raw.len(),
            Stmt::IfCond(condition) => {
                raw_bytes(&condition.true_body).max(raw_bytes(&condition.false_body))
            }
            Stmt::WithBlock(block) => raw_bytes(&block.body),
            Stmt::SetBlock(block) => raw_bytes(&block.body),
            Stmt::FilterBlock(block) => raw_bytes(&block.body),
            Stmt::CallBlock(block) => raw_bytes(&block.macro_decl.body),
            // Loops and includes charge by themselves, and the text of a macro is charged where it
            // is created.
            _ => 0,
        })
        .sum()
}
