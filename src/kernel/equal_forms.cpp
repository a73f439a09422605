#include "kernel/equal_forms.h"

#include "egret/error.h"
#include "kernel/region_fields.h"
#include "support/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace egret::kernel {

namespace {

std::uint64_t skeleton_of(const Expr& e);

/// Numbers that make a form: without an offset, contiguous, backwards. All others are sizes.
std::uint64_t class_of(std::int64_t number) {
  return number >= -1 && number <= 1 ? std::uint64_t(number + 1) : 3;
}

/// The operands of an expression in an order that does not depend on numbers.
std::vector<std::size_t> order_of(const ExprNode& node) {
  std::vector<std::size_t> order(node.operands.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (node.kind != ExprKind::Sum && node.kind != ExprKind::Product)
    return order;
  std::vector<std::uint64_t> skeletons;
  for (const Expr& operand : node.operands)
    skeletons.push_back(skeleton_of(operand));
  for (std::size_t i = 0; i < node.coefficients.size(); ++i)
    skeletons[i] = combine(skeletons[i], class_of(node.coefficients[i]));
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return skeletons[a] < skeletons[b]; });
  return order;
}

/// Hash of an expression without its sizes.
std::uint64_t skeleton_of(const Expr& e) {
  const ExprNode& node = e.node();
  std::uint64_t h = combine(std::uint64_t(node.kind), node.operands.size());
  if (node.kind == ExprKind::Axis)
    h = combine(h, std::uint64_t(node.value));
  if (node.kind == ExprKind::Symbol)
    h = combine(h, e.hash());
  if (node.kind == ExprKind::Constant || node.kind == ExprKind::Sum)
    h = combine(h, class_of(node.value));
  for (const std::size_t i : order_of(node)) {
    if (node.kind == ExprKind::Sum)
      h = combine(h, class_of(node.coefficients[i]));
    h = combine(h, skeleton_of(node.operands[i]));
  }
  return h;
}

/// The numbers of an expression, in the order in which `rebuilt` asks for them.
void collect_numbers(const Expr& e, std::vector<std::int64_t>& numbers) {
  const ExprNode& node = e.node();
  if (node.kind == ExprKind::Constant || node.kind == ExprKind::Sum)
    numbers.push_back(node.value);
  for (const std::size_t i : order_of(node)) {
    if (node.kind == ExprKind::Sum)
      numbers.push_back(node.coefficients[i]);
    collect_numbers(node.operands[i], numbers);
  }
}

/// The expression with other numbers, from `next` on.
Expr rebuilt(const Expr& e, const Expr*& next) {
  const ExprNode& node = e.node();
  const auto part = [&](std::size_t i) { return rebuilt(node.operands[i], next); };
  switch (node.kind) {
  case ExprKind::Constant:
    return *next++;
  case ExprKind::Symbol:
    return e;
  case ExprKind::Axis:
    return Expr::axis(e.axis_number(), part(0));
  case ExprKind::Sum: {
    Expr sum = *next++;
    for (const std::size_t i : order_of(node)) {
      const Expr coefficient = *next++;
      sum = sum + coefficient * part(i);
    }
    return sum;
  }
  case ExprKind::Product: {
    Expr product = 1;
    for (const std::size_t i : order_of(node))
      product = product * part(i);
    return product;
  }
  default: {
    const Expr a = part(0), b = part(1);
    return node.kind == ExprKind::FloorDiv   ? floordiv(a, b)
           : node.kind == ExprKind::FloorMod ? floormod(a, b)
           : node.kind == ExprKind::Min      ? min(a, b)
                                             : max(a, b);
  }
  }
}

/// Goes over what makes the form of a region: all but names, alignments and node numbers.
template <class D>
class FormVisitor {
public:
  template <class T>
  void operator()(T& field) {
    D& self = static_cast<D&>(*this);
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>)
      self.word(static_cast<std::uint64_t>(field));
    else if constexpr (std::is_same_v<T, Expr>)
      self.expr(field);
    else if constexpr (requires { field.begin(); }) {
      self.word(field.size());
      for (auto& item : field)
        self(item);
    } else
      members(self, field);
  }
  void operator()(std::string&) {}
  void operator()(Operand& x) {
    all_members(static_cast<D&>(*this), x.dtype, x.shape, x.layout, x.role);
  }
  void operator()(Region& x) {
    all_members(static_cast<D&>(*this), x.axes, x.operands, x.stages, x.outputs);
  }
};

class Scan : public FormVisitor<Scan> {
public:
  void word(std::uint64_t w) { hash = combine(hash, w); }
  void expr(const Expr& e) {
    word(skeleton_of(e));
    expressions.push_back(e);
  }

  std::uint64_t hash = 0x666f726d73u;
  std::vector<Expr> expressions;
};

Scan scan(const Region& region) {
  Scan result;
  result(const_cast<Region&>(region)); // nothing is changed
  return result;
}

/// Puts expressions into a region, in the order of a scan.
class Rewrite : public FormVisitor<Rewrite> {
public:
  explicit Rewrite(const Expr* next) : next_(next) {}
  void word(std::uint64_t) {}
  void expr(Expr& e) { e = *next_++; }

private:
  const Expr* next_;
};

/// Numbers that differ by region, as expressions of as few symbols as can be.
class Sizes {
public:
  explicit Sizes(CommonForm& form) : form_(form) {}

