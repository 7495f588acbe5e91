//! Prints expressions, with parentheses around everything that could otherwise bind differently.

use minijinja::{
    Value,
    machinery::ast::{BinOpKind, Call, CallArg, CompareOpKind, Expr, Spanned, UnaryOpKind},
    value::ValueKind,
};

use super::{Outcome, Printer};

/// Functions whose result is never larger than a Boolean.
const SMALL: [&str; 1] = ["semver_matches"];

impl Printer {
    pub(super) fn expression(&mut self, expression: &Expr<'_>) -> Outcome {
        match expression {
            Expr::Var(variable) => self.name(variable.id),
            Expr::Const(constant) => self.constant(&constant.value),
            Expr::UnaryOp(unary) => {
                self.out.push_str(match unary.op {
                    UnaryOpKind::Not => "(not ",
                    UnaryOpKind::Neg => "(-",
                });
                self.expression(&unary.expr)?;
                self.out.push(')');
                Ok(())
            }
            Expr::BinOp(binary) => self.binary(binary.op, &binary.left, &binary.right),
            Expr::Compare(compare) => {
                self.out.push('(');
                self.call_if(Some("osm_weighed"), &compare.expr)?;
                for operation in &compare.ops {
                    self.out.push_str(comparison(operation.op));
                    self.call_if(Some("osm_weighed"), &operation.expr)?;
                }
                self.out.push(')');
                Ok(())
            }
            Expr::IfExpr(condition) => {
                self.out.push('(');
                self.expression(&condition.true_expr)?;
                self.out.push_str(" if ");
                self.expression(&condition.test_expr)?;
                if let Some(otherwise) = &condition.false_expr {
                    self.out.push_str(" else ");
                    self.expression(otherwise)?;
                }
                self.out.push(')');
                Ok(())
            }
            other => self.postfix(other),
        }
    }

    fn postfix(&mut self, expression: &Expr<'_>) -> Outcome {
        match expression {
            Expr::Filter(_) => {
                self.out.push('(');
                self.bare_filter(expression)?;
                self.out.push(')');
            }
            Expr::Test(test) => {
                self.out.push('(');
                self.expression(&test.expr)?;
                self.out.push_str(" is ");
                self.out.push_str(test.name);
                if !test.args.is_empty() {
                    self.arguments(&test.args)?;
                }
                self.out.push(')');
            }
            Expr::GetAttr(attribute) => {
                self.expression(&attribute.expr)?;
                self.out.push('.');
                self.out.push_str(attribute.name);
            }
            Expr::GetItem(item) => {
                let is_key =
                    matches!(&item.subscript_expr, Expr::Const(key) if !key.value.is_number());
                self.call_if((!is_key).then_some("osm_indexed"), &item.expr)?;
                self.out.push('[');
                self.call_if(Some("osm_weighed"), &item.subscript_expr)?;
                self.out.push(']');
            }
            Expr::Slice(slice) => {
                self.out.push_str("osm_made(");
                self.call_if(Some("osm_sliced"), &slice.expr)?;
                self.out.push('[');
                for (index, part) in [&slice.start, &slice.stop, &slice.step].iter().enumerate() {
                    if index > 0 {
                        self.out.push(':');
                    }
                    if let Some(part) = part {
                        self.expression(part)?;
                    }
                }
                self.out.push_str("])");
            }
            Expr::Call(call) => {
                let is_small = matches!(&call.expr, Expr::Var(name) if SMALL.contains(&name.id));
                self.out.push_str(if is_small { "(" } else { "osm_made(" });
                self.call(call)?;
                self.out.push(')');
            }
            other => return self.collection(other),
        }
        Ok(())
    }

    fn collection(&mut self, expression: &Expr<'_>) -> Outcome {
        self.out.push_str("osm_made(");
        match expression {
            Expr::List(list) => {
                self.out.push('[');
                self.items(&list.items)?;
                self.out.push(']');
            }
            Expr::Tuple(tuple) => {
                self.out.push('(');
                self.items(&tuple.items)?;
                self.out
                    .push_str(if tuple.items.len() == 1 { ",)" } else { ")" });
            }
            Expr::Map(map) => {
                self.out.push('{');
                for (index, (key, value)) in map.keys.iter().zip(&map.values).enumerate() {
                    self.separate(index);
                    self.expression(key)?;
                    self.out.push_str(": ");
                    self.expression(value)?;
                }
                self.out.push('}');
            }
            _ => return Err(self.refuse("an expression of this kind is not supported")),
        }
        self.out.push(')');
        Ok(())
    }

