#include "ir/expr_node.h"

#include "support/fail.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <mutex>
#include <numeric>
#include <unordered_map>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace egret::expr_detail {

namespace {

__extension__ using Wide = __int128;

constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();

std::int64_t clamped(Wide value) noexcept {
  if (value < kLowest)
    return kLowest;
  return value > kHighest ? kHighest : static_cast<std::int64_t>(value);
}

std::uint64_t magnitude(std::int64_t value) noexcept {
  const auto bits = static_cast<std::uint64_t>(value);
  return value < 0 ? ~bits + 1 : bits;
}

/// One product of ends of ranges; an unknown end counts as infinite of its sign.
Wide end_product(std::int64_t a, std::int64_t b) noexcept {
  if (a == 0 || b == 0)
    return 0;
  return static_cast<Wide>(a) * b;
}

} // namespace

std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum))
    fail(ErrorKind::Value, "expression: {} + {} does not fit 64 bits", a, b);
  return sum;
}

std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product))
    fail(ErrorKind::Value, "expression: {} * {} does not fit 64 bits", a, b);
  return product;
}

std::int64_t checked_negate(std::int64_t a) {
  return checked_multiply(a, -1);
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  if (b == -1)
    return checked_negate(a);
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t floor_remainder(std::int64_t a, std::int64_t b) {
  if (b == -1)
    return 0;
  const std::int64_t remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

std::int64_t common_divisor(std::int64_t a, std::int64_t b) noexcept {
  const std::uint64_t divisor = std::gcd(magnitude(a), magnitude(b));
  return divisor > static_cast<std::uint64_t>(kHighest) ? std::int64_t{1} << 62
                                                        : static_cast<std::int64_t>(divisor);
}

std::int64_t product_divisor(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product) && product != kLowest)
    return product < 0 ? -product : product;
  return std::max(common_divisor(a, 0), common_divisor(b, 0));
}

Range sum_of(Range a, Range b) noexcept {
  return {
      a.lower == kNoLower || b.lower == kNoLower ? kNoLower
                                                 : clamped(static_cast<Wide>(a.lower) + b.lower),
      a.upper == kNoUpper || b.upper == kNoUpper ? kNoUpper
                                                 : clamped(static_cast<Wide>(a.upper) + b.upper)};
}

Range product_of(Range a, Range b) noexcept {
  // Unknown ends are the ends of the 64-bit range, so the corners' products, clamped, are right for
  // them too.
  const std::array<Wide, 4> corners{end_product(a.lower, b.lower), end_product(a.lower, b.upper),
                                    end_product(a.upper, b.lower), end_product(a.upper, b.upper)};
  const auto [low, high] = std::minmax_element(corners.begin(), corners.end());
  const bool open =
      a.lower == kNoLower || a.upper == kNoUpper || b.lower == kNoLower || b.upper == kNoUpper;
  // The negative of an unknown upper end comes out one above the sign of an unknown lower end.
  std::int64_t lower = clamped(*low), upper = clamped(*high);
  if (open && lower <= -kHighest)
    lower = kNoLower;
  return {lower, upper};
}

Range quotient_of(Range a, Range b) noexcept {
  const auto low_divisor = a.lower < 0 ? b.lower : b.upper;
  const auto high_divisor = a.upper < 0 ? b.upper : b.lower;
  Range result{kNoLower, kNoUpper};
  if (a.lower != kNoLower)
    result.lower = a.lower >= 0 && b.upper == kNoUpper ? 0 : floor_quotient(a.lower, low_divisor);
  if (a.upper != kNoUpper)
    result.upper = a.upper < 0 && b.upper == kNoUpper ? -1 : floor_quotient(a.upper, high_divisor);
  return result;
}

bool is_atom(ExprKind kind) noexcept {
  return kind != ExprKind::Constant && kind != ExprKind::Sum && kind != ExprKind::Product;
}

std::span<const Expr> atoms_of(const Expr& monomial) noexcept {
  if (monomial.node().kind == ExprKind::Product)
    return monomial.node().operands;
  return {&monomial, 1};
}

