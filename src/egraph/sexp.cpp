#include "egraph/sexp.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace egret::egraph {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}
bool ends_token(char c) {
  return is_space(c) || c == '(' || c == ')' || c == ';'; // a quote inside a name belongs to it
}

/// Fills `node` from a bare token: an integer, a float, or else a symbol.
void classify(std::string_view token, SexpNode& node) {
  node.kind = SexpKind::Symbol;
  const char* first = token.data();
  const char* last = first + token.size();
  if (token == "NaN" || token == "inf" || token == "-inf") {
    node.kind = SexpKind::Float;
    double inf = std::numeric_limits<double>::infinity();
    node.real = token == "NaN"   ? std::numeric_limits<double>::quiet_NaN()
                : token == "inf" ? inf
                                 : -inf;
    return;
  }
  std::string_view digits = token.substr(token[0] == '-' || token[0] == '+' ? 1 : 0);
  bool numeric = !digits.empty() && (std::isdigit(static_cast<unsigned char>(digits[0])) ||
                                     (digits[0] == '.' && digits.size() > 1 &&
                                      std::isdigit(static_cast<unsigned char>(digits[1]))));
  if (!numeric)
    return;
  if (*first == '+')
    ++first;
  std::int64_t integer = 0;
  if (auto [end, code] = std::from_chars(first, last, integer);
      code == std::errc{} && end == last) {
    node.kind = SexpKind::Int;
    node.integer = integer;
    return;
  }
  double real = 0;
  if (auto [end, code] = std::from_chars(first, last, real); code == std::errc{} && end == last) {
    node.kind = SexpKind::Float;
    node.real = real;
  }
}

} // namespace

Sexps::Sexps(const Sources& sources, std::uint32_t file) : text_(sources.file(file).text) {
  struct Open {
    std::uint32_t begin;
    std::size_t pending;
  };
  std::vector<Open> open;
  std::vector<std::uint32_t> pending; // finished nodes that wait for their list to close
  const std::size_t size = text_.size();
  if (size >= std::numeric_limits<std::uint32_t>::max())
    sources.fail(ErrorKind::Parse, {file, 0, 1}, "the text is longer than 4 GiB");
  auto span = [&](std::size_t begin, std::size_t end) {
    return Span{file, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
  };
  auto finish = [&](const SexpNode& node) {
    nodes_.push_back(node);
    (open.empty() ? roots_ : pending).push_back(static_cast<std::uint32_t>(nodes_.size() - 1));
  };
  std::size_t at = 0;
  while (at < size) {
    char c = text_[at];
    if (is_space(c)) {
      ++at;
    } else if (c == ';') {
      while (at < size && text_[at] != '\n')
        ++at;
    } else if (c == '(') {
      open.push_back({static_cast<std::uint32_t>(at), pending.size()});
      ++at;
    } else if (c == ')') {
      if (open.empty())
        sources.fail(ErrorKind::Parse, span(at, at + 1), "this parenthesis closes nothing");
      Open list = open.back();
      open.pop_back();
      SexpNode node;
      node.kind = SexpKind::List;
      node.span = span(list.begin, at + 1);
      node.first = static_cast<std::uint32_t>(children_.size());
      node.count = static_cast<std::uint32_t>(pending.size() - list.pending);
      children_.insert(children_.end(), pending.begin() + static_cast<std::ptrdiff_t>(list.pending),
                       pending.end());
      pending.resize(list.pending);
      finish(node);
      ++at;
    } else if (c == '"') {
      std::size_t begin = at++;
      std::string value;
      while (at < size && text_[at] != '"') {
        if (text_[at] != '\\') {
          value += text_[at++];
          continue;
        }
        char escaped = at + 1 < size ? text_[at + 1] : '\0';
        if (escaped != 'n' && escaped != 't' && escaped != 'r' && escaped != '0' &&
            escaped != '\\' && escaped != '"' && escaped != '\'')
          sources.fail(ErrorKind::Parse, span(at, at + 2), "unknown escape in a string");
        value += escaped == 'n'   ? '\n'
                 : escaped == 't' ? '\t'
                 : escaped == 'r' ? '\r'
                 : escaped == '0' ? '\0'
                                  : escaped;
        at += 2;
      }
      if (at >= size)
        sources.fail(ErrorKind::Parse, span(begin, begin + 1), "this string is not closed");
      ++at;
      SexpNode node;
      node.kind = SexpKind::String;
      node.span = span(begin, at);
      node.first = static_cast<std::uint32_t>(strings_.size());
      strings_.push_back(std::move(value));
      finish(node);
    } else {
      std::size_t begin = at;
      while (at < size && !ends_token(text_[at]))
        ++at;
      SexpNode node;
      node.span = span(begin, at);
      classify(text_.substr(begin, at - begin), node);
      finish(node);
    }
  }
  if (!open.empty())
    sources.fail(ErrorKind::Parse, span(open.back().begin, open.back().begin + 1),
                 "this parenthesis is not closed");
}

} // namespace egret::egraph
