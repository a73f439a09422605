// Commands that declare: sorts, functions, rules.
#include "egraph/containers.h"
#include "egraph/interpreter.h"
#include "egraph/lower.h"
#include "support/fail.h"

#include <algorithm>

namespace egret::egraph {
namespace {

/// Options of functions and constructors by which `print-size` passes over them.
bool is_unlisting(Sexp option) {
  return option.is_symbol(":internal-hidden") || option.is_symbol(":internal-let");
}

} // namespace

void for_options(Sexp sexp, std::size_t first,
                 const std::function<std::size_t(Sexp, std::size_t)>& take) {
  for (std::size_t i = first; i < sexp.size();)
    i += 1 + take(sexp[i], i + 1);
}

void Interpreter::fresh_name(Sexp name) const {
  if (!name.is_symbol())
    fail(name, "expected a name");
  if (engine.signature.find_sort(name.symbol()) || engine.signature.find_function(name.symbol()))
    fail(name, fmt::format("{} is already declared{}", name.symbol(),
                           declared_at(engine.signature, engine.sources, name.symbol())));
}

SortId Interpreter::sort_of(Sexp name) const {
  if (!name.is_symbol())
    fail(name, "expected the name of a sort");
  auto sort = engine.signature.find_sort(name.symbol());
  if (!sort)
    fail(name, fmt::format("unknown sort {}", name.symbol()));
  return *sort;
}

std::vector<SortId> Interpreter::sorts_of(Sexp list) const {
  if (!list.is_list())
    fail(list, "expected a list of sorts");
  std::vector<SortId> out;
  for (std::size_t i = 0; i < list.size(); ++i)
    out.push_back(sort_of(list[i]));
  return out;
}

RulesetId Interpreter::ruleset_of(Sexp name) const {
  if (!name.is_symbol())
    fail(name, "expected the name of a ruleset");
  auto ruleset = engine.find_ruleset(name.symbol());
  if (!ruleset)
    fail(name, fmt::format("unknown ruleset {}", name.symbol()));
  return *ruleset;
}

std::uint64_t Interpreter::count_of(Sexp sexp) const {
  if (sexp.kind() != SexpKind::Int || sexp.node().integer < 0)
    fail(sexp, "expected a non-negative number");
  return static_cast<std::uint64_t>(sexp.node().integer);
}

std::string Interpreter::text_of(Sexp sexp) const {
  if (sexp.kind() == SexpKind::String)
    return sexp.string();
  if (sexp.is_symbol())
    return std::string(sexp.symbol());
  fail(sexp, "expected a string");
}

void Interpreter::add_sort(const std::string& name, Sexp definition, Span span) {
  Sort sort;
  sort.name = name;
  sort.span = span;
  if (definition.size() == 0)
    engine.sources.fail(ErrorKind::Parse, span, "expected a container sort such as (Vec i64)");
  static const std::map<std::string_view, std::pair<SortKind, std::size_t>> kinds = {
      {"Vec", {SortKind::Vec, 1}},     {"Set", {SortKind::Set, 1}},
      {"Map", {SortKind::Map, 2}},     {"MultiSet", {SortKind::MultiSet, 1}},
      {"Pair", {SortKind::Pair, 2}},   {"Either", {SortKind::Either, 2}},
      {"Maybe", {SortKind::Maybe, 1}}, {"UnstableFn", {SortKind::Fn, 2}}};
  auto at = kinds.find(definition.head());
  if (at == kinds.end())
    fail(definition[0],
         "unknown kind of sort: expected Vec, Set, Map, MultiSet, Pair, Either, Maybe or "
         "UnstableFn");
  auto [kind, arity] = at->second;
  sort.kind = kind;
  if (definition.size() != arity + 1)
    fail(definition, fmt::format("{} takes {} sort{}, found {}", definition.head(), arity,
                                 arity == 1 ? "" : "s", definition.size() - 1));
  if (kind == SortKind::Fn) {
    sort.args = sorts_of(definition[1]);
    sort.args.push_back(sort_of(definition[2]));
  } else {
    for (std::size_t i = 1; i < definition.size(); ++i)
      sort.args.push_back(sort_of(definition[i]));
  }
  SortId id = engine.signature.add_sort(std::move(sort));
  engine.pools.containers(static_cast<std::uint32_t>(id));
  add_container_primitives(engine.signature, id);
}

void Interpreter::sort_command(Sexp sexp) {
  bool represented =
      sexp.size() == 4 && (sexp[2].is_symbol(":internal-uf") || sexp[2].is_symbol(":uf"));
  if (sexp.size() != 2 && sexp.size() != 3 && !represented)
    fail(sexp, "expected (sort name) or (sort name (Container sorts ...))");
  fresh_name(sexp[1]);
  std::string name(sexp[1].symbol());
  if (sexp.size() == 3) {
    add_sort(name, sexp[2], sexp[2].span());
    return;
  }
  Sort sort{name, SortKind::Eq, {}, true, {}, sexp.span()};
  if (represented)
    sort.union_find = text_of(sexp[3]);
  engine.signature.add_sort(std::move(sort));
}

void Interpreter::add_variant(SortId sort, Sexp variant) {
  if (!variant.is_list() || variant.size() == 0)
    fail(variant, "expected a variant such as (Name sorts ...)");
  fresh_name(variant[0]);
  Function function;
  function.name = variant[0].symbol();
  function.output = sort;
  function.span = variant.span();
  std::size_t i = 1;
  for (; i < variant.size() && !variant[i].is_keyword(); ++i)
    function.inputs.push_back(sort_of(variant[i]));
  for_options(variant, i, [&](Sexp option, std::size_t value) -> std::size_t {
    if (option.is_symbol(":unextractable"))
      return function.unextractable = true, 0;
    if (!option.is_symbol(":cost") || value >= variant.size())
      fail(option, "expected :cost number or :unextractable");
    function.cost = count_of(variant[value]);
    return 1;
  });
  engine.add_function(std::move(function));
}

void Interpreter::datatype_command(Sexp sexp) {
  if (sexp.size() < 2)
    fail(sexp, "expected (datatype name variants ...)");
  fresh_name(sexp[1]);
  SortId sort = engine.signature.add_sort(
      {std::string(sexp[1].symbol()), SortKind::Eq, {}, true, {}, sexp[1].span()});
  for (std::size_t i = 2; i < sexp.size(); ++i)
    add_variant(sort, sexp[i]);
}

void Interpreter::datatypes_command(Sexp sexp) {
  // First the names, then the containers over them, then the variants: each may mention all of the
  // former.
  auto is_container = [](Sexp item) { return item.size() == 3 && item[0].is_symbol("sort"); };
  std::vector<SortId> ids;
  for (std::size_t i = 1; i < sexp.size(); ++i) {
    Sexp item = sexp[i];
    if (!item.is_list() || item.size() == 0)
      fail(item, "expected (name variants ...) or (sort name (Container sorts ...))");
    bool container = is_container(item);
    fresh_name(item[container ? 1 : 0]);
    ids.push_back(
        container
            ? SortId{}
            : engine.signature.add_sort(
                  {std::string(item[0].symbol()), SortKind::Eq, {}, true, {}, item[0].span()}));
  }
  for (std::size_t i = 1; i < sexp.size(); ++i) {
    if (is_container(sexp[i]))
      add_sort(std::string(sexp[i][1].symbol()), sexp[i][2], sexp[i][2].span());
  }
  for (std::size_t i = 1; i < sexp.size(); ++i) {
    if (is_container(sexp[i]))
      continue;
    for (std::size_t v = 1; v < sexp[i].size(); ++v)
      add_variant(ids[i - 1], sexp[i][v]);
  }
}

void Interpreter::function_command(Sexp sexp) {
  if (sexp.size() < 4)
    fail(sexp, "expected (function name (sorts ...) sort :merge expression) or ... :no-merge");
  fresh_name(sexp[1]);
  Function function;
  function.kind = FunctionKind::Function;
  function.name = sexp[1].symbol();
  function.inputs = sorts_of(sexp[2]);
  function.output = sort_of(sexp[3]);
  function.span = sexp.span();
  std::optional<Sexp> merge;
  bool no_merge = false;
  for_options(sexp, 4, [&](Sexp option, std::size_t value) -> std::size_t {
    bool is_merge = option.is_symbol(":merge");
    if ((is_merge && no_merge) || (option.is_symbol(":no-merge") && merge))
      fail(option, ":merge and :no-merge exclude each other");
    if (option.is_symbol(":no-merge"))
      return no_merge = true, 0;
    if (option.is_symbol(":unextractable")) // functions never are
      return 0;
    if (is_unlisting(option))
      return function.unlisted = true, 0;
    if (!is_merge || value >= sexp.size())
      fail(option, "expected :merge expression or :no-merge");
    merge = sexp[value];
    return 1;
  });
  if (!merge && !no_merge)
    fail(sexp, fmt::format("the function {} needs :merge or :no-merge", function.name));
  if (merge) {
    TypeChecker check = checker();
    check.allow_reads(true);
    std::uint32_t old_value = check.declare("old", function.output, merge->span());
    std::uint32_t new_value = check.declare("new", function.output, merge->span());
    std::uint32_t node = check.expression(*merge, false);
    check.expect(node, function.output);
    Typed typed = check.finish();
    function.merge =
        Lowering(engine.signature, engine.sources, typed).expression(node, {old_value, new_value});
  }
  engine.add_function(std::move(function));
}

void Interpreter::constructor_command(Sexp sexp) {
  if (sexp.size() < 4)
    fail(sexp, "expected (constructor name (sorts ...) sort)");
  fresh_name(sexp[1]);
  Function function;
  function.name = sexp[1].symbol();
  function.inputs = sorts_of(sexp[2]);
  function.output = sort_of(sexp[3]);
  function.span = sexp.span();
  if (!engine.signature.sort(function.output).is_eq())
    fail(sexp[3], fmt::format("a constructor makes a term: expected an equality sort, found {}",
                              sexp[3].symbol()));
  for_options(sexp, 4, [&](Sexp option, std::size_t value) -> std::size_t {
    if (option.is_symbol(":unextractable"))
      return function.unextractable = true, 0;
    if (is_unlisting(option))
      return function.unlisted = true, 0;
    if (!option.is_symbol(":cost") || value >= sexp.size())
      fail(option, "expected :cost number or :unextractable");
    function.cost = count_of(sexp[value]);
    return 1;
  });
  engine.add_function(std::move(function));
}

void Interpreter::relation_command(Sexp sexp) {
  if (sexp.size() != 3)
    fail(sexp, "expected (relation name (sorts ...))");
  fresh_name(sexp[1]);
  Function function;
  function.kind = FunctionKind::Relation;
  function.name = sexp[1].symbol();
  function.inputs = sorts_of(sexp[2]);
  function.output = engine.signature.add_row_sort(function.name);
  function.span = sexp.span();
  engine.add_function(std::move(function));
}

void Interpreter::ruleset_command(Sexp sexp) {
  if (sexp.size() != 2 || !sexp[1].is_symbol())
    fail(sexp, "expected (ruleset name)");
  if (engine.find_ruleset(sexp[1].symbol()))
    fail(sexp[1], fmt::format("the ruleset {} is already declared", sexp[1].symbol()));
  engine.rulesets.push_back({});
  engine.rulesets.back().name = sexp[1].symbol();
}

void Interpreter::combined_command(Sexp sexp) {
  if (sexp.size() < 2 || !sexp[1].is_symbol())
    fail(sexp, "expected (unstable-combined-ruleset name rulesets ...)");
  if (engine.find_ruleset(sexp[1].symbol()))
    fail(sexp[1], fmt::format("the ruleset {} is already declared", sexp[1].symbol()));
  Ruleset ruleset;
  ruleset.name = sexp[1].symbol();
  ruleset.combined = true;
  for (std::size_t i = 2; i < sexp.size(); ++i)
    ruleset.parts.push_back(ruleset_of(sexp[i]));
  engine.rulesets.push_back(std::move(ruleset));
}

void Interpreter::add_rule(const Typed& typed, RuleHow how, Span span) {
  LoweredRule lowered = Lowering(engine.signature, engine.sources, typed).rule(span);
  Rule rule;
  rule.name = std::move(how.name);
  rule.span = span;
  rule.query = std::move(lowered.query);
  rule.action = std::move(lowered.action);
  rule.inputs = std::move(lowered.inputs);
  rule.naive = how.naive;
  rule.include_subsumed = how.include_subsumed;
  engine.rulesets[Signature::index(how.ruleset)].rules.push_back(
      RuleId{static_cast<std::uint32_t>(engine.rules.size())});
  engine.rules.push_back(std::move(rule));
}

void Interpreter::rule_command(Sexp sexp) {
  if (sexp.size() < 3)
    fail(sexp, "expected (rule (facts ...) (actions ...))");
  RuleHow how;
  bool unsafe = false;
  for_options(sexp, 3, [&](Sexp option, std::size_t value) -> std::size_t {
    if (option.is_symbol(":naive") || option.is_symbol(":unsafe-seminaive")) {
      (option.is_symbol(":naive") ? how.naive : unsafe) = true;
      if (how.naive && unsafe)
        fail(option, ":naive and :unsafe-seminaive exclude each other");
      return 0;
    }
    if (option.is_symbol(":no-decomp"))
      return 0;
    if (option.is_symbol(":internal-include-subsumed"))
      return how.include_subsumed = true, 0;
    if (value >= sexp.size() || (!option.is_symbol(":ruleset") && !option.is_symbol(":name")))
      fail(option, "expected :ruleset name, :name \"name\", :naive or :no-decomp");
    if (option.is_symbol(":name"))
      how.name = text_of(sexp[value]);
    else
      how.ruleset = ruleset_of(sexp[value]);
    return 1;
  });
  if (engine.rulesets[Signature::index(how.ruleset)].combined)
    fail(sexp, "rules cannot be added to a combined ruleset");
  TypeChecker check = checker();
  check.allow_reads(how.naive || unsafe);
  check.facts(sexp[1]);
  check.actions(sexp[2]);
  if (how.name.empty())
    how.name = std::string(engine.sources.text(sexp.span()));
  add_rule(check.finish(), std::move(how), sexp.span());
}

void Interpreter::rewrite_command(Sexp sexp) {
  bool both = sexp.head() == "birewrite";
  if (sexp.size() < 3)
    fail(sexp, fmt::format("expected ({} left right)", sexp.head()));
  RulesetId ruleset{};
  std::string name;
  std::vector<Sexp> conditions;
  bool subsume = false, naive = false;
  for_options(sexp, 3, [&](Sexp option, std::size_t value) -> std::size_t {
    if (option.is_symbol(":subsume") && !both)
      return subsume = true, 0;
    if (option.is_symbol(":naive"))
      return naive = true, 0;
    if (option.is_symbol(":no-decomp"))
      return 0;
    if (value >= sexp.size())
      fail(option, "expected :when (facts ...), :ruleset name, :name \"name\" or :subsume");
    if (option.is_symbol(":ruleset")) {
      ruleset = ruleset_of(sexp[value]);
    } else if (option.is_symbol(":name")) {
      name = text_of(sexp[value]);
    } else if (option.is_symbol(":when") && sexp[value].is_list()) {
      for (std::size_t i = 0; i < sexp[value].size(); ++i)
        conditions.push_back(sexp[value][i]);
    } else {
      fail(option, "expected :when (facts ...), :ruleset name, :name \"name\" or :subsume");
    }
    return 1;
  });
  if (engine.rulesets[Signature::index(ruleset)].combined)
    fail(sexp, "rules cannot be added to a combined ruleset");
  if (name.empty())
    name = std::string(engine.sources.text(sexp.span()));
  for (int direction = 0; direction < (both ? 2 : 1); ++direction) {
    TypeChecker check = checker();
    check.allow_reads(naive);
    check.rewrite(sexp[direction == 0 ? 1 : 2], sexp[direction == 0 ? 2 : 1], conditions, subsume);
    RuleHow how{both ? name + (direction == 0 ? "=>" : "<=") : name, ruleset, naive};
    add_rule(check.finish(), std::move(how), sexp.span());
  }
}

} // namespace egret::egraph
