#include "backend/clike/renderer.h"

#include <algorithm>
#include <bit>

namespace egret::backend::clike {

using kernel::Stmt;

Renderer::Renderer(const kernel::KernelProgram& program, const Language& language)
    : program_(program), language_(language),
      index_(program, language,
             [this](kernel::ValueId value, int lane) { return lane_text(value, lane); }) {}

void Renderer::block(const kernel::Block& stmts) {
  for (const Stmt& stmt : stmts)
    statement(stmt);
}

void Renderer::statement(const Stmt& stmt) {
  std::visit(overloaded{[&](const kernel::Let& x) { let(x.target, x.inst); },
                        [&](const kernel::Assign& x) { assign(x); },
                        [&](const kernel::Store& x) { store(x); },
                        [&](const kernel::For& x) { loop(x); },
                        [&](const kernel::If& x) { condition(x); },
                        [&](const kernel::Barrier&) { barrier(); },
                        [&](const kernel::Intrinsic& x) { intrinsic(x); },
                        [&](const kernel::Acquire& x) { acquire(x); },
                        [&](const kernel::InProblem& x) { problem(x); }},
             stmt.node);
}

void Renderer::condition(const kernel::If& stmt) {
  const std::string held = index_.condition(stmt.condition);
  open(fmt::format("if ({})", held.empty() ? "true" : held));
  enter_branch(stmt.body);
  block(stmt.body);
  if (!stmt.otherwise.empty()) {
    otherwise();
    enter_branch(stmt.otherwise);
    block(stmt.otherwise);
  }
  close();
}

// Finds the problem by binary search without branches, in a table that is as long as a power of
// two.
void Renderer::problem(const kernel::InProblem& stmt) {
  const kernel::ProblemGroup& group = program_.groups[static_cast<std::size_t>(stmt.group)];
  const int n = names_++;
  const std::string number = fmt::format("eg_problem{}", n);
  const char* type = IndexText::type_of(Expr(group.begin.back()));
  open("");
  line("const {} eg_item{} = {};", type, n, index_.text(stmt.item));
  line("int {} = 0;", number);
  std::string begin;
  if (group.begin.back() == static_cast<std::int64_t>(group.problems()) &&
      std::adjacent_find(group.begin.begin(), group.begin.end()) == group.begin.end()) {
    // One item each.
    line("{} = (int)eg_item{};", number, n);
  } else {
    const std::size_t length = std::bit_ceil(group.problems());
    std::vector<std::string> begins;
    for (std::size_t p = 0; p < length; ++p)
      begins.push_back(fmt::format("{}", group.begin[std::min(p, group.problems())]));
    begin = table(type, begins);
    for (std::size_t step = length / 2; step > 0; step /= 2)
      line("{0} += {1}[{0} + {2}] <= eg_item{3} ? {2} : 0;", number, begin, step, n);
  }
  const auto declare = [&](const Expr& symbol, const std::string& text) {
    const int name = names_++;
    line("const {} eg_size{} = {};", IndexText::fits(symbol) ? "int" : "long long", name, text);
    index_.bind(symbol, fmt::format("eg_size{}", name));
  };
  declare(group.item, begin.empty() ? "0" : fmt::format("eg_item{} - {}[{}]", n, begin, number));
  for (std::size_t s = 0; s < group.sizes.size(); ++s)
    declare(group.sizes[s], by_problem(group.values[s], number));
  for (std::size_t b = 0; b < group.buffers.size(); ++b) {
    const kernel::Buffer& buffer = program_.buffers[static_cast<std::size_t>(group.buffers[b])];
    std::vector<std::int64_t> arguments;
    for (const int a : group.arguments[b])
      arguments.push_back(program_.buffers[static_cast<std::size_t>(a)].argument);
    line("{0}{1}* const b{2} = ({0}{1}*){3}; /* {4} */", buffer.written ? "" : "const ",
         memory_type(buffer.dtype), group.buffers[b],
         argument_pointer(buffer, by_problem(arguments, number)), comment_text(buffer.name));
  }
  for (const std::vector<int>& scalar : group.scalars) {
    problem_scalars_.push_back(fmt::format("eg_scalar{}", names_++));
    line("const int {} = {};", problem_scalars_.back(),
         by_problem({scalar.begin(), scalar.end()}, number));
  }
  block(stmt.body);
  problem_scalars_.clear();
  index_.unbind(1 + group.sizes.size());
  close();
}

std::string Renderer::scalar_number(const kernel::inst::Argument& x) const {
  return x.number >= 0 ? fmt::format("{}", x.number)
                       : problem_scalars_.at(static_cast<std::size_t>(-1 - x.number));
}

std::string Renderer::by_problem(const std::vector<std::int64_t>& values,
                                 const std::string& problem) {
  const std::int64_t first = values[0], step = values.size() > 1 ? values[1] - first : 0;
  bool affine = true, narrow = true;
  std::vector<std::string> texts;
  for (std::size_t p = 0; p < values.size(); ++p) {
    affine = affine && values[p] == first + step * static_cast<std::int64_t>(p);
    narrow = narrow && values[p] >= INT32_MIN && values[p] <= INT32_MAX;
    texts.push_back(fmt::format("{}{}", values[p], narrow ? "" : "LL"));
  }
  if (affine && narrow)
    return step == 0 ? texts[0] : fmt::format("({} + {} * {})", first, step, problem);
  return fmt::format("{}[{}]", table(narrow ? "int" : "long long", texts), problem);
}

std::string kernel_symbol(const kernel::KernelProgram& program) {
  std::string name;
  for (char c : program.name.substr(0, 40)) {
    const bool allowed = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    name += allowed ? c : '_';
  }
  return fmt::format("k_{}_{:016x}", name, kernel::hash_of(program));
}

// Nothing that ends the comment, joins the next line to it or begins a trigraph.
std::string comment_text(std::string_view name) {
  const auto at = [&](std::size_t i) { return i < name.size() ? name[i] : ' '; };
  std::string text(name);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = at(i), beside = c == '*' ? '/' : '*';
    const bool mark = (c == '*' || c == '/') && (at(i + 1) == beside || at(i - 1) == beside);
    if (c < ' ' || c > '~' || c == '\\' || c == '?' || mark)
      text[i] = '_';
  }
  return text;
}

namespace {

bool uses(const std::string& text, std::string_view names) {
  while (!names.empty()) {
    const std::size_t end = std::min(names.find(' '), names.size());
    const std::string_view name = names.substr(0, end);
    names.remove_prefix(std::min(end + 1, names.size()));
    for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
      const char next = at + name.size() < text.size() ? text[at + name.size()] : ' ';
      if (next == '(' || next == '<')
        return true;
    }
  }
  return false;
}

} // namespace

std::string prelude_for(const std::string& text, std::span<const Piece> pieces) {
  std::string needed = text, prelude;
  for (std::size_t i = pieces.size(); i-- > 0;)
    if (uses(needed, pieces[i].names)) {
      const std::string_view piece = pieces[i].text;
      prelude.insert(0, piece.substr(piece.starts_with('\n') ? 1 : 0));
      needed += piece;
    }
  return prelude;
}

} // namespace egret::backend::clike
