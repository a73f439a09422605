// Commands that show or exchange: extract, print-*, input and output.
#include "egraph/dag.h"
#include "egraph/extract.h"
#include "egraph/interpreter.h"
#include "egraph/print.h"
#include "support/fail.h"
#include "support/read_text.h"

#include <charconv>
#include <fstream>
#include <sstream>

namespace egret::egraph {

namespace {

/// The cheapest term where what is shared is paid once.
TermGraph extract_dag(const Engine& engine, SortId sort, Value value, const NodeCost& cost) {
  Extraction problem(engine, cost);
  std::vector<Value> ids;
  mentioned_classes(engine, sort, value, ids);
  std::vector<std::uint32_t> classes;
  classes.reserve(ids.size());
  for (Value id : ids)
    classes.push_back(problem.dense[id]);
  DagSolution solution = best_dag(problem, classes);
  TermGraph graph;
  graph.roots.push_back(TermBuilder(engine, problem, solution.node).build(graph, sort, value));
  return graph;
}

} // namespace

/// The representative of a value in the user's own union-find, where its sort names one.
Value Interpreter::represented(SortId sort, Value value) const {
  const std::string& name = engine.signature.sort(sort).union_find;
  auto id = engine.signature.find_function(name);
  if (name.empty() || !id)
    return value;
  const Function& function = engine.signature.function(*id);
  if (function.inputs != std::vector<SortId>{sort, sort})
    return value;
  const Table& table = engine.table(*id);
  for (bool moved = true; moved;) { // each step goes to a smaller id, so this ends
    moved = false;
    for (std::uint32_t row = 0; row < table.rows() && !moved; ++row) {
      if (table.state(row) == RowState::Dead || table.at(row, 0) != value)
        continue;
      moved = table.at(row, 1) < value;
      value = std::min(value, table.at(row, 1));
    }
  }
  return value;
}

/// The best trees of the e-graph as it is. Many extractions in a row are asked of the same e-graph.
const Trees& Interpreter::trees() {
  std::uint64_t rows = 0;
  for (const Table& table : engine.tables)
    rows += table.rows();
  if (!extracted_ || extracted_->changes != engine.changes() || extracted_->rows != rows ||
      extracted_->classes != engine.classes.size())
    extracted_ = std::make_shared<const Extracted>(
        Extracted{engine.changes(), rows, engine.classes.size(), {engine, declared_costs(engine)}});
  return extracted_->trees;
}

void Interpreter::extract_command(Sexp sexp) {
  std::size_t end = sexp.size();
  bool shares = false; // a term that several places use is paid once
  if (end > 3 && sexp[end - 2].is_symbol(":extractor")) {
    if (!sexp[end - 1].is_symbol("greedy-dag"))
      fail(sexp[end - 1], "unknown extractor: expected greedy-dag");
    shares = true;
    end -= 2;
  }
  if (end != 2 && end != 3)
    fail(sexp, "expected (extract expression variants :extractor greedy-dag), the last three "
               "optional");
  std::uint64_t variants = 0;
  if (end == 3) {
    auto [sort, count] = evaluate(sexp[2]);
    if (sort != sorts::kI64)
      fail(sexp[2], "expected the number of variants");
    std::int64_t n = engine.pools.to_i64(count);
    if (n < 0)
      fail(sexp[2], "the number of variants is negative");
    variants = static_cast<std::uint64_t>(n);
  }
  auto [sort, value] = evaluate(sexp[1]);
  value = represented(sort, value);
  try {
    if (variants == 0) {
      TermGraph graph = shares ? extract_dag(engine, sort, value, declared_costs(engine))
                               : extract_tree(engine, sort, value, trees());
      line(show_term(engine, graph, graph.roots[0]));
      return;
    }
    line("(");
    for (const TermGraph& graph : extract_variants(engine, sort, value, variants, trees()))
      line("   " + show_term(engine, graph, graph.roots[0]));
    line(")");
  } catch (const SourceError&) {
    throw;
  } catch (const Error& error) {
    engine.sources.fail(error.kind(), sexp.span(), error.what());
  }
}

void Interpreter::print_size_command(Sexp sexp) {
  if (sexp.size() > 2)
    fail(sexp, "expected (print-size) or (print-size function)");
  if (sexp.size() == 2) {
    auto id = sexp[1].is_symbol() ? engine.signature.find_function(sexp[1].symbol()) : std::nullopt;
    if (!id)
      fail(sexp[1],
           "unknown function" +
               (sexp[1].is_symbol() ? suggestion(engine.signature, sexp[1].symbol()) : ""));
    line(std::to_string(engine.table(*id).live()));
    return;
  }
  std::map<std::string, std::uint32_t> sizes;
  for (std::size_t f = 0; f < engine.tables.size(); ++f) {
    const Function& function = engine.signature.functions()[f];
    if (!function.hidden && !function.unlisted)
      sizes.emplace(function.name, engine.tables[f].live());
  }
  std::string out = "(";
  for (const auto& [name, size] : sizes)
    out += fmt::format("{}({} {})", out.size() > 1 ? "\n " : "", name, size);
  line(out + ")");
}

void Interpreter::print_function_command(Sexp sexp) {
  if (sexp.size() < 2 || !sexp[1].is_symbol())
    fail(sexp, "expected (print-function function count)");
  auto id = engine.signature.find_function(sexp[1].symbol());
  if (!id)
    fail(sexp[1], fmt::format("unknown function {}{}", sexp[1].symbol(),
                              suggestion(engine.signature, sexp[1].symbol())));
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  std::string file;
  bool csv = false;
  std::size_t first = 2;
  if (first < sexp.size() && sexp[first].kind() == SexpKind::Int)
    most = count_of(sexp[first++]);
  for_options(sexp, first, [&](Sexp option, std::size_t value) -> std::size_t {
    if (value >= sexp.size() || (!option.is_symbol(":file") && !option.is_symbol(":mode")))
      fail(option, "expected :file \"name\" or :mode csv");
    if (option.is_symbol(":file"))
      file = text_of(sexp[value]);
    else if (sexp[value].is_symbol("csv") || sexp[value].is_symbol("default"))
      csv = sexp[value].is_symbol("csv");
    else
      fail(sexp[value], "expected csv or default");
    return 1;
  });
  const Function& function = engine.signature.function(*id);
  const Table& table = engine.table(*id);
  Extraction problem(engine, declared_costs(engine));
  Choice choice = best_trees(problem);
  std::vector<std::string> lines;
  TermGraph graph;
  TermBuilder builder(engine, problem, choice.node);
  auto shown = [&](SortId sort, Value value) {
    try {
      return show_term(engine, graph, builder.build(graph, sort, value));
    } catch (const Error&) {
      return show_value(engine, sort, value); // nothing in the class can be extracted
    }
  };
  for (std::uint32_t row = 0; row < table.rows() && lines.size() < most; ++row) {
    if (table.state(row) == RowState::Dead)
      continue;
    std::string text = csv ? function.name : "(" + function.name;
    for (std::size_t c = 0; c < function.inputs.size(); ++c)
      text += (csv ? "," : " ") + shown(function.inputs[c], table.at(row, c));
    text += csv ? "" : ")";
    if (function.kind == FunctionKind::Function)
      text += (csv ? "," : " -> ") + shown(function.output, table.output(row));
    lines.push_back(std::move(text));
  }
  std::string out;
  if (csv) {
    for (const std::string& text : lines)
      out += text + "\n";
  } else {
    out = "(\n";
    for (const std::string& text : lines)
      out += "   " + text + "\n";
    out += ")";
  }
  if (file.empty()) {
    line(out);
    return;
  }
  std::ofstream stream(file);
  if (!(stream << out).flush())
    engine.sources.fail(ErrorKind::File, sexp.span(), file + ": cannot be written");
}

void Interpreter::print_stats_command(Sexp sexp) {
  std::string out =
      fmt::format("Search {:.3f}s, apply {:.3f}s, rebuild {:.3f}s", engine.search_seconds,
                  engine.apply_seconds, engine.rebuild_seconds);
  for (const Rule& rule : engine.rules) {
    if (rule.stats.runs != 0)
      out += fmt::format("\n{:>10} matches {:.4f}s match {:.4f}s apply  {}", rule.stats.matches,
                         rule.stats.match_seconds, rule.stats.apply_seconds,
                         rule.name.substr(0, rule.name.find('\n')));
  }
  std::string file;
  for_options(sexp, 1, [&](Sexp option, std::size_t value) -> std::size_t {
    if (!option.is_symbol(":file") || value >= sexp.size())
      fail(option, "expected :file \"name\"");
    file = text_of(sexp[value]);
    return 1;
  });
  if (file.empty()) {
    line(out);
    return;
  }
  std::ofstream stream(file);
  if (!(stream << out << "\n").flush())
    engine.sources.fail(ErrorKind::File, sexp.span(), file + ": cannot be written");
}

namespace {

/// Fields of a line, without blanks around them: separated by tabs; where there is no tab, by
/// commas or blanks. A line that is one field is taken whole.
std::vector<std::string> fields_of(std::string_view text, std::size_t wanted) {
  constexpr std::string_view kBlank = " \t\r\n";
  auto trimmed = [&](std::string_view field) {
    std::size_t begin = std::min(field.find_first_not_of(kBlank), field.size());
    return std::string(field.substr(begin, field.find_last_not_of(kBlank) + 1 - begin));
  };
  std::vector<std::string> out;
  bool tabs = text.find('\t') != std::string_view::npos;
  if (wanted == 1 && !tabs)
    return {trimmed(text)};
  for (std::size_t at = 0; at <= text.size();) {
    std::size_t end =
        std::min(tabs ? text.find('\t', at) : text.find_first_of(" ,\r", at), text.size());
    if (tabs || end > at)
      out.push_back(trimmed(text.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

std::optional<Value> parse_field(Engine& engine, SortId sort, const std::string& text) {
  const char* last = text.data() + text.size();
  switch (engine.signature.sort(sort).kind) {
  case SortKind::I64: {
    std::int64_t x = 0;
    auto [end, code] = std::from_chars(text.data(), last, x);
    return code == std::errc{} && end == last ? std::optional(engine.pools.from_i64(x))
                                              : std::nullopt;
  }
  case SortKind::F64: {
    double x = 0;
    auto [end, code] = std::from_chars(text.data(), last, x);
    return code == std::errc{} && end == last ? std::optional(engine.pools.from_f64(x))
                                              : std::nullopt;
  }
  case SortKind::String:
    return engine.pools.from_string(text);
  case SortKind::Bool:
    return text == "true" || text == "false" ? std::optional<Value>(text == "true") : std::nullopt;
  default:
    return std::nullopt;
  }
}

} // namespace

void Interpreter::input_command(Sexp sexp) {
  if (sexp.size() != 3 || !sexp[1].is_symbol() || sexp[2].kind() != SexpKind::String)
    fail(sexp, "expected (input function \"file\")");
  auto id = engine.signature.find_function(sexp[1].symbol());
  if (!id)
    fail(sexp[1], fmt::format("unknown function {}{}", sexp[1].symbol(),
                              suggestion(engine.signature, sexp[1].symbol())));
  const Function function = engine.signature.function(*id);
  std::vector<SortId> columns = function.inputs;
  bool with_output = function.kind == FunctionKind::Function && function.output != sorts::kUnit;
  if (with_output)
    columns.push_back(function.output);
  for (SortId sort : columns) {
    if (engine.signature.sort(sort).kind > SortKind::String)
      fail(sexp[1],
           fmt::format("input: {} has an argument of sort {}, which cannot be read from a file",
                       function.name, engine.signature.sort(sort).name));
  }
  std::filesystem::path path = fact_directory / sexp[2].string();
  if (fact_directory.empty())
    path = find_file(path);
  std::ifstream file(path);
  std::error_code ignored;
  if (!file || std::filesystem::is_directory(path, ignored))
    engine.sources.fail(ErrorKind::File, sexp[2].span(), path.string() + ": cannot be read");
  // A pipe or a device may never end: only so much of it is read.
  const bool regular = std::filesystem::is_regular_file(path, ignored);
  std::istringstream others(regular ? std::string() : read_text(path));
  std::istream& in = regular ? static_cast<std::istream&>(file) : others;
  Actor actor(engine);
  std::string text;
  for (std::uint64_t number = 1; std::getline(in, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos)
      continue;
    std::vector<std::string> fields = fields_of(text, columns.size());
    if (fields.size() != columns.size())
      engine.sources.fail(ErrorKind::File, sexp.span(),
                          fmt::format("{}:{}: expected {} fields, found {}", path.string(), number,
                                      columns.size(), fields.size()));
    std::vector<Value> values;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      std::optional<Value> value = parse_field(engine, columns[c], fields[c]);
      if (!value)
        engine.sources.fail(ErrorKind::File, sexp.span(),
                            fmt::format("{}:{}: field {}: expected {}, found \"{}\"", path.string(),
                                        number, c + 1, engine.signature.sort(columns[c]).name,
                                        fields[c]));
      values.push_back(*value);
    }
    if (function.kind == FunctionKind::Function)
      actor.set(*id, values.data(), with_output ? values.back() : 0, sexp.span());
    else
      actor.construct(*id, values.data());
  }
  rebuild(engine);
}

void Interpreter::output_command(Sexp sexp) {
  if (sexp.size() < 3 || sexp[1].kind() != SexpKind::String)
    fail(sexp, "expected (output \"file\" expressions ...)");
  std::filesystem::path path = fact_directory / sexp[1].string();
  std::ofstream out(path, std::ios::app);
  for (std::size_t i = 2; i < sexp.size(); ++i) {
    auto [sort, value] = evaluate(sexp[i]);
    TermGraph graph = extract_tree(engine, sort, value, trees());
    out << show_term(engine, graph, graph.roots[0]) << "\n";
  }
  if (!out.flush())
    engine.sources.fail(ErrorKind::File, sexp[1].span(), path.string() + ": cannot be written");
}

} // namespace egret::egraph