    fn items(&mut self, items: &[Expr<'_>]) -> Outcome {
        for (index, item) in items.iter().enumerate() {
            self.separate(index);
            self.expression(item)?;
        }
        Ok(())
    }

    fn binary(&mut self, operator: BinOpKind, left: &Expr<'_>, right: &Expr<'_>) -> Outcome {
        let (before, sign, function) = match operator {
            BinOpKind::Concat => ("osm_concat(", ", ", None),
            BinOpKind::Add => ("osm_add(", ", ", None),
            BinOpKind::Mul => ("(", " * ", Some("osm_number")),
            BinOpKind::Sub => ("(", " - ", None),
            BinOpKind::Div => ("(", " / ", None),
            BinOpKind::FloorDiv => ("(", " // ", None),
            BinOpKind::Rem => ("(", " % ", Some("osm_number")),
            BinOpKind::Pow => ("(", " ** ", None),
            BinOpKind::ScAnd => ("(", " and ", None),
            BinOpKind::ScOr => ("(", " or ", None),
            BinOpKind::Eq => ("(", " == ", Some("osm_weighed")),
            BinOpKind::Ne => ("(", " != ", Some("osm_weighed")),
            BinOpKind::Lt => ("(", " < ", Some("osm_weighed")),
            BinOpKind::Lte => ("(", " <= ", Some("osm_weighed")),
            BinOpKind::Gt => ("(", " > ", Some("osm_weighed")),
            BinOpKind::Gte => ("(", " >= ", Some("osm_weighed")),
            BinOpKind::In => ("(", " in ", Some("osm_weighed")),
        };
        // A constant is as short as its source, and a comparison with it stops at its end.
        let with_constant = matches!(left, Expr::Const(_)) || matches!(right, Expr::Const(_));
        let is_scan = matches!(operator, BinOpKind::In) || function != Some("osm_weighed");
        let function = function.filter(|_| is_scan || !with_constant);
        self.out.push_str(before);
        self.call_if(function, left)?;
        self.out.push_str(sign);
        self.call_if(function, right)?;
        self.out.push(')');
        Ok(())
    }

    /// Prints the expression, inside of a function if there is one.
    pub(super) fn call_if(&mut self, function: Option<&str>, expression: &Expr<'_>) -> Outcome {
        // A constant weighs no more than its source, but it need not be a number.
        let is_needless = match expression {
            Expr::Const(constant) => function != Some("osm_number") || constant.value.is_number(),
            _ => false,
        };
        let Some(function) = function.filter(|_| !is_needless) else {
            return self.expression(expression);
        };
        self.out.push_str(function);
        self.out.push('(');
        self.expression(expression)?;
        self.out.push(')');
        Ok(())
    }

    /// Prints a chain of filters. In a block, its innermost expression is the block's text.
    pub(super) fn bare_filter(&mut self, expression: &Expr<'_>) -> Outcome {
        let Expr::Filter(filter) = expression else {
            return self.expression(expression);
        };
        if let Some(inner) = &filter.expr {
            self.bare_filter(inner)?;
            self.out.push('|');
        }
        self.out.push_str(filter.name);
        if !filter.args.is_empty() {
            self.arguments(&filter.args)?;
        }
        Ok(())
    }

    pub(super) fn call(&mut self, call: &Spanned<Call<'_>>) -> Outcome {
        self.expression(&call.expr)?;
        self.arguments(&call.args)
    }

    fn arguments(&mut self, arguments: &[CallArg<'_>]) -> Outcome {
        self.out.push('(');
        for (index, argument) in arguments.iter().enumerate() {
            self.separate(index);
            match argument {
                CallArg::Pos(value) => self.expression(value)?,
                CallArg::Kwarg(name, value) => {
                    self.out.push_str(name);
                    self.out.push('=');
                    self.expression(value)?;
                }
                CallArg::PosSplat(value) => {
                    self.out.push('*');
                    self.expression(value)?;
                }
                CallArg::KwargSplat(value) => {
                    self.out.push_str("**");
                    self.expression(value)?;
                }
            }
        }
        self.out.push(')');
        Ok(())
    }

    /// Prints the target of an assignment.
    pub(super) fn target(&mut self, target: &Expr<'_>) -> Outcome {
        let items = match target {
            Expr::Var(variable) => return self.name(variable.id),
            Expr::GetAttr(attribute) => {
                self.target(&attribute.expr)?;
                self.out.push('.');
                self.out.push_str(attribute.name);
                return Ok(());
            }
            Expr::List(list) => &list.items,
            Expr::Tuple(tuple) => &tuple.items,
            _ => return Err(self.refuse("this cannot be assigned to")),
        };
        self.out.push('(');
        for (index, item) in items.iter().enumerate() {
            self.separate(index);
            self.target(item)?;
        }
        self.out.push(')');
        Ok(())
    }

    fn constant(&mut self, value: &Value) -> Outcome {
        match value.kind() {
            ValueKind::None => self.out.push_str("none"),
            ValueKind::Bool => self
                .out
                .push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => {
                self.out.push('(');
                self.out.push_str(&value.to_string());
                self.out.push(')');
            }
            ValueKind::String => {
                // The engine's escapes are those of JSON.
                let text = serde_json::Value::from(value.as_str().unwrap_or_default());
                self.out.push_str(&text.to_string());
            }
            _ => return Err(self.refuse("a constant of this kind is not supported")),
        }
        Ok(())
    }
}

fn comparison(operator: CompareOpKind) -> &'static str {
    match operator {
        CompareOpKind::Eq => " == ",
        CompareOpKind::Ne => " != ",
        CompareOpKind::Lt => " < ",
        CompareOpKind::Lte => " <= ",
        CompareOpKind::Gt => " > ",
        CompareOpKind::Gte => " >= ",
        CompareOpKind::In => " in ",
        CompareOpKind::NotIn => " not in ",
    }
}
