// How patterns are described; every mistake in a description is told when it is made.
#include "ir/pattern_spec.h"

#include "support/fail.h"

#include <algorithm>
#include <charconv>

namespace egret::pattern {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

Pattern make(Spec spec) {
  return Pattern(std::make_shared<const Spec>(std::move(spec)));
}

void check_letters(const Spec& spec, const char* method, std::string_view letters) {
  for (char c : letters)
    if (spec.place_of(c) < 0)
      fail(ErrorKind::Value, "pattern: {}(\"{}\"): shape() has no dim `{}`; call shape() first",
           method, letters, c);
}

void check_arity(Op op, std::size_t operands) {
  if (operands != static_cast<std::size_t>(info_of(op).arity))
    fail(ErrorKind::Value, "pattern: {} takes {} operands, the pattern has {}", info_of(op).name,
         info_of(op).arity, operands);
}

} // namespace

int Spec::place_of(char letter) const {
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (dims[i].letter == letter)
      return static_cast<int>(i);
  return -1;
}

Pattern Pattern::with(const std::function<void(Spec&)>& change) const {
  Spec spec = *spec_;
  change(spec);
  return make(std::move(spec));
}

Pattern Pattern::named(std::string name) const {
  return with([&](Spec& s) { s.name = std::move(name); });
}

Pattern Pattern::shape(std::string_view letters) const {
  Spec spec = *spec_;
  spec.has_shape = true;
  spec.dims.clear();
  std::string_view rest = letters;
  spec.has_batch = rest.starts_with("..");
  if (spec.has_batch)
    rest.remove_prefix(2);
  while (!rest.empty()) {
    char c = rest[0];
    if (c >= '0' && c <= '9') {
      DimToken token;
      auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), token.size);
      if (error != std::errc{})
        fail(ErrorKind::Value, "pattern: shape(\"{}\"): the size does not fit 64 bits", letters);
      spec.dims.push_back(token);
      rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
      continue;
    }
    if (is_letter(c))
      spec.dims.push_back({.letter = c});
    else if (c == '_')
      spec.dims.push_back({});
    else if (c != ' ')
      fail(ErrorKind::Value,
           "pattern: shape(\"{}\"): `{}` is no dim; letters, digits, _ and a leading .. are known",
           letters, c);
    rest.remove_prefix(1);
  }
  return make(std::move(spec));
}

Pattern Pattern::broadcast(std::string_view letters) const {
  check_letters(*spec_, "broadcast", letters);
  return with([&](Spec& s) { s.broadcast = letters; });
}

Pattern Pattern::varies(std::string_view letters) const {
  check_letters(*spec_, "varies", letters);
  return with([&](Spec& s) { s.varies = letters; });
}

Pattern Pattern::over(std::string_view letters) const {
  if (spec_->kind != Spec::Kind::Node || spec_->operands.empty())
    fail(ErrorKind::Value, "pattern: over(\"{}\") is for a node with operands", letters);
  check_letters(spec_->operands[0].spec(), "over", letters);
  return with([&](Spec& s) { s.over = letters; });
}

Pattern Pattern::dtype(DType type) const {
  return with([&](Spec& s) { s.dtype = type; });
}

Pattern Pattern::single_use() const {
  return with([](Spec& s) { s.single_use = true; });
}

Pattern Pattern::ordered() const {
  return with([](Spec& s) { s.ordered = true; });
}

Pattern Pattern::where(std::function<bool(const Graph&, NodeId)> holds) const {
  return with([&](Spec& s) { s.where.push_back(std::move(holds)); });
}

Pattern any(std::string name) {
  Spec spec;
  spec.name = std::move(name);
  return make(std::move(spec));
}

Pattern node(Op op, std::vector<Pattern> operands) {
  return node(std::vector<Op>{op}, std::move(operands));
}

Pattern node(std::vector<Op> ops, std::vector<Pattern> operands) {
  if (ops.empty())
    fail(ErrorKind::Value, "pattern: node() needs at least one op");
  for (Op op : ops)
    check_arity(op, operands.size());
  Spec spec;
  spec.kind = Spec::Kind::Node;
  spec.ops = std::move(ops);
  spec.operands = std::move(operands);
  return make(std::move(spec));
}

Pattern constant(double value) {
  Spec spec;
  spec.kind = Spec::Kind::Constant;
  spec.value = value;
  return make(std::move(spec));
}

Pattern any_constant(std::string name) {
  Spec spec;
  spec.kind = Spec::Kind::Constant;
  spec.name = std::move(name);
  return make(std::move(spec));
}

Pattern viewed(Pattern source) {
  Spec spec;
  spec.kind = Spec::Kind::Viewed;
  spec.operands = {std::move(source)};
  return make(std::move(spec));
}

Pattern one_of(std::vector<Pattern> alternatives) {
  if (alternatives.empty())
    fail(ErrorKind::Value, "pattern: one_of() needs at least one alternative");
  Spec spec;
  spec.kind = Spec::Kind::OneOf;
  spec.operands = std::move(alternatives);
  return make(std::move(spec));
}

NodeId Match::operator[](std::string_view name) const {
  auto found = nodes.find(std::string(name));
  if (found == nodes.end())
    fail(ErrorKind::Value, "pattern: the match has no node named `{}`", name);
  return found->second;
}

const Expr& Match::dim(char letter) const {
  auto found = dims.find(letter);
  if (found == dims.end())
    fail(ErrorKind::Value, "pattern: the match has no dim `{}`", letter);
  return found->second;
}

} // namespace egret::pattern
