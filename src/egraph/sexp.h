// The reader: text to a flat tree of parenthesised expressions with spans. Neither reading nor
// destroying a tree recurses.
#pragma once

#include "egraph/source.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret::egraph {

/// What a node of the tree is.
enum class SexpKind : std::uint8_t { List, Symbol, Int, Float, String };

/// A node; its children and text live in the tree.
struct SexpNode {
  SexpKind kind = SexpKind::List;
  Span span;
  std::uint32_t first = 0; ///< List: first child in the child array; String: index of its text
  std::uint32_t count = 0; ///< List: number of children
  union {
    std::int64_t integer = 0;
    double real;
  };
};

class Sexps;

/// A cheap handle of one node.
class Sexp {
public:
  Sexp() = default;
  Sexp(const Sexps* tree, std::uint32_t index) : tree_(tree), index_(index) {}
  inline const SexpNode& node() const;
  SexpKind kind() const { return node().kind; }
  Span span() const { return node().span; }
  bool is_list() const { return kind() == SexpKind::List; }
  bool is_symbol() const { return kind() == SexpKind::Symbol; }
  bool is_symbol(std::string_view name) const { return is_symbol() && symbol() == name; }
  /// A keyword is a symbol that starts with a colon.
  bool is_keyword() const { return is_symbol() && symbol().starts_with(':'); }
  std::size_t size() const { return is_list() ? node().count : 0; }
  inline Sexp operator[](std::size_t i) const;
  inline std::string_view symbol() const;
  inline const std::string& string() const;
  /// The head symbol of a non-empty list, "" otherwise.
  std::string_view head() const {
    return size() > 0 && (*this)[0].is_symbol() ? (*this)[0].symbol() : std::string_view{};
  }

private:
  const Sexps* tree_ = nullptr;
  std::uint32_t index_ = 0;
};

/// A whole text, read.
class Sexps {
public:
  /// Reads every expression of a file of `sources`. Throws SourceError of kind Parse.
  Sexps(const Sources& sources, std::uint32_t file);
  std::size_t size() const { return roots_.size(); }
  Sexp operator[](std::size_t i) const { return {this, roots_[i]}; }

private:
  friend class Sexp;
  std::string_view text_;
  std::vector<SexpNode> nodes_;
  std::vector<std::uint32_t> children_;
  std::vector<std::string> strings_;
  std::vector<std::uint32_t> roots_;
};

inline const SexpNode& Sexp::node() const {
  return tree_->nodes_[index_];
}
inline Sexp Sexp::operator[](std::size_t i) const {
  return {tree_, tree_->children_[node().first + i]};
}
inline std::string_view Sexp::symbol() const {
  return tree_->text_.substr(span().begin, span().end - span().begin);
}
inline const std::string& Sexp::string() const {
  return tree_->strings_[node().first];
}

} // namespace egret::egraph
