//! Rewrites a template's source before the engine compiles it.

use std::collections::BTreeSet;
use std::ops::Range;

use minijinja::machinery::{Span, Token, WhitespaceConfig, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::ChatError;

/// Alias of the engine's `namespace` that no template may use.
pub(super) const NAMESPACE: &str = "__namespace__";
/// The function that implements Python's `%`.
pub(super) const MODULO: &str = "__modulo__";
/// Functions that could return an argument inside another value. A macro with such a name may be called before its
/// definition, and then the function is used.
const FUNCTIONS: [&str; 9] =
    ["range", "dict", "debug", "namespace", "cycler", "joiner", "raise_exception", "strftime_now", "caller"];
/// Keywords that separate expressions.
const KEYWORDS: [&str; 6] = ["in", "not", "and", "or", "if", "else"];

/// Rewrites the source for the engine:
/// - `{% generation %}`, by which transformers finds the assistant's part, becomes a block that is always rendered.
/// - `a % b` becomes a function call, because the engine's operator does not support strings.
/// - `set NAME = namespace(…)` calls the engine's function by another name, and nothing else does.
///
/// Rejects a template in which a namespace could come to contain itself, because the engine recurses over values and a
/// namespace is the only mutable one. So `NAME` may only be read, set or tested (`NAME.x`, `NAME['x']`, `NAME is
/// defined`), or passed to a macro of the template, whose parameter follows the same rules.
pub(super) fn rewritten(source: &str) -> Result<String, ChatError> {
    let tokens = SourceTokens::read(source);
    let reserved = |at: usize| tokens.word(at).filter(|word| [NAMESPACE, MODULO].contains(word));
    if let Some(word) = (0..tokens.len()).find_map(reserved) {
        return Err(ChatError::Invalid(format!("`{word}` is reserved")));
    }
    tokens.check_namespaces()?;
    Ok(tokens.apply(source))
}

struct SourceTokens<'a>(Vec<(Token<'a>, Range<usize>)>);

impl<'a> SourceTokens<'a> {
    fn read(source: &'a str) -> Self {
        let range = |span: Span| span.start_offset as usize..span.end_offset as usize;
        let tokens = tokenize(source, false, SyntaxConfig, WhitespaceConfig::default());
        // The compiler reports syntax errors.
        Self(tokens.map_while(Result::ok).map(|(token, span)| (token, range(span))).collect())
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn token(&self, at: usize) -> Option<&Token<'a>> {
        self.0.get(at).map(|(token, _)| token)
    }

