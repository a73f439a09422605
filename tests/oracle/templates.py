"""Compares egret's chat templates with Jinja, set up as `transformers` does: the templates of real tokenizers on random conversations,
and small templates for each construct."""
import json
import random
import subprocess

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

CONSTRUCTS = r"""
{{ 1 + 2 * 3 - 4 // 3 % 2 ** 3 }}|{{ 7 / 2 }}|{{ -7 // 2 }}|{{ -7 % 3 }}|{{ 1.0 }}|{{ 1e16 }}|{{ 2 ** -1 }}|{{ 10 / 3 }}|{{ 1e-5 }}
{{ 'a' ~ 1 ~ none ~ true }}|{{ "x" * 3 }}|{{ [1] * 2 + [3] }}|{{ (1, 2) }}|{{ (1,) }}|{{ {'a': [1, 'b', none, 1.5, "it's"]} }}
{% for x in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
{% for a, b in {'x': 1, 'y': 2}.items() %}{{ a }}={{ b }},{% else %}none{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}
{% for x in range(10) if x is odd %}{% if x == 7 %}{% break %}{% endif %}{% if x == 3 %}{% continue %}{% endif %}{{ x }}{{ loop.index }} {% endfor %}
{% set ns = namespace(n=0) %}{% for i in range(5) %}{% set ns.n = ns.n + i %}{% set x = i %}{% endfor %}{{ ns.n }}{{ x is defined }}
{% set x = 1 %}{% for i in range(3) %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}
{% macro m(a, b='d', c=none) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=2) }}{{ m('x', 'y') | upper }}
{% macro wrap() %}<{{ caller() }}>{% endmacro %}{% call wrap() %}in{% endcall %}
{% macro rec(n) %}{{ n }}{% if n > 0 %}{{ rec(n - 1) }}{% endif %}{% endmacro %}{{ rec(4) }}
{% set b | trim | upper %}  block {{ 1 }}  {% endset %}[{{ b }}]{% filter replace('a', 'b') %}banana{% endfilter %}
{% with q = 5, r = 6 %}{{ q + r }}{% endwith %}{{ q is defined }}{% generation %}g{% endgeneration %}
{% raw %}{{ not }} {% this %}{% endraw %}{# comment #}|{{ '{{' }}{{ "}}" }}
   {% if true %}  indented
   {% endif %}
  {%- if true -%}   tight   {%- endif -%}   end
  {%+ if true %}kept{% endif +%}
 {# c #}
line
{{ 'abcdef'[1:3] }}{{ 'abcdef'[::-1] }}{{ 'héllo'[1] }}{{ 'abc'[-1] }}{{ [1,2,3][-2:] }}{{ [1,2,3][5] is defined }}{{ 'abc'[:-1] }}{{ 'abcdef'[::2] }}{{ 'abcdef'[4:1:-1] }}
{{ '  a b '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'a,b,,c'.split(',') }}|{{ ' a  b '.split() }}|{{ 'a-b-c'.split('-', 1) }}|{{ 'a-b-c'.rsplit('-', 1) }}|{{ 'a\nb\r\nc'.splitlines() }}
{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'hello wORLD'.title() }}{{ 'hELLO'.capitalize() }}{{ 'aXa'.replace('a', 'b', 1) }}{{ 'abcb'.find('b') }}{{ 'abcb'.rfind('b') }}{{ 'aaa'.count('a') }}
{{ 'ab1'.isalnum() }}{{ '12'.isdigit() }}{{ 'ab'.isalpha() }}{{ 'AB'.isupper() }}{{ ', '.join(['a', 'b']) }}{{ 'pre-x'.removeprefix('pre-') }}{{ '{} {0} {a}'.replace('0', '').replace('{}', '') }}{{ '{}-{a}'.format(1, a=2) }}
{{ [3, 1, 2] | sort }}{{ ['b', 'A', 'c'] | sort }}{{ [3, 1, 2] | sort(reverse=true) }}{{ [1, 1, 2] | unique | list }}{{ [1, 2] | sum }}{{ [1, 5, 2] | max }}{{ ['b', 'a'] | min }}
{{ {'b': 1, 'a': 2} | dictsort }}{{ {'a': 1} | items | list }}{{ [{'r': 'x'}, {'r': 'y'}] | map(attribute='r') | join(',') }}{{ ['a', 'b'] | map('upper') | list }}
{{ [{'r': 1}, {'r': 2}, {}] | selectattr('r', 'defined') | list | length }}{{ [{'r': 1}, {'r': 2}] | selectattr('r', 'equalto', 2) | list }}{{ [0, 1, 2] | select | list }}{{ [1, 2, 3] | reject('odd') | list }}{{ [{'r': 1}] | rejectattr('r', 'in', [1]) | list }}
{{ 'a b' | length }}{{ 'é' | length }}{{ undefinedname | default('d') }}{{ '' | default('d', true) }}{{ none | default('d') }}{{ [1, 2] | first }}{{ [1, 2] | last }}{{ 'ab' | reverse }}{{ [1, 2] | reverse | list }}
{{ '42' | int }}{{ 'x' | int(7) }}{{ 3.9 | int }}{{ '1.5' | float }}{{ 3.567 | round(2) }}{{ -3 | abs }}{{ 2.5 | round }}{{ 1 | string ~ 'x' }}{{ '0x1f' | int(0, 16) }}
{{ {'a': [1, 2.5, true, none, 'é"\n<&\'\u2028']} | tojson }}|{{ {'b': {'c': []}, 'a': [1, {}]} | tojson(indent=2) }}|{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}|{{ 'é😀' | tojson(ensure_ascii=true) }}
{{ 'a\nb\n\nc' | indent(2) }}|{{ 'a\nb' | indent(2, true) }}|{{ '<a&b>"' | e }}|{{ 'x' | safe }}
{{ 1 is number }}{{ 'a' is string }}{{ {} is mapping }}{{ [] is sequence }}{{ 'a' is iterable }}{{ true is boolean }}{{ 1 is true }}{{ none is none }}{{ 1 is integer }}{{ 1.0 is float }}{{ x is not defined }}{{ 3 is divisibleby 3 }}{{ 'A' is upper }}{{ 2 is in [1, 2] }}
{{ 1 if true else 2 }}{{ 'x' if false }}{{ 1 if false else 2 if false else 3 }}{{ not true or true and false }}{{ 1 < 2 < 3 }}{{ 'a' in 'abc' }}{{ 'x' not in ['y'] }}{{ 'k' in {'k': 1} }}{{ 1 == 1.0 }}{{ 'a' < 'b' }}{{ [1, 2] == [1, 2] }}
{{ true and 'x' }}{{ '' or 'y' }}{{ 0 or none }}{{ not '' }}{{ -2 | abs }}{{ (-2) | abs }}{{ 'a' 'b' }}{{ 'tab\there' }}{{ '\x41\u00e9\101' }}{{ '\q' }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = (1, 2) %}{{ t[0] }}{{ t }}{% for (x, y) in [(1, 2)] %}{{ x }}{{ y }}{% endfor %}
{{ {'items': 1}['items'] }}{{ {'a': {'b': 2}}.a.b }}{{ {'a': 1}.get('b', 3) }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.keys() | list }}{{ {'a': 1}.values() | list }}{{ {'a': 1}.b is defined }}
{% if false %}a{% elif 1 == 1 %}b{% else %}c{% endif %}{% if '' %}x{% elif [] %}y{% else %}z{% endif %}
{{ undefinedname }}{{ undefinedname | length }}{% for q in undefinedname %}x{% endfor %}{{ undefinedname is defined }}
{{ undefinedname.attribute }}
{{ raise_exception('no') }}
{{ 1 + 'a' }}
{{ [1, 2] | join }}{{ [1, [2, none]] | string }}{{ dict(a=1, b=2) }}{{ namespace(a=1).a }}{{ range(3) | list }}{{ range(5, 0, -2) | list }}{{ 1_000 }}{{ 5 // 2.0 }}
{{ "a" is eq "a" }}{{ 1 is lt 2 }}{{ [1, 2, 3] | select('gt', 1) | list }}{{ [1, 2, 3] | select('>', 1) | list }}{{ ['a', 'B'] | map('lower') | join('-') }}{{ [[1, 2], [3]] | map('length') | list }}{{ [{'a': {'b': 1}}] | map(attribute='a.b') | list }}
{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b') }}{% endfor %}{% for x in [1, 2] %}{% for y in [3] %}{{ loop.depth }}{% endfor %}{% endfor %}
"""


