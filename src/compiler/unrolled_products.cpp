#include "compiler/unrolled_products.h"

#include "compiler/additions.h"
#include "compiler/unrolled_factors.h"
#include "compiler/views.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// Of products that are joined: at the least, and terms of one at the most. A larger product takes
/// longer than its launch, and keeps what follows it in its kernel.
constexpr std::size_t kFewestProducts = 4;
constexpr std::int64_t kMostTerms = 1 << 24;
/// Values that one stack has at the most: the kernel of a stack reads them all by instructions of
/// their own, and stacks of as many share one code.
constexpr std::size_t kMostStacked = 64;

/// Values of the steps, along an axis of the steps.
struct Together {
  bool are_slices = false; ///< of one value, neighbours from `first` on
  const UnrolledFactor* first = nullptr;
  std::size_t stack = 0; ///< otherwise: elements of a stack from `offset` on
  std::int64_t offset = 0, count = 0;
};

/// A sum of products, or of a value itself.
struct Term {
  NodeId sum = 0;
  std::vector<UnrolledFactor> factors; ///< two of a product, else one
};

/// Products by one factor.
struct ByOneFactor {
  int side = 0;            ///< of the factors that differ
  std::vector<Term> terms; ///< in the order of their elements
  std::int64_t begin = 0;  ///< index of the first element
  Together factors;
  std::optional<NodeId> made; ///< the joined product
  std::int64_t element_of(std::size_t term) const {
    const UnrolledFactor& f = terms[term].factors[static_cast<std::size_t>(side)];
    return factors.are_slices ? f.index - begin : static_cast<std::int64_t>(term);
  }
};

/// Sums that are added up.
struct AddedUp {
  std::vector<Term> terms;
  std::vector<Together> factors;
};
/// A sum of two values and more, of which some are joined.
struct Addition {
  std::vector<NodeId> others;
  std::vector<AddedUp> joined;
};

class Joiner {
public:
  explicit Joiner(const Graph& graph)
      : graph_(graph), facts_(graph), sums_(graph), to_(graph.size(), ir::kNoNode) {}

  Graph run(bool by_one_factor) {
    find_sums_by_one_factor(true);
    find_additions();
    if (by_one_factor)
      find_sums_by_one_factor(false);
    else
      by_sum_.clear();
    if (by_sum_.empty() && additions_.empty())
      return graph_;
    made_.resize(stacks_.size(), ir::kNoNode);
    for (const NodeId id : graph_.inputs()) // in their slots
      to_[id] = out_.add(Op::Input, {}, graph_[id].attrs);
    for (const NodeId id : graph_.outputs)
      out_.outputs.push_back(copied(id));
    return ir::without_dead_code(out_);
  }

private:
  // --- Terms

  std::optional<Term> term_of(NodeId sum) const {
    const Node& node = graph_[sum];
    if (node.op != Op::ReduceSum || !is_float(node.dtype))
      return std::nullopt;
    const Node& inner = graph_[node.inputs[0]];
    const Expr terms = element_count(inner.shape);
    if (!terms.is_constant() || terms.value() > kMostTerms || terms.value() < 1)
      return std::nullopt;
    Term term{sum, {}};
    if (facts_.product_of(sum) == node.inputs[0])
      for (const NodeId factor : inner.inputs)
        term.factors.push_back(unrolled_factor(graph_, factor));
    else
      term.factors.push_back(unrolled_factor(graph_, node.inputs[0]));
    return term;
  }

  std::string form_of_sum(NodeId sum) const {
    const Node &node = graph_[sum], &inner = graph_[node.inputs[0]];
    return fmt::format("{} {} axes {}", name_of(node.dtype), name_of(inner.dtype),
                       fmt::join(node.attrs.axes, " "));
  }

  /// What a loop's steps do not all have alike: no constants.
  bool is_of_a_step(const UnrolledFactor& factor) const {
    return info_of(graph_[factor.root].op).cls != OpClass::Source;
  }

  // --- Values along an axis of the steps

  /// Whether sorting by index makes them slices of one value; with gaps, where those are permitted.
  static bool sort_slices(std::vector<Term>& terms, std::size_t side, bool gaps) {
    const UnrolledFactor one = terms[0].factors[side];
    for (const Term& term : terms) {
      const UnrolledFactor& f = term.factors[side];
      if (!f.is_slice || f.whole != one.whole || f.axis != one.axis)
        return false;
    }
    std::sort(terms.begin(), terms.end(), [&](const Term& a, const Term& b) {
      return a.factors[side].index < b.factors[side].index;
    });
    const std::int64_t all =
        terms.back().factors[side].index + 1 - terms.front().factors[side].index;
    for (std::size_t i = 1; i < terms.size(); ++i)
      if (terms[i].factors[side].index == terms[i - 1].factors[side].index)
        return false;
    return all <= static_cast<std::int64_t>(gaps ? 2 * terms.size() : terms.size());
  }