    fn before(&self, at: usize, count: usize) -> Option<&Token<'a>> {
        self.token(at.checked_sub(count)?)
    }

    fn word(&self, at: usize) -> Option<&'a str> {
        self.token(at).and_then(|token| if let Token::Ident(word) = token { Some(*word) } else { None })
    }

    /// Whether the tokens at `at` are `set NAME = namespace (`.
    fn makes_namespace(&self, at: usize) -> bool {
        self.word(at) == Some("set")
            && matches!(self.token(at + 2), Some(Token::Assign))
            && self.word(at + 3) == Some("namespace")
            && matches!(self.token(at + 4), Some(Token::ParenOpen))
    }

    fn apply(&self, source: &str) -> String {
        let mut edits: Vec<(Range<usize>, &str)> = Vec::new();
        for (at, (token, range)) in self.0.iter().enumerate() {
            let opens_tag = matches!(self.before(at, 1), Some(Token::BlockStart));
            match token {
                Token::Ident("generation") if opens_tag => edits.push((range.clone(), "if true")),
                Token::Ident("endgeneration") if opens_tag => edits.push((range.clone(), "endif")),
                Token::Ident("namespace") if at >= 3 && self.makes_namespace(at - 3) => {
                    edits.push((range.clone(), NAMESPACE));
                }
                Token::Mod => {
                    let (start, end) = (self.operand_start(at), self.operand_end(at));
                    edits.push((start..start, "__modulo__("));
                    edits.push((range.clone(), ","));
                    edits.push((end..end, if self.is_tuple(at + 1, end) { ", true)" } else { ")" }));
                }
                _ => {}
            }
        }
        edits.sort_by_key(|(range, _)| (range.start, range.end));
        let mut text = String::with_capacity(source.len());
        let mut from = 0;
        for (range, replacement) in edits {
            text.push_str(&source[from..range.start]);
            text.push_str(replacement);
            from = range.end;
        }
        text.push_str(&source[from..]);
        text
    }

    fn is_keyword(&self, at: usize) -> bool {
        let is_tag = matches!(self.before(at, 1), Some(Token::BlockStart));
        let is_attribute = matches!(self.before(at, 1), Some(Token::Dot));
        self.word(at).is_some_and(|word| is_tag || !is_attribute && KEYWORDS.contains(&word))
    }

    /// Whether the minus at `at` has a left operand.
    fn is_binary_minus(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1) else { return false };
        match self.token(before) {
            Some(Token::Ident(_)) => !self.is_keyword(before),
            Some(
                Token::Str(_)
                | Token::String(_)
                | Token::Int(_)
                | Token::Int128(_)
                | Token::Float(_)
                | Token::ParenClose
                | Token::BracketClose
                | Token::BraceClose,
            ) => true,
            _ => false,
        }
    }

    /// Whether the token at `at`, outside brackets, ends a product.
    fn parts_products(&self, at: usize) -> bool {
        match self.token(at) {
            Some(Token::Minus) => self.is_binary_minus(at),
            Some(Token::Ident(_)) => self.is_keyword(at),
            Some(
                Token::TemplateData(_)
                | Token::VariableStart
                | Token::VariableEnd
                | Token::BlockStart
                | Token::BlockEnd
                | Token::Plus
                | Token::Tilde
                | Token::Comma
                | Token::Colon
                | Token::Assign
                | Token::Eq
                | Token::Ne
                | Token::Gt
                | Token::Gte
                | Token::Lt
                | Token::Lte,
            )
            | None => true,
            _ => false,
        }
    }

    /// Start of the left operand of the `%`: the preceding product.
    fn operand_start(&self, modulo: usize) -> usize {
        let mut depth = 0_usize;
        let mut start = modulo;
        for at in (0..modulo).rev() {
            match self.token(at) {
                Some(Token::ParenClose | Token::BracketClose | Token::BraceClose) => depth += 1,
                Some(Token::ParenOpen | Token::BracketOpen | Token::BraceOpen) if depth == 0 => break,
                Some(Token::ParenOpen | Token::BracketOpen | Token::BraceOpen) => depth -= 1,
                _ if depth == 0 && self.parts_products(at) => break,
                _ => {}
            }
            start = at;
        }
        self.0[start].1.start
    }

    /// End of the right operand of the `%`: the following factor.
    fn operand_end(&self, modulo: usize) -> usize {
        let mut depth = 0_usize;
        let mut end = modulo;
        for at in modulo + 1..self.len() {
            match self.token(at) {
                Some(Token::ParenOpen | Token::BracketOpen | Token::BraceOpen) => depth += 1,
                Some(Token::ParenClose | Token::BracketClose | Token::BraceClose) if depth > 0 => depth -= 1,
                Some(
                    Token::ParenClose
                    | Token::BracketClose
                    | Token::BraceClose
                    | Token::Mul
                    | Token::Div
                    | Token::FloorDiv
                    | Token::Mod,
                ) if depth == 0 => break,
                _ if depth == 0 && self.parts_products(at) => break,
                _ => {}
            }
            end = at;
        }
        self.0[end].1.end
    }

    /// Whether the tokens from `first` on are a tuple that ends at byte `end`.
    fn is_tuple(&self, first: usize, end: usize) -> bool {
        let mut depth = 0_usize;
        let mut has_comma = false;
        for at in first..self.len() {
            match self.token(at) {
                Some(Token::ParenOpen | Token::BracketOpen | Token::BraceOpen) => depth += 1,
                Some(Token::ParenClose | Token::BracketClose | Token::BraceClose) => depth = depth.saturating_sub(1),
                Some(Token::Comma) => has_comma |= depth == 1,
                _ => {}
            }
            if depth == 0 {
                let is_group = matches!(self.token(first), Some(Token::ParenOpen));
                return is_group && has_comma && self.0[at].1.end == end;
            }
        }
        false
    }

    fn check_namespaces(&self) -> Result<(), ChatError> {
        let made = (0..self.len()).filter(|&at| self.makes_namespace(at)).filter_map(|at| self.word(at + 1));
        let mut names: BTreeSet<&str> = made.collect();
        // A macro parameter that receives a namespace follows the same rules and may be passed on.
        loop {
            let known = names.len();
            for at in 0..self.len() {
                let Some(name) = self.word(at).filter(|name| names.contains(name)) else { continue };
                if self.keeps(at) {
                    continue;
                }
                let Some(parameter) = self.parameter_for(at) else {
                    return Err(ChatError::Invalid(format!(
                        "it uses the namespace `{name}` as a value, so a namespace could contain itself; a namespace \
                         may only be created with `set NAME = namespace(…)`, used as `NAME.x` and passed to a macro"
                    )));
                };
                names.insert(parameter);
            }
            if names.len() == known {
                return Ok(());
            }
        }
    }

    /// Whether the use of the name at `at` does not leak its value.
    fn keeps(&self, at: usize) -> bool {
        let (before, after) = (self.before(at, 1), self.token(at + 1));
        let is_set = matches!(before, Some(Token::Ident("set")));
        let is_attribute = matches!(before, Some(Token::Dot));
        let is_argument_name = matches!(after, Some(Token::Assign)) && !is_set;
        // `NAME` is then another value, or a new namespace.
        let is_bound = is_set && matches!(after, Some(Token::Assign))
            || matches!((before, after), (Some(Token::Ident("for")), Some(Token::Ident("in"))));
        let is_used = matches!(after, Some(Token::Dot | Token::BracketOpen | Token::Ident("is")));
        is_attribute || is_argument_name || is_bound || is_used || self.is_parameter(at)
    }

    /// Whether the name at `at` is a macro's parameter without a default.
    fn is_parameter(&self, at: usize) -> bool {
        let ends = matches!(self.token(at + 1), Some(Token::Comma | Token::ParenClose));
        ends && self.call_around(at).is_some_and(|(open, _)| self.is_macro_declaration(open))
    }

    fn is_macro_declaration(&self, open: usize) -> bool {
        open >= 3
            && matches!(self.token(open - 3), Some(Token::BlockStart))
            && self.word(open - 2) == Some("macro")
            && self.word(open - 1).is_some()
    }

    /// The opening parenthesis around an argument that starts at `at`, with the argument's position.
    fn call_around(&self, at: usize) -> Option<(usize, usize)> {
        if !matches!(self.before(at, 1), Some(Token::ParenOpen | Token::Comma)) {
            return None;
        }
        let (mut depth, mut number) = (0_usize, 0);
        for before in (0..at).rev() {
            match self.token(before)? {
                Token::ParenClose | Token::BracketClose | Token::BraceClose => depth += 1,
                Token::ParenOpen if depth == 0 => return Some((before, number)),
                Token::BracketOpen | Token::BraceOpen if depth == 0 => return None,
                Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => depth -= 1,
                Token::Comma if depth == 0 => number += 1,
                Token::BlockStart | Token::VariableStart => return None,
                _ => {}
            }
        }
        None
    }

    /// The parameter of the only macro that the name at `at` is passed to.
    fn parameter_for(&self, at: usize) -> Option<&'a str> {
        if !matches!(self.token(at + 1), Some(Token::Comma | Token::ParenClose)) {
            return None;
        }
        let keyword = matches!(self.before(at, 1), Some(Token::Assign)).then(|| self.word(at - 2)).flatten();
        let (open, number) = self.call_around(if keyword.is_some() { at - 2 } else { at })?;
        let name = self.word(open.checked_sub(1)?)?;
        let is_call = !matches!(
            self.before(open, 2),
            Some(Token::Dot | Token::Pipe | Token::Ident("is" | "macro" | "not" | "filter"))
        );
        if !is_call || FUNCTIONS.contains(&name) {
            return None;
        }
        let mut declared = None;
        for other in (0..self.len()).filter(|&other| self.word(other) == Some(name)) {
            let is_declaration = self.is_macro_declaration(other + 1);
            let opens = matches!(self.token(other + 1), Some(Token::ParenOpen));
            // Another value with that name, or another macro, would receive it.
            if !opens || is_declaration && declared.replace(other + 1).is_some() {
                return None;
            }
        }
        let parameters = self.parameters(declared?)?;
        match keyword {
            Some(keyword) => parameters.into_iter().find(|parameter| *parameter == keyword),
            None => parameters.get(number).copied(),
        }
    }

    /// The names of a macro's parameters, from its opening parenthesis.
    fn parameters(&self, open: usize) -> Option<Vec<&'a str>> {
        let (mut depth, mut names) = (0_usize, Vec::new());
        for at in open..self.len() {
            match self.token(at)? {
                Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => depth += 1,
                Token::ParenClose | Token::BracketClose | Token::BraceClose => depth -= 1,
                Token::BlockEnd => return None,
                _ => {}
            }
            if depth == 0 {
                return Some(names);
            }
            if depth == 1 && matches!(self.token(at), Some(Token::ParenOpen | Token::Comma)) {
                names.extend(self.word(at + 1));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operands_of_a_remainder_are_the_product_before_and_the_factor_after() {
        for (source, expected) in [
            ("{{ a % b }}", "{{ __modulo__(a , b) }}"),
            ("{{ x + a * b % -c ** 2 * d }}", "{{ x + __modulo__(a * b , -c ** 2) * d }}"),
            ("{{ a % b % c }}", "{{ __modulo__(__modulo__(a , b) , c) }}"),
            ("{{ '%s' % (a, b) | upper }}", "{{ __modulo__('%s' , (a, b) | upper) }}"),
            ("{{ '%s' % (a, b) }}", "{{ __modulo__('%s' , (a, b), true) }}"),
            ("{{ '%s' % (a) }}", "{{ __modulo__('%s' , (a)) }}"),
            (
                "{% if a.if % 2 == 0 and [b - 1 % 2] %}",
                "{% if __modulo__(a.if , 2) == 0 and [b - __modulo__(1 , 2)] %}",
            ),
            ("{% if -a % 2 %}5 % 2{% endif %}", "{% if __modulo__(-a , 2) %}5 % 2{% endif %}"),
        ] {
            assert_eq!(rewritten(source).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn a_namespace_goes_to_macros_of_the_template_alone() {
        let with = |rest: &str| {
            let made = "{% macro m(a, s=none) %}{% set s.x = a %}{{ o(s) }}{% endmacro %}{% macro o(t) %}{{ t.x }}{% \
                        endmacro %}";
            rewritten(&format!("{made}{{% set ns = namespace(x=1) %}}{rest}"))
        };
        for rest in ["{{ m(1, ns) }}", "{{ m(a=1, s=ns) }}", "{% call m(ns.x, ns) %}{% endcall %}", "{{ [m(1, ns)] }}"]
        {
            assert!(with(rest).is_ok(), "{rest}");
        }
        for rest in [
            "{{ m(1, [ns]) }}", "{{ dict(a=ns) }}", "{{ ns }}", "{{ ns | tojson }}", "{{ x.m(ns) }}",
            "{{ x | m(ns) }}", "{{ p(ns) }}", "{{ m((ns)) }}", "{{ m(1, 2, ns) }}", "{{ m(1, s=ns, t=ns) }}",
            "{{ m(x or ns) }}", "{{ m(1, ns) }}{% set m = dict %}", "{{ m(1, ns) }}{% macro m(q) %}{% endmacro %}",
            "{{ m(ns) }}", "{% macro q(a=ns) %}{% endmacro %}", "{% macro q(t) %}{{ [t] }}{% endmacro %}{{ q(ns) }}",
            "{% set x = ns %}", "{{ __namespace__() }}",
        ] {
            assert!(matches!(with(rest), Err(ChatError::Invalid(_))), "{rest}");
        }
    }
}