def environment():
    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

        def _same(self, caller):
            return caller()

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def conversation(rng):
    texts = ["Hello!", "  spaces  ", "Line\nbreak", "What's 2+2?", "<think>\nhm\n</think>\n\nAnswer", "日本語 🎉", "", "a 'quoted' \"text\" \\ {{ x }}", "<tool_response>x</tool_response>"]
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": "system", "content": rng.choice(texts)})
    for i in range(rng.randint(1, 6)):
        role = ["user", "assistant"][i % 2] if rng.random() < 0.95 else rng.choice(["tool", "user", "ipython", "system"])
        message = {"role": role, "content": rng.choice(texts)}
        if role == "assistant" and rng.random() < 0.3:
            arguments = {"city": rng.choice(["Paris", "München"]), "days": rng.randint(1, 9), "deep": {"x": [1, None, True, 0.5]}}
            message["tool_calls"] = [{"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": rng.choice([arguments, json.dumps(arguments)])}}]
            if rng.random() < 0.3:
                message["content"] = None
        if role == "tool":
            message["tool_call_id"] = "abcdefghi"
        if role == "assistant" and rng.random() < 0.2:
            message["reasoning_content"] = "because"
        if role == "user" and rng.random() < 0.1:
            message["content"] = [{"type": "text", "text": "part"}, {"type": "image"}]
        messages.append(message)
    variables = {"messages": messages, "add_generation_prompt": rng.random() < 0.5, "bos_token": "<s>", "eos_token": "</s>"}
    if rng.random() < 0.3:
        variables["tools"] = [{"type": "function", "function": {"name": "weather", "description": "Tells the \"weather\" <é>",
                               "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
    if rng.random() < 0.2:
        variables["enable_thinking"] = rng.random() < 0.5
    return variables


def real_templates(folder):
    for path in sorted(folder.glob("**/tokenizer_config.json")):
        template = json.loads(path.read_text()).get("chat_template")
        name = str(path.parent.relative_to(folder)).split("/")[0]
        if isinstance(template, str):
            yield name, template
        for one in template if isinstance(template, list) else []:
            yield f"{name}/{one['name']}", one["template"]


def compare(driver, folder, rng, conversations):
    env = environment()
    cases = [("constructs", t, {}) for t in CONSTRUCTS.strip("\n").split("\n") if t] + [("constructs", CONSTRUCTS.split("{{ undefinedname.attribute")[0], {})]
    for name, template in real_templates(folder):
        cases += [(name, template, conversation(rng)) for _ in range(conversations)]
    requests = "".join(json.dumps([t, v]) + "\n" for _, t, v in cases)
    answers = subprocess.run([driver, "render"], input=requests.encode(), capture_output=True, check=True).stdout.decode().split("\n")
    counts = {}
    for (name, template, variables), line in zip(cases, answers):
        answer = json.loads(line)
        try:
            want = env.from_string(template).render(**variables)
        except Exception as error:  # whatever Jinja refuses, egret must refuse
            want = None
            reason = repr(error)
        total, bad, refused = counts.get(name, (0, 0, 0))
        wrong = answer.get("text") != want
        counts[name] = (total + 1, bad + wrong, refused + (want is None))
        if wrong and bad < 3:
            print(f"  {name}: {template[:150]!r} {json.dumps(variables)[:300]}\n    egret: {answer}\n    jinja: {want!r} {reason if want is None else ''}")
    for name, (total, bad, refused) in counts.items():
        print(f"{name}: {total} renderings, {bad} differ ({refused} refused by both)")
    return sum(bad for _, bad, _ in counts.values())
