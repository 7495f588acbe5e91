//! sprig's arithmetic on decimal fractions: 0.1 plus 0.2 is 0.3.

use minijinja::{Error, Value};

use super::{ANY, Function, function, missing, numbers::to_float, refuse, texts::first};

pub(super) const TABLE: &[Function] = &[
    function("add1f", (1, 1), 1, |a| {
        combined(to_float(first(a)?), &[Value::from(1)], Operation::Add)
    }),
    function("addf", (0, ANY), 1, |a| combined(0.0, a, Operation::Add)),
    function("subf", (1, ANY), 1, |a| from_first(a, Operation::Subtract)),
    function("mulf", (1, ANY), 1, |a| from_first(a, Operation::Multiply)),
    function("divf", (1, ANY), 1, |a| from_first(a, Operation::Divide)),
];

/// The number of decimal places of a quotient.
const QUOTIENT_DIGITS: i32 = 16;

#[derive(Clone, Copy)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// `digits * 10^exponent`
#[derive(Clone, Copy)]
struct Decimal {
    digits: i128,
    exponent: i32,
}

impl Decimal {
    /// Returns the number with a float's shortest digits.
    fn new(number: f64) -> Option<Self> {
        let scientific = format!("{number:e}");
        let (mantissa, exponent) = scientific.split_once('e')?;
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        Some(Self {
            digits: format!("{whole}{fraction}").parse().ok()?,
            exponent: exponent.parse::<i32>().ok()? - i32::try_from(fraction.len()).ok()?,
        })
    }

    fn float(self) -> f64 {
        format!("{}e{}", self.digits, self.exponent)
            .parse()
            .unwrap_or_default()
    }

    /// Returns the digits at a lower exponent.
    fn at(self, exponent: i32) -> Option<i128> {
        let steps = u32::try_from(self.exponent - exponent).ok()?;
        self.digits.checked_mul(10_i128.checked_pow(steps)?)
    }

    fn apply(self, operation: Operation, other: Self) -> Option<Self> {
        let exponent = self.exponent.min(other.exponent);
        match operation {
            Operation::Add => Some(Self {
                digits: self.at(exponent)?.checked_add(other.at(exponent)?)?,
                exponent,
            }),
            Operation::Subtract => Some(Self {
                digits: self.at(exponent)?.checked_sub(other.at(exponent)?)?,
                exponent,
            }),
            Operation::Multiply => Some(Self {
                digits: self.digits.checked_mul(other.digits)?,
                exponent: self.exponent + other.exponent,
            }),
            Operation::Divide => self.divide(other),
        }
    }

    /// Divides, and rounds half away from zero.
    fn divide(self, other: Self) -> Option<Self> {
        let shift = self.exponent - other.exponent + QUOTIENT_DIGITS;
        let factor = 10_i128.checked_pow(shift.unsigned_abs())?;
        let (dividend, divisor) = if shift >= 0 {
            (self.digits.checked_mul(factor)?, other.digits)
        } else {
            (self.digits, other.digits.checked_mul(factor)?)
        };
        let quotient = dividend.checked_div(divisor)?;
        let rest = dividend.checked_rem(divisor)?;
        let is_up = rest.unsigned_abs().checked_mul(2)? >= divisor.unsigned_abs();
        let sign = if (dividend < 0) == (divisor < 0) {
            1
        } else {
            -1
        };
        Some(Self {
            digits: quotient + if is_up { sign } else { 0 },
            exponent: -QUOTIENT_DIGITS,
        })
    }
}

fn from_first(arguments: &[Value], operation: Operation) -> Result<Value, Error> {
    let (start, rest) = arguments.split_first().ok_or_else(missing)?;
    combined(to_float(start), rest, operation)
}

fn combined(start: f64, items: &[Value], operation: Operation) -> Result<Value, Error> {
    let mut total = start;
    for item in items {
        let item = to_float(item);
        if matches!(operation, Operation::Divide) && item == 0.0 {
            return Err(refuse("decimal division by 0"));
        }
        let exact = Decimal::new(total)
            .zip(Decimal::new(item))
            .and_then(|(total, item)| total.apply(operation, item));
        total = match (exact, operation) {
            (Some(exact), _) => exact.float(),
            (None, Operation::Add) => total + item,
            (None, Operation::Subtract) => total - item,
            (None, Operation::Multiply) => total * item,
            (None, Operation::Divide) => total / item,
        };
    }
    Ok(Value::from(total))
}
