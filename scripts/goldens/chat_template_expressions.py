"""Expressions with the Jinja and Python features that chat templates use."""

VALUES = ["none", "true", "7", "1.5", "'aé'", "''", "[1]", "(1, 2)", "{'a': 1}", "missing", "messages", "range(3)"]
TESTS = [
    "iterable", "sequence", "mapping", "string", "number", "integer", "float", "boolean", "none", "defined", "undefined", "true", "false",
]
METHODS = [
    "'a.b.c'.rsplit('.', 1)", "'a.b.c'.rsplit('.')", "' a  b '.rsplit()", "' a  b c'.rsplit(none, 1)", "'a  b c'.split(none, 1)", "'a.b.c'.split('.', maxsplit=1)",
    "'a.b'.partition('.')", "'a.b.c'.rpartition('.')", "'ab'.partition('.')", "'ab'.rpartition('.')",
    "'<think>x'.removeprefix('<think>')", "'x</s>'.removesuffix('</s>')", "'x'.removeprefix('y')",
    "'éa'.find('a')", "'éaéa'.rfind('a')", "'éa'.find('x')", "'éa'.index('a')", "'éaéa'.rindex('a')", "'a'.index('x')", "'aXbX'.find('X', 2)",
    "'éa'[:'éa'.find('a')]", "'aaa'.count('a')", "'aéa'.count('')",
    "'Ab'.swapcase()", "'Straße'.casefold()", "'7'.zfill(3)", "'-7'.zfill(4)", "'a'.ljust(3) ~ '|'", "'a'.rjust(3, '.')", "'ab'.center(5, '*')",
    "'a\\nb\\r\\nc\\x0bd'.splitlines()", "'a\\nb'.splitlines(true)", "'a b'.title()", "\"they're bill's\".title()", "'hELLO wORLD'.capitalize()",
    "'A'.isupper()", "''.isupper()", "'a1'.islower()", "'1'.islower()", "''.isalpha()", "''.isdigit()", "'²'.isdigit()", "'½'.isnumeric()",
    "'1'.isdecimal()", "''.isspace()", "' '.isspace()", "''.isalnum()", 
    "'  a '.strip() ~ '|'", "'xxaxx'.strip('x')", "'a-b'.replace('-', '+')", "'aaa'.replace('a', 'b', 2)", "'{} {}'.format(1, 'a')", "'{0:>3}'.format(7)",
    "'{a}'.format(a=1)", "','.join(['a', 'b'])", "','.join([1])", "'a'.startswith(('a', 'b'))", "'abc'.endswith('bc')", "'abc'.startswith('b', 1)",
    "[1, 2, 1].index(2)", "[1, 2, 1].count(1)", "{'a': 1}.get('b')", "{'a': 1}.get('b', 2)", "{'a': 1}.items()", "{'a': 1}.items() | list",
    "{'a': 1}.keys() | list", "{'a': 1}.values() | list", "{'a': 1}.copy()", "[1].copy()", "[1].append(2)", "{'a': 1}.pop('a')", "{'a': 1}.update({'b': 2})",
    
]
FORMATS = [
    "'%s' % 'x'", "'%s and %s' % ('x', 7)", "'%d%%' % 7", "'%05.2f|' % 1.5", "'%(a)s' % {'a': 'b'}", "'%s' % [1, 'a']", "'%s' % none", "'%s' % true", "'%s' % 1.0",
    "'%s' % ('x',)", "'%s' % ('x')", "'a' ~ '%s' % 'x' ~ 'b'", "'%s' % 'x' | upper", "'%s-%s' % ('a', 'b' | upper)", "('%' ~ 's') % 'x'", "'%s%s' % ('a',)", "'%x' % 255",
    "'%r' % 'a'", "7 % 3", "-7 % 3", "7 % -3", "7.5 % 2", "2 * 7 % 4", "1 + 7 % 4 * 2", "20 % 7 % 4", "7 % 4 == 3 and 8 % 4 == 0", "2 ** 3 % 5", "7 % 2 if 7 % 2 else 0",
    "[7 % 4, 9 % 4]", "{'a': 7 % 4}", "(1 + 6) % 4", "(7, 8)[1] % 3", "7 % 2 is odd", "not 8 % 4", "7 // 2", "-7 // 2", "7 / 2", "2 ** -1", "2 ** 0.5", "1e3", "1_000",
    "'%s' | format('x')", "'%s %d' | format('x', 7)", "'ab' * 2", "[1] * 2", "'a' + 1", "1 ~ none ~ true ~ 1.0", "1 + true", "1 < 2 < 3", "'a' in 'abc'", "'a' not in ['b']",
    "1 == 1.0", "true == 1", "'1' == 1", "[1, 2] == (1, 2)", "none == false", "1 in {1: 2}", "'b' > 'a'",
]
JSON = [
    "{'b': [1, 'é<'], 'a': none} | tojson", "{'b': 1, 'a': {'d': 1, 'c': 2}} | tojson(sort_keys=true)", "{'b': 1, 'a': [1, 2]} | tojson(separators=(',', ':'))",
    "{'b': 1} | tojson(indent=2)", "{'b': [1, {}], 'a': []} | tojson(indent=2, separators=(',', ': '))", "['é', '\\U0001f600', 'a'] | tojson(ensure_ascii=true)",
    "['é'] | tojson(ensure_ascii=false)", "['é'] | tojson(true)", "[1] | tojson(false, 4)", "[1.0, 1e100, 1e-7, 123456789012345678] | tojson", "'a\\u2028\\x7f\\x1f/\"' | tojson",
    "true | tojson", "{1: 2, none: 3} | tojson", "[1] | tojson(indent=20)", "missing | tojson", "(1, 2) | tojson", "[1] | tojson(indent=0)", "[1, 2] | tojson(indent='\\t')", "[1] | tojson(indent=none)",
    "{'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true)", "{'b': 1} | tojson(separators=('; ', ' = '))", "[0.1, -0.0, 1e16, 1e15, 1e22] | tojson",
]
GLOBALS = [
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set _ = c.reset() %}{{ c.next() }}",
    "{% set j = joiner(', ') %}{% for m in messages %}{{ j() }}{{ m.role }}{% endfor %}", "{% set j = joiner() %}{{ j() }}{{ j() }}",
    "{{ dict(a=1) }}", "{{ dict({'a': 1}, b=2) }}", "{{ range(5, 0, -2) | list }}", "{{ range(3) }}", "{{ [range(2)] }}",
    "{% macro m(namespace='x') %}{{ namespace }}{% endmacro %}{{ m() }}{{ m('y') }}{{ m(namespace='z') }}",
    "{% for namespace in ['a', 'b'] %}{{ namespace }}{% endfor %}", "{% set namespace = 'a' %}{{ namespace }}",
    "{% macro m(namespace) %}{% set ns = namespace %}{{ ns }}{% endmacro %}{{ m('q') }}",
    "{% set ns = namespace(a=1) %}{% macro m(namespace) %}{{ namespace ~ ns.a }}{% endmacro %}{{ m('q') }}",
    "{% set ns = namespace({'a': 1}) %}{{ ns.a }}", "{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{{ ns.a }}{{ ns['a'] }}", "{% set ns = namespace() %}{{ ns.a is defined }}",
    "{% set ns = namespace(a=1) %}{{ ns is mapping }}{{ ns is iterable }}{{ ns is defined }}", "{{ namespace is defined }}",
]
FILTERS = [
    "' a ' | trim ~ '|'", "'xax' | trim('x')", "[3, 1, 2] | sort | join(',')", "['b', 'A'] | sort", "['b', 'A'] | sort(case_sensitive=true)", "[1, 2, 3] | sort(reverse=true)",
    "messages | map(attribute='role') | join(' ')", "messages | selectattr('role', 'equalto', 'user') | list | length", "messages | rejectattr('role', 'eq', 'user') | map(attribute='role') | list",
    "messages | selectattr('tool_calls', 'defined') | list | length", "messages | groupby('role') | map('first') | list", "messages | map('length') | list", "['a', 'b'] | map('upper') | list",
    "[1, none, 2] | select | list", "[1, 2, 3] | select('odd') | list", "[1, 2, 3] | reject('odd') | list", "messages | last | length", "messages[-1]['role']", "messages[::-1] | map(attribute='role') | first",
    "'a\\nb' | indent", "'a\\nb' | indent(2, true)", "'a\\n\\nb' | indent(2, blank=true)", "'a\\nb' | indent(width=3, first=true)", "'a' | indent('> ', true)", "{'b': 1, 'a': 2} | dictsort", "{'b': 1, 'a': 2} | dictsort(by='value')",
    "{'b': 1, 'a': 2} | items | list", "{'b': 1} | list", "'abc' | list", "'abc' | reverse", "[1, 2] | reverse | list", "'abc' | first", "'abc' | last", "[] | first", "missing | default('x')", "'' | default('x', true)",
    "none | default('x')", "none | d('x', boolean=true)", "missing | length", "7 | string", "1.0 | string", "none | string", "'7' | int", "'x' | int(3)", "7.9 | int", "'1.5' | float", "1.55 | round(1)", "1.5 | round",
    "2.567 | round(2, 'floor')", "-3 | abs", "[1, 2] | sum", "[[1], [2]] | sum(start=[])", "['a', 'b', 'a'] | unique | list", "'hello world' | title", "'hello' | capitalize", "'a' | center(5)",
    "'<a>' | escape", "'<a>' | e", "'<a>' | safe", "[1, 2, 3] | batch(2) | list", "[1, 2, 3] | slice(2) | list", "[1, 3] | min", "[1, 3] | max",
    "'a' | replace('a', 'b')", "'aaa' | replace('a', 'b', 2)", "messages[0] | attr('role')", "'x' | upper | lower", "'%s' | safe | format('a')", "[1, 2] | join", "[1, 2] | join(', ', attribute='x')", "'abc' | length",
    "[1, 2, 3] | tojson | length", "'a' | list | tojson",
    "messages | map(attribute='missing', default='x') | join", "messages | selectattr('role') | list | length", "{'a': {'b': 1}} | attr('a')", "'a,b' | replace(',', ';') | upper", "('a', 'b') | join", "[true, none, 1.5, 'x', {'k': [1]}] | string",
]
OTHERS = [
    "{{ none }}|{{ true }}|{{ 1.0 }}|{{ [] }}|{{ {} }}|{{ missing }}|{{ missing.a is defined }}", "{{ missing.a }}", "{{ missing['a'] }}", "{{ messages[9] }}", "{{ messages[9].role }}", "{{ messages[0].missing }}", "{{ messages[0]['role'] }}",
    "{{ (1, 'a') }}", "{{ (1,) }}", "{{ [1, 'a', \"b'c\", none, 1.5, 1e20] }}", "{{ {'a': [1, {'b': none}]} }}", "{{ 'a\\'b' }}", "{{ ['a\\nb', 'é', '\\x01'] }}", "{{ 10 ** 20 }}", "{{ 1e16 }}|{{ 0.1 + 0.2 }}|{{ 1e-7 }}|{{ 100000.0 }}",
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.cycle('a', 'b') }}{{ loop.previtem.role }}{{ loop.nextitem.role }}{{ loop.changed(m.role) }};{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }} {% endfor %}", "{% for k, v in {'a': 1} | items %}{{ k }}={{ v }}{% endfor %}", "{% for k in {'a': 1} %}{{ k }}{% endfor %}", "{% for m in messages if m.role == 'user' %}{{ loop.index }}{% endfor %}",
    "{% for m in [] %}x{% else %}none{% endfor %}", "{% for c in 'abc' %}{{ c }}-{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in missing %}a{% else %}b{% endfor %}", "{% for x in 7 %}{% endfor %}",
    "{% set x = 1 %}{% for m in messages %}{% set x = x + 1 %}{% endfor %}{{ x }}", "{% if missing %}a{% elif messages %}b{% endif %}", "{{ 'a' if missing }}|", "{{ 'a' if missing is not defined else 'b' }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = [1, 2] %}{{ a[0:1] }}{{ a[:-1] }}{{ 'abcé'[1:] }}{{ 'abc'[-1] }}",
    "{% macro m(a, b='x') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}", "{% macro m(a) %}[{{ caller() }}]{% endmacro %}{% call m(1) %}x{% endcall %}", "{% macro m() %} a {% endmacro %}{{ m() | trim }}{{ m().strip() }}", "{% macro m() %}{% endmacro %}{{ m() == '' }}{{ m() is string }}",
    "{% set x %}a{{ 1 }}b{% endset %}{{ x }}{{ x is string }}", "{% filter upper %}abc{% endfilter %}", "{% with a=1 %}{{ a }}{% endwith %}", "{% raw %}{{ a }}{% endraw %}", "{# comment #}a", "a\n{% if true %}\n  b\n{% endif %}\nc\n", "  {%- if true -%}  a  {%- endif %}  ", "  {%+ if true %}a{% endif %}", "{{ 'a' }}\n\n", "a\n",
    "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% break %}{% endfor %}", "{% generation %}a{% endgeneration %}", "{%- generation -%} a {%- endgeneration -%}", "{% for m in messages %}{% generation %}{% if true %}{{ m.role }}{% endif %}{% endgeneration %}{% endfor %}",
    "{{ raise_exception('no') }}", "{{ strftime_now('%d %b %Y %H:%M') }}", "{{ messages | length > 2 and messages[0].role == 'system' }}", "{{ 'a' 'b' }}", "{{ not missing }}", "{{ '' or 'x' }}|{{ 'a' and 'b' }}|{{ 0 or none }}|{{ 0 and 1 }}", "{{ \"a\\tb\\\\n\" }}", "{{ 'caf\\u00e9' }}", "{{ messages[0].items() | list | length }}", "{{ messages[0].keys() | list }}", "{{ messages | string | length > 9 }}",
    "{{ messages[0].role.upper() ~ messages[0]['content'][:3] }}", "{{ messages[0] is mapping and messages is not mapping and messages is iterable }}", "{{ loop is defined }}", "{% set m = messages[0] %}{% if 'tool' in m %}a{% elif 'role' in m %}b{% endif %}", "{{ {'a': 1}.a }}{{ {'a': 1}['a'] }}", "{{ {'items': 1}['items'] }}", "{{ [1, 2, 3][1:] | length }}", "{% do [1].append(2) %}",
    "{{ 'a' is in ['a'] }}", "{{ 3 is divisibleby 3 }}", "{{ 'a' is eq 'a' }}", "{{ 1 is sameas 1 }}", "{{ none is sameas none }}", "{{ 'A' is upper }}", "{{ 'upper' is filter }}", "{{ 'odd' is test }}", "{{ 4 is even }}", "{{ 1 is lt 2 }}", "{{ '<' is escaped }}", "{{ 'abc' is startingwith 'a' }}",
]
EXPRESSIONS = (
    [f"{{{{ {value} is {test} }}}}" for test in TESTS for value in VALUES]
    + [f"{{{{ {expression} }}}}" for expression in METHODS + FORMATS + JSON + FILTERS]
    + GLOBALS
    + OTHERS
)