namespace {

int compare_nodes(const ExprNode& a, const ExprNode& b) noexcept;

int compare_atoms(const Expr& a, const Expr& b) noexcept {
  if (a == b)
    return 0;
  const ExprNode &x = a.node(), &y = b.node();
  if (x.kind != y.kind)
    return x.kind < y.kind ? -1 : 1;
  if (x.kind == ExprKind::Symbol)
    if (const int order = x.name.compare(y.name); order != 0)
      return order;
  if (x.value != y.value)
    return x.value < y.value ? -1 : 1;
  if (x.hash != y.hash)
    return x.hash < y.hash ? -1 : 1;
  return compare_nodes(x, y);
}

/// Only reached when two different nodes have one hash.
int compare_nodes(const ExprNode& a, const ExprNode& b) noexcept {
  if (a.kind != b.kind)
    return a.kind < b.kind ? -1 : 1;
  if (a.value != b.value)
    return a.value < b.value ? -1 : 1;
  if (a.coefficients != b.coefficients)
    return a.coefficients < b.coefficients ? -1 : 1;
  if (a.operands.size() != b.operands.size())
    return a.operands.size() < b.operands.size() ? -1 : 1;
  for (std::size_t i = 0; i < a.operands.size(); ++i)
    if (const int order = compare_atoms(a.operands[i], b.operands[i]); order != 0)
      return order;
  if (a.lower != b.lower)
    return a.lower < b.lower ? -1 : 1;
  if (a.upper != b.upper)
    return a.upper < b.upper ? -1 : 1;
  return a.divisor < b.divisor ? -1 : a.divisor > b.divisor ? 1 : 0;
}

/// The registry of all living nodes, the one global of expressions. It owns none of them (small
/// constants apart): a node leaves with its last owner, so the registry holds what expressions in
/// use hold and no more. Sharded by hash; a shard's lock is held for one look-up.
class Registry {
public:
  static Registry& instance() {
    // Never destroyed: expressions may outlive every static object.
    static auto* const registry = new Registry;
    return *registry;
  }

  std::shared_ptr<const ExprNode> intern(ExprNode&& node) {
    Shard& shard = shard_of(node.hash);
    const std::lock_guard lock(shard.mutex);
    const auto [first, last] = shard.nodes.equal_range(node.hash);
    for (auto it = first; it != last; ++it)
      // A node leaves its shard before it is freed, so looking at it under the lock is safe even
      // when nobody owns it any more.
      if (same(*it->second, node))
        if (auto owner = it->second->weak_from_this().lock())
          return owner;
    auto* const raw = new ExprNode(std::move(node));
    shard.nodes.emplace(raw->hash, raw);
    return {raw, [](ExprNode* unowned) { release(unowned); }};
  }

private:
  struct Shard {
    std::mutex mutex;
    /// Not to const: making a weak_ptr<const T> of a weak_ptr<T> takes a shared_ptr for a moment,
    /// and were that the last one, it would free the node under the lock that freeing takes.
    std::unordered_multimap<std::uint64_t, ExprNode*> nodes;
  };

  static bool same(const ExprNode& a, const ExprNode& b) noexcept {
    return a.kind == b.kind && a.value == b.value && a.operands == b.operands &&
           a.coefficients == b.coefficients && a.name == b.name &&
           (a.kind != ExprKind::Symbol ||
            (a.lower == b.lower && a.upper == b.upper && a.divisor == b.divisor));
  }

  Shard& shard_of(std::uint64_t hash) noexcept { return shards_[hash >> 59]; }

  void forget(const ExprNode* node) noexcept {
    Shard& shard = shard_of(node->hash);
    const std::lock_guard lock(shard.mutex);
    const auto [first, last] = shard.nodes.equal_range(node->hash);
    for (auto it = first; it != last; ++it)
      if (it->second == node) {
        shard.nodes.erase(it);
        return;
      }
  }

  /// Frees a node that nobody owns. Its operands are freed one after the other, never one inside
  /// the other, however deep they nest.
  static void release(ExprNode* node) noexcept {
    static thread_local std::vector<Expr>* waiting = nullptr;
    instance().forget(node);
    std::vector<Expr> operands = std::move(node->operands);
    delete node;
    if (operands.empty())
      return;
    if (waiting != nullptr) {
      std::move(operands.begin(), operands.end(), std::back_inserter(*waiting));
      return;
    }
    waiting = &operands;
    while (!operands.empty()) {
      const Expr next = std::move(operands.back());
      operands.pop_back();
    }
    waiting = nullptr;
  }

