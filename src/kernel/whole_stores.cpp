#include "kernel/whole_stores.h"

#include <algorithm>
#include <optional>

namespace egret::kernel {

namespace {

/// Elements from lane to lane, at the most.
constexpr std::int64_t kMostApart = 4;

/// A store of every `step`-th element from `base` on.
struct Apart {
  std::size_t place = 0; ///< in its block
  int lanes = 1;
  std::int64_t step = 1;
  Expr base;
};

std::optional<Apart> apart(const KernelProgram& program, const Block& block, std::size_t place) {
  const Store* store = get_if<Store>(block[place]);
  if (!store)
    return std::nullopt;
  Apart found{place, program.values[std::size_t(store->value)].lanes, 1, {}};
  if (found.lanes < 2)
    return std::nullopt;
  const auto step = coefficient_of(store->to.index, lane_variable(found.lanes));
  if (!step || !step->constant() || *step->constant() < 2 || *step->constant() > kMostApart)
    return std::nullopt;
  found.step = *step->constant();
  found.base = store->to.index - *step * lane_variable(found.lanes);
  return found;
}

/// The same condition on the element that lies so many behind.
Guard behind(const Guard& g, std::int64_t each, std::int64_t elements) {
  return {g.value + Expr(each * elements), g.lo, g.hi};
}
bool same(const Guard& a, const Guard& b) {
  return a.value == b.value && a.lo == b.lo && a.hi == b.hi;
}
bool holds_always(const Guard& g) {
  return (g.value - g.lo).lower() >= 0 && (g.hi - g.value).lower() >= 1;
}

/// The conditions of vectors that begin one element after another, as those of the row's elements:
/// of the first vector, a step of `each` an element. A vector may lack one that always holds for
/// it. Nothing where their conditions differ otherwise.
struct RowGuard {
  Guard first;
  std::int64_t each = 0;
};
std::optional<std::vector<RowGuard>> guards_of_row(const std::vector<const Store*>& stores,
                                                   int lanes) {
  const auto step = std::int64_t(stores.size());
  const auto most =
      std::max_element(stores.begin(), stores.end(), [](const Store* a, const Store* b) {
        return a->mask.size() < b->mask.size();
      });
  std::vector<RowGuard> guards;
  for (const Guard& g : (*most)->mask) {
    const auto slope = coefficient_of(g.value, lane_variable(lanes));
    if (!slope || !slope->constant() || *slope->constant() % step != 0)
      return std::nullopt;
    const std::int64_t each = *slope->constant() / step;
    guards.push_back({behind(g, each, stores.begin() - most), each});
  }
  for (std::size_t i = 0; i < stores.size(); ++i) {
    std::size_t found = 0;
    for (const RowGuard& row : guards) {
      const Guard own = behind(row.first, row.each, std::int64_t(i));
      const bool has = std::any_of(stores[i]->mask.begin(), stores[i]->mask.end(),
                                   [&](const Guard& g) { return same(g, own); });
      if (!has && !holds_always(own))
        return std::nullopt;
      found += has;
    }
    if (found != stores[i]->mask.size())
      return std::nullopt;
  }
  return guards;
}

/// The stores of one row, by where they begin, as contiguous ones; nothing if conditions differ.
std::optional<Block> contiguous(KernelProgram& program, const std::vector<const Store*>& stores,
                                const Apart& first) {
  const auto step = std::int64_t(stores.size());
  const int lanes = first.lanes;
  const auto guards = guards_of_row(stores, lanes);
  if (!guards)
    return std::nullopt;
  std::vector<std::vector<Guard>> masks(stores.size()); // by vector
  for (const RowGuard& row : *guards)
    for (std::int64_t v = 0; v < step; ++v) {
      const Expr lane = lane_variable(lanes),
                 vector = row.first.value - Expr(row.each * step) * lane;
      masks[std::size_t(v)].push_back(
          {vector + Expr(row.each) * (lane + Expr(v * lanes)), row.first.lo, row.first.hi});
    }
  const Type type = program.values[std::size_t(stores[0]->value)];
  Block made;
  for (std::int64_t v = 0; v < step; ++v) {
    ValueId whole = stores[0]->value;
    for (std::int64_t phase = 1; phase < step; ++phase) {
      // Elements of later phases are put in when their turn comes.
      inst::Shuffle shuffle{{whole, stores[std::size_t(phase)]->value}, {}};
      for (int l = 0; l < lanes; ++l) {
        const std::int64_t element = v * lanes + l, from = element % step, lane = element / step;
        shuffle.lanes_from.push_back(int(from == phase ? lanes + lane
                                         : phase == 1  ? lane
                                                       : std::int64_t(l)));
      }
      whole = ValueId(program.values.size());
      program.values.push_back(type);
      made.push_back(Let{whole, {type, std::move(shuffle)}});
    }
    Store store = *stores[0];
    store.to.index = first.base + lane_variable(lanes) + Expr(v * lanes);
    store.value = whole;
    store.mask = std::move(masks[std::size_t(v)]);
    made.push_back(std::move(store));
  }
  return made;
}

/// Whether nothing between two places of a block keeps a store of the first from going to the
/// second.
bool may_wait(const KernelProgram& program, const Block& block, std::size_t from, std::size_t to) {
  const int buffer = get_if<Store>(block[from])->to.buffer;
  const Expr& row = get_if<Store>(block[from])->to.index;
  const auto is_argument = [&](int b) {
    return program.buffers[std::size_t(b)].space == Space::Argument;
  };
  return std::all_of(block.begin() + std::ptrdiff_t(from) + 1, block.begin() + std::ptrdiff_t(to),
                     [&](const Stmt& s) {
                       if (const Store* store = get_if<Store>(s))
                         return store->to.buffer == buffer
                                    ? (store->to.index - row).is_constant()
                                    : is_argument(store->to.buffer) && is_argument(buffer);
                       const Let* let = get_if<Let>(s);
                       return get_if<Assign>(s) || (let && !get_if<inst::Load>(let->inst) &&
                                                    !get_if<Intrinsic>(let->inst));
                     });
}

void interleave_in(KernelProgram& program, Block& block) {
  std::vector<Apart> rows;
  for (std::size_t i = 0; i < block.size(); ++i)
    if (auto found = apart(program, block, i))
      rows.push_back(std::move(*found));
  std::vector<Block> instead(block.size());
  std::vector<bool> gone(block.size(), false);
  for (const Apart& first : rows) {
    const Store& begin = *get_if<Store>(block[first.place]);
    std::vector<const Store*> stores;
    std::size_t earliest = first.place, last = first.place;
    for (std::int64_t phase = 0; phase < first.step; ++phase)
      for (const Apart& other : rows) {
        const Store& store = *get_if<Store>(block[other.place]);
        if (gone[other.place] || other.step != first.step || other.lanes != first.lanes ||
            store.to.buffer != begin.to.buffer || store.policy != begin.policy ||
            !(program.values[std::size_t(store.value)] ==
              program.values[std::size_t(begin.value)]) ||
            !(other.base == first.base + Expr(phase)))
          continue;
        stores.push_back(&store);
        earliest = std::min(earliest, other.place);
        last = std::max(last, other.place);
        break;
      }
    if (std::int64_t(stores.size()) != first.step || !may_wait(program, block, earliest, last))
      continue;
    std::vector<std::size_t> places;
    for (const Apart& other : rows)
      if (std::find(stores.begin(), stores.end(), get_if<Store>(block[other.place])) !=
          stores.end())
        places.push_back(other.place);
    if (auto made = contiguous(program, stores, first)) {
      instead[last] = std::move(*made);
      for (std::size_t place : places)
        gone[place] = true;
    }
  }
  if (std::find(gone.begin(), gone.end(), true) == gone.end())
    return;
  Block all;
  for (std::size_t i = 0; i < block.size(); ++i) {
    for (Stmt& s : instead[i])
      all.push_back(std::move(s));
    if (!gone[i])
      all.push_back(std::move(block[i]));
  }
  block = std::move(all);
}

} // namespace

void interleave_stores(KernelProgram& program) {
  const auto go = [&](const auto& self, Block& block) -> void {
    for (Stmt& s : block)
      each_block(s, [&](Block& inner) { self(self, inner); });
    interleave_in(program, block);
  };
  go(go, program.body);
}

} // namespace egret::kernel
