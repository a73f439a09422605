// Index expressions as C text: 32-bit arithmetic where the expression's bounds prove that it is
// enough, 64-bit elsewhere.
#pragma once

#include "backend/clike/language.h"
#include "kernel/program.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace egret::backend::clike {

/// Instead of a lane's number: the text is that of every lane, whose number is the variable `l`.
inline constexpr int kEachLane = -1;

class IndexText {
public:
  /// `value_text` gives the text of a lane of a value. The language must outlive this.
  using ValueText = std::function<std::string(kernel::ValueId value, int lane)>;
  IndexText(const kernel::KernelProgram& program, const Language& language, ValueText value_text);

  /// Gives a symbol that is no dim a name, until it is taken back.
  void bind(const Expr& symbol, std::string name) { bound_.emplace_back(symbol, std::move(name)); }
  void unbind(std::size_t symbols) { bound_.resize(bound_.size() - symbols, {Expr(0), {}}); }

  /// The expression for lane `lane` of its lane variable, in parentheses unless it is one word.
  std::string text(const Expr& e, int lane = 0) const;
  /// Always of type long long.
  std::string wide_text(const Expr& e, int lane = 0) const;
  /// A condition, empty when it is proved.
  std::string condition(const std::vector<Guard>& guards, int lane = 0) const;
  /// The type of variables in which every value of the expression fits with room to step on:
  /// "int" or "long long".
  static const char* type_of(const Expr& bound);
  static bool fits(const Expr& e);

  /// With the lane replaced by its number; as it is for kEachLane.
  static Expr at_lane(const Expr& e, int lane);

private:
  struct Text {
    std::string text;
    bool wide;
  };
  Text render(const Expr& e, int lane) const;
  Text sum(const Expr& e, int lane) const;
  Text product(const Expr& e, int lane) const;
  Text division(const Expr& e, int lane) const;
  Text symbol(const Expr& e, int lane) const;
  /// A call of a function of two indices.
  Text call(std::string_view name, const Text& a, const Text& b) const;
  static std::string widened(const Text& t);

  const kernel::KernelProgram& program_;
  const Language& language_;
  ValueText value_text_;
  std::vector<std::pair<Expr, std::string>> bound_;
};

} // namespace egret::backend::clike