  std::array<Shard, 32> shards_;
};

std::uint64_t hash_of(const ExprNode& node) {
  std::array<std::uint64_t, 24> few;
  std::vector<std::uint64_t> many;
  const std::size_t count = 6 + node.operands.size() + node.coefficients.size();
  if (count > few.size())
    many.resize(count);
  std::uint64_t* const words = many.empty() ? few.data() : many.data();
  std::size_t used = 0;
  words[used++] = static_cast<std::uint64_t>(node.kind) | node.operands.size() << 8;
  words[used++] = static_cast<std::uint64_t>(node.value);
  if (node.kind == ExprKind::Symbol) {
    words[used++] = XXH3_64bits(node.name.data(), node.name.size());
    words[used++] = static_cast<std::uint64_t>(node.lower);
    words[used++] = static_cast<std::uint64_t>(node.upper);
    words[used++] = static_cast<std::uint64_t>(node.divisor);
  }
  for (const Expr& operand : node.operands)
    words[used++] = operand.hash();
  for (const std::int64_t coefficient : node.coefficients)
    words[used++] = static_cast<std::uint64_t>(coefficient);
  return XXH3_64bits(words, used * sizeof(std::uint64_t));
}

Expr registered(ExprNode&& node) {
  node.hash = hash_of(node);
  return Expr(Registry::instance().intern(std::move(node)));
}

/// An atom; when its bounds leave one value only, that value.
Expr registered_atom(ExprNode&& node) {
  if (node.lower == node.upper && node.lower != kNoLower && node.upper != kNoUpper)
    return make_constant(node.lower);
  return registered(std::move(node));
}

ExprNode constant_node(std::int64_t value) {
  ExprNode node;
  node.kind = ExprKind::Constant;
  node.value = node.lower = node.upper = value;
  node.divisor = common_divisor(value, 0);
  return node;
}

/// Owners of nodes that never go.
class Kept {
public:
  const ExprNode* keep(Expr e) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(e));
    return &kept_.back().node();
  }

private:
  std::mutex mutex_;
  std::vector<Expr> kept_;
};

/// What a maker may promise of one: an empty range (a box without points) becomes the range of one
/// value.
void set_range(ExprNode& node, Range range) noexcept {
  node.lower = range.lower;
  node.upper = std::max(range.lower, range.upper);
}

} // namespace

bool before(const Expr& a, const Expr& b) noexcept {
  if (a == b)
    return false;
  const auto x = atoms_of(a), y = atoms_of(b);
  if (x.size() != y.size())
    return x.size() > y.size();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (const int order = compare_atoms(x[i], y[i]); order != 0)
      return order < 0;
  return false;
}

namespace {

// Constants as small as the usual sizes are made at their first use and live forever, so that
// expressions of them count no owners: to copy a shape is to copy its pointers.
constexpr std::int64_t kFirstSmall = -64, kLastSmall = (std::int64_t{1} << 14) - 1;
constinit std::array<std::atomic<const ExprNode*>, kLastSmall - kFirstSmall + 1> small_constants{};

const ExprNode* first_small_constant(std::int64_t value) {
  static auto* const owned = new Kept;
  const ExprNode* const node = owned->keep(registered(constant_node(value)));
  small_constants[static_cast<std::size_t>(value - kFirstSmall)].store(node,
                                                                       std::memory_order_release);
  return node;
}

} // namespace

Expr make_constant(std::int64_t value) {
  if (value < kFirstSmall || value > kLastSmall)
    return registered(constant_node(value));
  const ExprNode* node = small_constants[static_cast<std::size_t>(value - kFirstSmall)].load(
      std::memory_order_acquire);
  if (node == nullptr)
    node = first_small_constant(value);
  return Expr(std::shared_ptr<const ExprNode>(std::shared_ptr<void>(), node));
}

Expr make_symbol(const std::string& name, std::int64_t lo, std::int64_t hi, std::int64_t divisor) {
  ExprNode node;
  node.kind = ExprKind::Symbol;
  node.name = name;
  set_range(node, {lo, hi});
  node.divisor = divisor;
  return registered_atom(std::move(node));
}

Expr make_axis(int number, const Expr& extent) {
  ExprNode node;
  node.kind = ExprKind::Axis;
  node.value = number;
  node.operands = {extent};
  set_range(node, {0, extent.upper() == kNoUpper ? kNoUpper
                                                 : std::max<std::int64_t>(extent.upper(), 1) - 1});
  node.divisor = 1;
  return registered_atom(std::move(node));
}

