#!/bin/bash
# Version: minijinja 3.0.5 and 3.1.0 from crates.io.
#
# Behaviour: four of the public functions in `minijinja::filters` take an undefined value since 3.1,
# also in an environment whose undefined values are strict. Their strict twins are private: only an
# environment with all built-in filters has them.
#
# Expected: a minor version refuses what the one before it refused; the names and types of the
# functions are the same, and so is the documentation of `UndefinedBehavior::Strict`.
#
# Seen: `missing|length` is an error with 3.0.5. With 3.1.0 it is 0 in an environment that begins
# empty and is given `filters::length`, and an error in one with the defaults.
#
# Here: every filter that we give to templates refuses an undefined value first.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/src"
cat > "$folder/src/main.rs" << 'EOF'
use minijinja::{context, filters, Environment, UndefinedBehavior};

fn main() {
    let mut given = Environment::empty();
    given.add_filter("length", filters::length);
    given.add_filter("first", filters::first);
    given.add_filter("last", filters::last);
    given.add_filter("items", filters::items);
    for (what, mut environment) in [("given", given), ("defaults", Environment::new())] {
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        let taken = ["length", "first", "last", "items"].into_iter().filter(|filter| {
            let template = format!("{{% set x = missing|{filter} %}}");
            environment.render_str(&template, context! {}).is_ok()
        });
        let taken: Vec<_> = taken.collect();
        println!("{what}: takes an undefined value in {taken:?}");
    }
}
EOF
for version in 3.0.5 3.1.0; do
  cat > "$folder/Cargo.toml" << EOF
[package]
name = "strict"
version = "0.0.0"
edition = "2021"
[dependencies]
minijinja = "=$version"
EOF
  rm -f "$folder/Cargo.lock"
  cargo run --quiet --manifest-path "$folder/Cargo.toml" | sed "s/^/$version, /"
done | tee "$folder/seen"
diff "$folder/seen" - << 'EOF'
3.0.5, given: takes an undefined value in []
3.0.5, defaults: takes an undefined value in []
3.1.0, given: takes an undefined value in ["length", "first", "last", "items"]
3.1.0, defaults: takes an undefined value in []
EOF