  static std::vector<NodeId> roots_of(const std::vector<Term>& terms, std::size_t side) {
    std::vector<NodeId> roots;
    for (const Term& term : terms)
      roots.push_back(term.factors[side].root);
    return roots;
  }

  /// Sorts as stacks have them that there are already, if these have them all.
  bool sort_as_stacked(std::vector<Term>& terms, std::size_t side) const {
    if (!std::all_of(terms.begin(), terms.end(),
                     [&](const Term& term) { return places_.contains(term.factors[side].root); }))
      return false;
    std::sort(terms.begin(), terms.end(), [&](const Term& a, const Term& b) {
      return places_.at(a.factors[side].root) < places_.at(b.factors[side].root);
    });
    return true;
  }

  /// Sorted terms by stack of their factors: such as there are, or of as many as one may have.
  std::vector<std::vector<Term>> by_stack(std::vector<Term> terms, std::size_t side) const {
    const auto stack = [&](const Term& term) -> std::optional<std::size_t> {
      const auto it = places_.find(term.factors[side].root);
      return it == places_.end() ? std::nullopt : std::optional(it->second.first);
    };
    std::vector<std::vector<Term>> parts;
    for (Term& term : terms) {
      if (parts.empty() || parts.back().size() == kMostStacked ||
          stack(parts.back().back()) != stack(term))
        parts.emplace_back();
      parts.back().push_back(std::move(term));
    }
    return parts;
  }

  Together stacked(const std::vector<NodeId>& roots) {
    Together together;
    together.count = static_cast<std::int64_t>(roots.size());
    for (std::size_t s = 0; s < stacks_.size(); ++s)
      if (const auto it =
              std::search(stacks_[s].begin(), stacks_[s].end(), roots.begin(), roots.end());
          it != stacks_[s].end()) {
        together.stack = s;
        together.offset = it - stacks_[s].begin();
        return together;
      }
    together.stack = stacks_.size();
    for (std::size_t i = 0; i < roots.size(); ++i)
      places_.try_emplace(roots[i], stacks_.size(), i);
    stacks_.push_back(roots);
    return together;
  }

  NodeId with_steps_in_front(const Together& together, const UnrolledFactor& form) {
    if (together.are_slices)
      return moved_behind_front(out_, graph_, form,
                                slices_in_front(out_, graph_, *together.first,
                                                to_[together.first->whole], together.count));
    NodeId& stack = made_[together.stack];
    if (stack == ir::kNoNode) {
      std::vector<NodeId> roots;
      for (const NodeId id : stacks_[together.stack])
        roots.push_back(to_[id]);
      stack = stack_of(out_, roots);
    }
    const Shape all = out_[stack].shape;
    std::vector<Expr> begin(all.size(), Expr(0)), end(all.begin(), all.end());
    begin[0] = Expr(together.offset);
    end[0] = Expr(together.offset + together.count);
    return moved_behind_front(out_, graph_, form, out_.shrink(stack, begin, end));
  }

  void add_needed(const Together& together, std::vector<NodeId>& needed) const {
    if (together.are_slices)
      needed.push_back(together.first->whole);
    else
      needed.insert(needed.end(), stacks_[together.stack].begin(), stacks_[together.stack].end());
  }

  // --- Products by one factor