Expr make_binary(ExprKind kind, const Expr& a, const Expr& b) {
  ExprNode node;
  node.kind = kind;
  node.operands = {a, b};
  switch (kind) {
  case ExprKind::FloorDiv: {
    const auto constant = b.constant();
    set_range(node, quotient_of(range_of(a), {std::max<std::int64_t>(b.lower(), 1), b.upper()}));
    node.divisor = constant && a.divisor() % *constant == 0
                       ? std::max<std::int64_t>(a.divisor() / *constant, 1)
                       : 1;
    break;
  }
  case ExprKind::FloorMod:
    set_range(node, {0, b.upper() == kNoUpper ? kNoUpper : b.upper() - 1});
    if (a.lower() >= 0)
      node.upper = std::min(node.upper, a.upper());
    node.divisor = common_divisor(a.divisor(), b.divisor());
    break;
  case ExprKind::Min:
    set_range(node, {std::min(a.lower(), b.lower()), std::min(a.upper(), b.upper())});
    node.divisor = common_divisor(a.divisor(), b.divisor());
    break;
  default:
    ensure(kind == ExprKind::Max, "make_binary of kind {}", static_cast<int>(kind));
    set_range(node, {std::max(a.lower(), b.lower()), std::max(a.upper(), b.upper())});
    node.divisor = common_divisor(a.divisor(), b.divisor());
  }
  return registered_atom(std::move(node));
}

Expr make_product(std::vector<Expr> atoms) {
  ExprNode node;
  node.kind = ExprKind::Product;
  Range range{1, 1};
  node.divisor = 1;
  for (const Expr& atom : atoms) {
    range = product_of(range, range_of(atom));
    node.divisor = product_divisor(node.divisor, atom.divisor());
  }
  set_range(node, range);
  node.operands = std::move(atoms);
  return registered(std::move(node));
}

namespace {

/// Divides a sum that takes off remainders: c * (x mod n) is c * x but for a multiple of c * n, so
/// that 50257 * i + 8 * j - (50257 * i) mod 8 is a multiple of 8.
std::int64_t divisor_by_remainders(std::int64_t constant, std::span<const Expr> monomials,
                                   std::span<const std::int64_t> coefficients) {
  std::int64_t divisor = 0;
  std::vector<std::pair<Expr, std::int64_t>> terms;
  bool exact = true;
  auto add = [&](const Expr& monomial, std::int64_t c) {
    auto at = std::find_if(terms.begin(), terms.end(),
                           [&](const auto& t) { return t.first == monomial; });
    if (at == terms.end())
      terms.emplace_back(monomial, c);
    else
      exact = exact && !__builtin_add_overflow(at->second, c, &at->second);
  };
  auto scaled = [&](std::int64_t a, std::int64_t b) {
    std::int64_t product = 0;
    exact = exact && !__builtin_mul_overflow(a, b, &product);
    return product;
  };
  bool found = false;
  for (std::size_t i = 0; i < monomials.size(); ++i) {
    const ExprNode& node = monomials[i].node();
    const std::int64_t c = coefficients[i];
    if (node.kind != ExprKind::FloorMod || node.operands[1].node().kind != ExprKind::Constant) {
      add(monomials[i], c);
      continue;
    }
    found = true;
    divisor = common_divisor(divisor, scaled(c, node.operands[1].node().value));
    const ExprNode& x = node.operands[0].node();
    if (x.kind != ExprKind::Sum) {
      add(node.operands[0], c);
      continue;
    }
    exact = exact && !__builtin_add_overflow(constant, scaled(c, x.value), &constant);
    for (std::size_t t = 0; t < x.operands.size(); ++t)
      add(x.operands[t], scaled(c, x.coefficients[t]));
  }
  if (!found)
    return 1;
  divisor = common_divisor(divisor, constant);
  for (const auto& [monomial, c] : terms)
    if (c != 0)
      divisor = common_divisor(divisor, product_divisor(monomial.divisor(), c));
  return exact ? divisor : 1;
}

} // namespace

Expr make_sum(std::int64_t constant, std::vector<Expr> monomials,
              std::vector<std::int64_t> coefficients) {
  ExprNode node;
  node.kind = ExprKind::Sum;
  node.value = constant;
  Range range{constant, constant};
  node.divisor = common_divisor(constant, 0);
  for (std::size_t i = 0; i < monomials.size(); ++i) {
    const std::int64_t c = coefficients[i];
    range = sum_of(range, product_of(range_of(monomials[i]), {c, c}));
    node.divisor = common_divisor(node.divisor, product_divisor(monomials[i].divisor(), c));
  }
  node.divisor = std::max(node.divisor, divisor_by_remainders(constant, monomials, coefficients));
  set_range(node, range);
  node.operands = std::move(monomials);
  node.coefficients = std::move(coefficients);
  return registered(std::move(node));
}

} // namespace egret::expr_detail