  Expr operator()(const std::vector<std::int64_t>& values) {
    if (std::all_of(values.begin(), values.end(), [&](auto v) { return v == values[0]; }))
      return values[0];
    for (std::size_t s = 0; s < form_.sizes.size(); ++s) {
      const std::vector<std::int64_t>& known = form_.values[s];
      if (const auto more = shared(values, known, std::minus<>()))
        return form_.sizes[s] + Expr(*more);
      const bool divides =
          std::equal(values.begin(), values.end(), known.begin(),
                     [](std::int64_t v, std::int64_t k) { return k != 0 && v % k == 0; });
      if (const auto times = divides ? shared(values, known, std::divides<>()) : std::nullopt)
        return form_.sizes[s] * Expr(*times);
    }
    for (std::size_t a = 0; a < form_.sizes.size(); ++a)
      for (std::size_t b = 0; b <= a; ++b)
        if (is_product(values, form_.values[a], form_.values[b]))
          return form_.sizes[a] * form_.sizes[b];
    form_.sizes.push_back(size_symbol(form_.sizes.size(), values));
    form_.values.push_back(values);
    return form_.sizes.back();
  }

private:
  /// What `of` makes of each pair, where that is the same for all.
  template <class F>
  static std::optional<std::int64_t> shared(const std::vector<std::int64_t>& values,
                                            const std::vector<std::int64_t>& known, F of) {
    const std::int64_t first = of(values[0], known[0]);
    for (std::size_t i = 1; i < values.size(); ++i)
      if (of(values[i], known[i]) != first)
        return std::nullopt;
    return first;
  }
  static bool is_product(const std::vector<std::int64_t>& values,
                         const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::int64_t product = 0;
      if (__builtin_mul_overflow(a[i], b[i], &product) || product != values[i])
        return false;
    }
    return true;
  }

  CommonForm& form_;
};

/// Whether the form's expressions are those of each region with its sizes.
bool stands_for(const CommonForm& form, const std::vector<Expr>& common,
                const std::vector<Scan>& scans) {
  for (std::size_t r = 0; r < scans.size(); ++r)
    for (std::size_t i = 0; i < common.size(); ++i)
      if (!(with_sizes(common[i], form.sizes, form.values, r) == scans[r].expressions[i]))
        return false;
  return true;
}

/// The common expressions; nothing where the regions' have other shapes.
std::optional<std::vector<Expr>> anti_unify(const std::vector<Scan>& scans, CommonForm& form) {
  Sizes sizes(form);
  std::vector<Expr> common;
  for (std::size_t i = 0; i < scans[0].expressions.size(); ++i) {
    std::vector<std::vector<std::int64_t>> numbers(scans.size());
    for (std::size_t r = 0; r < scans.size(); ++r) {
      collect_numbers(scans[r].expressions[i], numbers[r]);
      if (numbers[r].size() != numbers[0].size())
        return std::nullopt;
    }
    std::vector<Expr> replaced;
    for (std::size_t n = 0; n < numbers[0].size(); ++n) {
      std::vector<std::int64_t> values;
      for (const auto& own : numbers)
        values.push_back(own[n]);
      replaced.push_back(sizes(values));
    }
    const Expr* next = replaced.data();
    common.push_back(rebuilt(scans[0].expressions[i], next));
  }
  return common;
}

} // namespace

std::uint64_t form_hash(const Region& region) {
  return scan(region).hash;
}

std::optional<CommonForm> common_form(std::span<const Region* const> regions) {
  std::vector<Scan> scans;
  for (const Region* region : regions) {
    scans.push_back(scan(*region));
    if (scans.back().hash != scans[0].hash ||
        scans.back().expressions.size() != scans[0].expressions.size())
      return std::nullopt;
  }
  CommonForm form;
  form.region = *regions[0];
  try {
    const auto common = anti_unify(scans, form);
    if (!common || !stands_for(form, *common, scans))
      return std::nullopt;
    Rewrite(common->data())(form.region);
    for (const Region* region : regions)
      for (std::size_t o = 0; o < region->operands.size(); ++o)
        form.region.operands[o].alignment =
            std::gcd(form.region.operands[o].alignment, region->operands[o].alignment);
    verify(form.region);
  } catch (const Error&) { // a size that could be 0 divides, say
    return std::nullopt;
  } catch (const InternalError&) { // bounds that only the numbers prove
    return std::nullopt;
  }
  return form;
}

Expr with_sizes(const Expr& e, std::span<const Expr> sizes,
                const std::vector<std::vector<std::int64_t>>& values, std::size_t number) {
  if (e.is_constant())
    return e;
  return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
    const auto at = std::find(sizes.begin(), sizes.end(), v);
    return at == sizes.end()
               ? std::nullopt
               : std::optional<Expr>(values[static_cast<std::size_t>(at - sizes.begin())][number]);
  });
}

Expr size_symbol(std::size_t number, std::span<const std::int64_t> values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  std::int64_t divisor = 0;
  for (const std::int64_t v : values)
    divisor = std::gcd(divisor, v);
  divisor = std::max<std::int64_t>(1, divisor);
  // The same name must always come with the same facts.
  return Expr::symbol(fmt::format("%size{}_{}_{}_{}", number, *least, *most, divisor), *least,
                      *most, divisor);
}

} // namespace egret::kernel