  void find_sums_by_one_factor(bool of_slices) {
    std::map<std::string, std::vector<Term>> alike[2];
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (facts_.product_of(id) == ir::kNoNode || by_sum_.contains(id) || added_.contains(id))
        continue;
      const std::optional<Term> term = term_of(id);
      if (!term || term->factors.size() != 2)
        continue;
      for (const int side : {0, 1}) {
        const UnrolledFactor& f = term->factors[static_cast<std::size_t>(side)];
        if (of_slices ? !f.is_slice : !is_of_a_step(f))
          continue;
        const NodeId other =
            graph_[graph_[id].inputs[0]].inputs[static_cast<std::size_t>(1 - side)];
        std::string text = fmt::format("{} by {}: {}", form_of_sum(id), other, form_of(graph_, f));
        if (of_slices)
          text += fmt::format("; axis {} of {}", f.axis, f.whole);
        alike[side][text].push_back(*term);
        if (of_slices)
          break;
      }
    }
    for (const int side : {0, 1})
      for (auto& [text, terms] : alike[side])
        if (terms.size() >= kFewestProducts)
          of_slices ? join_slices(side, std::move(terms)) : join_steps(side, std::move(terms));
  }

  void join_slices(int side, std::vector<Term> terms) {
    if (!sort_slices(terms, static_cast<std::size_t>(side), true) || !follow_each_other(terms))
      return;
    add_by_one_factor(side, std::move(terms), true);
  }

  void join_steps(int side, std::vector<Term> terms) {
    const auto s = static_cast<std::size_t>(side);
    std::erase_if(terms, [&](const Term& t) { return by_sum_.contains(t.sum); });
    if (!sort_as_stacked(terms, s))
      std::sort(terms.begin(), terms.end(), [&](const Term& a, const Term& b) {
        return a.factors[s].root < b.factors[s].root;
      });
    std::set<NodeId> roots;
    for (const Term& term : terms)
      roots.insert(term.factors[s].root);
    if (terms.size() < kFewestProducts || roots.size() != terms.size() || !are_of_steps(roots) ||
        reads_its_own(terms, roots))
      return;
    for (std::vector<Term>& part : by_stack(std::move(terms), s))
      if (part.size() >= kFewestProducts)
        add_by_one_factor(side, std::move(part), false);
  }

  void add_by_one_factor(int side, std::vector<Term> terms, bool are_slices) {
    const auto s = static_cast<std::size_t>(side);
    ByOneFactor& group = groups_.emplace_back();
    group.side = side;
    group.terms = std::move(terms);
    if (are_slices) {
      const UnrolledFactor &first = group.terms.front().factors[s],
                           &last = group.terms.back().factors[s];
      group.begin = first.index;
      group.factors = {true, &first, 0, 0, last.index + 1 - first.index};
    } else {
      group.factors = stacked(roots_of(group.terms, s));
      for (const Term& term : group.terms)
        waits_.emplace(term.factors[s].root, &group);
    }
    for (std::size_t t = 0; t < group.terms.size(); ++t)
      by_sum_.emplace(group.terms[t].sum, std::pair(&group, t));
  }

  /// Whether a root depends on one of the sums, joined as others are: they would wait for
  /// themselves.
  bool reads_its_own(const std::vector<Term>& terms, const std::set<NodeId>& roots) const {
    std::vector<bool> seen(graph_.size(), false);
    std::set<const ByOneFactor*> through;
    std::vector<NodeId> open;
    const auto visit = [&](NodeId id) {
      if (!seen[id]) {
        seen[id] = true;
        open.push_back(id);
      }
    };
    for (const Term& term : terms)
      visit(term.sum);
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      if (roots.contains(id))
        return true;
      for (const NodeId user : sums_.users(id))
        visit(user);
      for (auto [it, end] = waits_.equal_range(id); it != end; ++it)
        if (through.insert(it->second).second)
          for (const Term& term : it->second->terms)
            visit(term.sum);
    }
    return false;
  }

  /// Whether steps make the values one after the other: most have operations before them of
  /// another number than the others have, on the longest way to them.
  bool are_of_steps(const std::set<NodeId>& roots) {
    if (levels_.empty())
      for (NodeId id = 0; id < graph_.size(); ++id) {
        int level = 0;
        for (const NodeId input : graph_[id].inputs)
          level = std::max(level, levels_[input]);
        levels_.push_back(level + (is_movement(graph_[id].op) ? 0 : 1));
      }
    std::set<int> levels;
    for (const NodeId root : roots)
      levels.insert(levels_[root]);
    return 2 * levels.size() > roots.size();
  }

  /// Whether what reads the last one, or the first one, depends on the other.
  bool follow_each_other(const std::vector<Term>& all) const {
    return reads_what_follows(all.back().sum, all.front().sum) ||
           reads_what_follows(all.front().sum, all.back().sum);
  }
  bool reads_what_follows(NodeId read, NodeId before) const {
    std::vector<bool> follows(graph_.size(), false), reads(graph_.size(), false);
    follows[before] = reads[read] = true;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_[id];
      const auto any = [&](const std::vector<bool>& of) {
        return std::any_of(node.inputs.begin(), node.inputs.end(),
                           [&](NodeId i) -> bool { return of[i]; });
      };
      follows[id] = follows[id] || any(follows);
      const bool through = is_elementwise(node.op) ||
                           (info_of(node.op).cls == OpClass::Movement && node.op != Op::Pad);
      reads[id] = reads[id] || (through && any(reads));
      if (follows[id] && reads[id] && is_elementwise(node.op))
        return true;
    }
    return false;
  }

  NodeId made_by(ByOneFactor& group) {
    if (!group.made) {
      const auto s = static_cast<std::size_t>(group.side);
      const Term& one = group.terms.front();
      const Node &sum = graph_[one.sum], &product = graph_[sum.inputs[0]];
      const NodeId moved = with_steps_in_front(group.factors, one.factors[s]),
                   other = to_[product.inputs[1 - s]];
      const NodeId repeated = out_.expand(out_.reshape(other, with_front(Expr(1), product.shape)),
                                          with_front(Expr(group.factors.count), product.shape));
      group.made = sum_of(s == 0 ? std::vector{moved, repeated} : std::vector{repeated, moved},
                          one.sum, false);
    }
    return *group.made;
  }

  /// The sum of products of factors with an axis in front, over that axis too if `over_steps`.
  NodeId sum_of(const std::vector<NodeId>& factors, NodeId like, bool over_steps) {
    const Node& sum = graph_[like];
    const NodeId terms =
        factors.size() == 1 ? factors[0] : out_.add(Op::Mul, factors, graph_[sum.inputs[0]].attrs);
    ir::Attrs attrs = sum.attrs;
    for (std::int64_t& a : attrs.axes)
      ++a;
    if (over_steps)
      attrs.axes.insert(attrs.axes.begin(), 0);
    return out_.add(Op::ReduceSum, std::span(&terms, 1), attrs);
  }

  // --- Sums that are added up

  void find_additions() {
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (sums_.is_last(id))
        find_added(id);
  }

  void find_added(NodeId id) {
    const std::vector<NodeId> leaves = sums_.terms(id);
    if (leaves.size() < kFewestProducts)
      return;
    std::map<std::string, std::vector<Term>> alike;
    for (const NodeId leaf : leaves)
      if (sums_.users(leaf).size() == 1 && !sums_.is_output(leaf) && !by_sum_.contains(leaf))
        if (std::optional<Term> term = term_of(leaf);
            term && std::all_of(term->factors.begin(), term->factors.end(),
                                [&](const UnrolledFactor& f) { return is_of_a_step(f); })) {
          std::string text = form_of_sum(leaf);
          for (const UnrolledFactor& f : term->factors)
            text += " | " + form_of(graph_, f);
          alike[text].push_back(std::move(*term));
        }
    Addition addition;
    std::set<NodeId> joined;
    for (auto& [text, terms] : alike)
      for (AddedUp& all : added_up(std::move(terms))) {
        for (const Term& term : all.terms)
          joined.insert(term.sum);
        addition.joined.push_back(std::move(all));
      }
    if (addition.joined.empty())
      return;
    std::copy_if(leaves.begin(), leaves.end(), std::back_inserter(addition.others),
                 [&](NodeId leaf) { return !joined.contains(leaf); });
    added_.insert(joined.begin(), joined.end());
    additions_.emplace(id, std::move(addition));
  }

  std::vector<AddedUp> added_up(std::vector<Term> terms) {
    if (terms.size() < kFewestProducts)
      return {};
    const std::size_t sides = terms[0].factors.size();
    for (std::size_t s = 0; s < sides; ++s) // a common factor is another law
      for (std::size_t i = 1; i < terms.size(); ++i)
        if (terms[i].factors[s].root == terms[0].factors[s].root)
          return {};
    bool sorted = false;
    for (std::size_t s = 0; s < sides && !sorted; ++s)
      sorted = sort_slices(terms, s, false);
    for (std::size_t s = 0; s < sides && !sorted; ++s)
      sorted = sort_as_stacked(terms, s);
    if (!sorted)
      std::sort(terms.begin(), terms.end(),
                [](const Term& a, const Term& b) { return a.factors[0].root < b.factors[0].root; });
    bool all_slices = true;
    for (std::size_t s = 0; s < sides; ++s)
      all_slices = all_slices && are_slices(terms, s);
    std::vector<std::vector<Term>> parts;
    if (all_slices)
      parts.push_back(std::move(terms));
    else
      parts = by_stack(std::move(terms), 0);
    std::vector<AddedUp> added;
    for (std::vector<Term>& part : parts) {
      if (part.size() < kFewestProducts)
        continue;
      AddedUp& all = added.emplace_back(AddedUp{std::move(part), {}});
      for (std::size_t s = 0; s < sides; ++s)
        all.factors.push_back(together(all.terms, s));
    }
    return added;
  }

  /// Neighbouring ones, in the order that they have.
  static bool are_slices(const std::vector<Term>& terms, std::size_t side) {
    const UnrolledFactor& first = terms[0].factors[side];
    for (std::size_t i = 0; i < terms.size(); ++i) {
      const UnrolledFactor& f = terms[i].factors[side];
      if (!f.is_slice || f.whole != first.whole || f.axis != first.axis ||
          f.index != first.index + static_cast<std::int64_t>(i))
        return false;
    }
    return true;
  }

  /// In the order that they have.
  Together together(const std::vector<Term>& terms, std::size_t side) {
    if (are_slices(terms, side))
      return {true, &terms[0].factors[side], 0, 0, static_cast<std::int64_t>(terms.size())};
    return stacked(roots_of(terms, side));
  }

  NodeId made_of(const Addition& addition) {
    std::optional<NodeId> all;
    const auto add = [&](NodeId id) { all = all ? out_.binary(Op::Add, *all, id) : id; };
    for (const AddedUp& joined : addition.joined) {
      std::vector<NodeId> factors;
      for (std::size_t s = 0; s < joined.factors.size(); ++s)
        factors.push_back(with_steps_in_front(joined.factors[s], joined.terms.front().factors[s]));
      add(sum_of(factors, joined.terms.front().sum, true));
    }
    for (const NodeId id : addition.others)
      add(to_[id]);
    return *all;
  }

  // --- The new graph

  std::vector<NodeId> needed_by(NodeId id) const {
    std::vector<NodeId> needed;
    if (const auto it = by_sum_.find(id); it != by_sum_.end()) {
      const ByOneFactor& group = *it->second.first;
      const Node& product = graph_[graph_[group.terms.front().sum].inputs[0]];
      needed.push_back(product.inputs[static_cast<std::size_t>(1 - group.side)]);
      add_needed(group.factors, needed);
    } else if (const auto at = additions_.find(id); at != additions_.end()) {
      needed = at->second.others;
      for (const AddedUp& joined : at->second.joined)
        for (const Together& together : joined.factors)
          add_needed(together, needed);
    } else {
      needed = graph_[id].inputs;
    }
    return needed;
  }

  NodeId made(NodeId id) {
    if (const auto it = by_sum_.find(id); it != by_sum_.end()) {
      const auto [group, term] = it->second;
      return element_of(out_, made_by(*group), group->element_of(term), graph_[id].shape);
    }
    if (const auto it = additions_.find(id); it != additions_.end())
      return made_of(it->second);
    std::vector<NodeId> inputs;
    for (const NodeId i : graph_[id].inputs)
      inputs.push_back(to_[i]);
    return out_.add(graph_[id].op, inputs, graph_[id].attrs);
  }

  /// Depth first, as the graph's order is not that of the joined one.
  NodeId copied(NodeId id) {
    struct Open {
      NodeId id;
      std::vector<NodeId> needed;
      std::size_t next = 0;
    };
    std::vector<Open> open;
    if (to_[id] == ir::kNoNode)
      open.push_back({id, needed_by(id)});
    while (!open.empty()) {
      Open& top = open.back();
      while (top.next < top.needed.size() && to_[top.needed[top.next]] != ir::kNoNode)
        ++top.next;
      if (top.next < top.needed.size()) {
        const NodeId next = top.needed[top.next];
        open.push_back({next, needed_by(next)});
        continue;
      }
      to_[top.id] = made(top.id);
      open.pop_back();
    }
    return to_[id];
  }

  const Graph& graph_;
  GraphFacts facts_;
  Additions sums_;
  Graph out_;
  std::vector<NodeId> to_;
  std::deque<ByOneFactor> groups_; // in place: others point to them
  std::map<NodeId, std::pair<ByOneFactor*, std::size_t>> by_sum_;
  std::multimap<NodeId, const ByOneFactor*> waits_;              ///< by root: its sums
  std::vector<int> levels_;                                      ///< by node: are_of_steps()
  std::map<NodeId, Addition> additions_;                         ///< by the last addition
  std::set<NodeId> added_;                                       ///< sums that are part of one
  std::vector<std::vector<NodeId>> stacks_;                      ///< roots
  std::map<NodeId, std::pair<std::size_t, std::size_t>> places_; ///< by root: first stack, in it
  std::vector<NodeId> made_;                                     ///< by stack
};

} // namespace

Graph join_unrolled_products(const Graph& graph, bool by_one_factor) {
  return Joiner(graph).run(by_one_factor);
}

} // namespace egret::compiler
