#include "backend/clike/renderer.h"

#include <algorithm>

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
                        [&](const kernel::Acquire& x) { acquire(x); }},
             stmt.node);
}

void Renderer::condition(const kernel::If& stmt) {
  const std::string held = index_.condition(stmt.condition);
  open(fmt::format("if ({})", held.empty() ? "true" : held));
  block(stmt.body);
  if (!stmt.otherwise.empty()) {
    otherwise();
    block(stmt.otherwise);
  }
  close();
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
  std::string text(name);
  for (char& c : text)
    if (c < ' ' || c > '~' || c == '\\' || c == '?' || c == '*' || c == '/')
      c = '_';
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
