#include "loops/space.h"

#include "kernel/families.h"
#include "loops/facts.h"
#include "loops/sizes.h"
#include "loops/terms.h"
#include "support/fail.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

namespace egret::loops {

namespace tree = kernel::loops;
using kernel::Region;
using kernel::Target;

namespace {

using Clock = std::chrono::steady_clock;

/// Shares of the time that phases may take, and trees that are looked at closely for each that is
/// wanted.
constexpr double kStructure = 0.2, kSizes = 0.55, kDrawn = 0.65, kTried = 0.75, kProofs = 0.3;
constexpr std::size_t kCloser = 4;
/// Of what is shown in a report.
constexpr std::size_t kReasons = 3;

/// Loops that are shared out among cores, one inside of another: no program deals work out twice.
bool deals_twice(const tree::Tree& t, bool inside = false) {
  const bool core =
      t.kind == tree::Kind::For && (t.bind == kernel::Bind::Core || t.bind == kernel::Bind::Grid);
  return (core && inside) || (t.first && deals_twice(*t.first, inside)) ||
         (t.rest && deals_twice(*t.rest, inside || core));
}

/// Of the best tree's estimate, what one may take at the most; and up to which so many trees of
/// each way are among those that are proposed.
constexpr double kHopeless = 4, kUnsure = 2.5;
constexpr std::size_t kOfEachWay = 2;

std::vector<const char*> allowed_of(const LoopOptions& options,
                                    std::initializer_list<const char*> rulesets) {
  std::vector<const char*> found;
  for (const char* ruleset : rulesets)
    if (allowed(options, ruleset))
      found.push_back(ruleset);
  return found;
}

std::vector<const char*> shrinking(const LoopOptions& options) {
  return allowed_of(options,
                    {"unbind", "unbind-sums", "merge", "fission", "roles", "roles-of-sums"});
}

class Search {
public:
  Search(const Region& region, const Target& target, const LoopOptions& options)
      : region_(region), target_(target), options_(options), estimator_(region, target) {}

  LoopSpace run() {
    LoopReport& report = space_.report;
    report.note = why_no_terms(region_);
    if (report.note.empty()) {
      plain_ = tree::plain_tree(region_);
      structure();
      sizes();
      drawn();
      propose();
    }
    std::ranges::stable_sort(report.rules, std::greater<>(), &LoopRule::fired);
    report.seconds = seconds();
    return std::move(space_);
  }

private:
  struct Found {
    TreePtr tree;
    double seconds = 0;
    std::string skeleton;
    Way way = Way::Plain;
  };

  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  bool late(double share) const { return seconds() >= share * options_.seconds; }

  /// Ways to share loops among stages, by rules over loops that have no sizes yet.
  void structure() {
    LoopTerms terms(region_, target_, options_);
    const std::vector<TreePtr> plain = with_fewer_stored(plain_);
    std::vector<egraph::Root> roots;
    for (const TreePtr& t : plain)
      roots.push_back(terms.add(*t));
    if (region_.stages.size() > 1) {
      const auto rulesets = allowed_of(options_, {"fuse", "order", "fission"});
      terms.run("structure", rulesets,
                {.seconds = kStructure * options_.seconds, .rows = options_.rows}, space_.report);
      terms.egraph().rebuild();
      std::vector<std::vector<TreePtr>> found;
      for (const egraph::Root& root : roots)
        if (found.empty() || !late(kSizes))
          found.push_back(cheapest(terms, root));
      for (std::size_t i = 0; i < 16; ++i) // the best of each first
        for (const auto& list : found)
          if (i < list.size())
            add_skeleton(list[i]);
    }
    for (const TreePtr& t : plain)
      add_skeleton(t);
    space_.report.nodes += terms.nodes();
  }

  /// The tree, and without maps that may be computed where they are read.
  std::vector<TreePtr> with_fewer_stored(const TreePtr& plain) const {
    std::vector<TreePtr> nests;
    std::vector<int> stages;
    for (TreePtr t = plain; t; t = t->kind == tree::Kind::Then ? t->rest : nullptr) {
      nests.push_back(t->kind == tree::Kind::Then ? t->first : t);
      const tree::Tree* body = nests.back().get();
      while (body->kind != tree::Kind::Body)
        body = body->rest.get();
      stages.push_back(body->stage);
    }
    std::vector<TreePtr> found{plain};
    TreePtr fewer;
    for (std::size_t i = nests.size(); i-- > 0;)
      if (!may_be_inline(region_, stages[i]))
        fewer = fewer ? tree::then(nests[i], std::move(fewer)) : nests[i];
    if (fewer && !tree::equal(*fewer, *plain))
      found.push_back(std::move(fewer));
    return found;
  }

  /// Trees with few loops, and others that share less.
  std::vector<TreePtr> cheapest(LoopTerms& terms, egraph::Root root) {
    egraph::EGraph& g = terms.egraph();
    std::vector<TreePtr> found;
    const egraph::FunctionId loop = g.function("For"), then = g.function("Then");
    // Loops cost; where one is shared, what is inside costs less. Sums that are shared cost a
    // little.
    for (const double shared : {0.1, 1.5}) {
      egraph::ExtractOptions extract;
      extract.kind = egraph::CostKind::Tree;
      extract.count = 8;
      extract.exact_steps = 2000;
      extract.cost = [&](egraph::FunctionId f, std::span<const egraph::Value>) {
        return f == loop ? 1.0 : f == then ? shared : 0.3;
      };
      for (const egraph::TermGraph& t : g.extract_best(std::span(&root, 1), extract))
        found.push_back(terms.tree_of(t));
      if (late(kSizes))
        break;
    }
    return found;
  }

  void add_skeleton(const TreePtr& t) {
    std::vector<Nest> nests = nests_of(region_, *t);
    std::string text = text_of(nests);
    for (const auto& [known, n] : skeletons_)
      if (known == text)
        return;
    if (skeletons_.size() <= options_.skeletons)
      skeletons_.emplace_back(std::move(text), std::pair(t, std::move(nests)));
  }

  /// Orders and sizes over each skeleton.
  void sizes() {
    // the most shared first: should time end, these are wanted most
    std::stable_sort(skeletons_.begin(), skeletons_.end(), [](const auto& a, const auto& b) {
      return a.second.second.size() < b.second.second.size();
    });
    for (const auto& [text, skeleton] : skeletons_) {
      if (late(kSizes) && !found_.empty())
        break;
      ++space_.report.skeletons;
      estimator_.set_bodies(*skeleton.first);
      SizesOptions sizes;
      sizes.reassociate = options_.reassociate;
      sizes.keep = 3 * std::max<std::size_t>(options_.trees, 8);
      sizes.stop = [&] { return late(kSizes); };
      sizes.most_points = options_.points;
      for (Sized& one :
           sizes_of(region_, target_, skeleton.second, estimator_, sizes, space_.report.points))
        consider(std::move(one.tree), text, one.way);
    }
  }

  /// A few trees from an e-graph of split and bound loops, which the roles may not think of.
  void drawn() {
    if (late(kSizes) || options_.draws == 0 || skeletons_.empty())
      return;
    LoopTerms terms(region_, target_, options_);
    const egraph::Root root = terms.add(*skeletons_[0].second.first);
    const double seconds = (kDrawn - kSizes) * options_.seconds;
    const auto grow = [&](std::initializer_list<const char*> rulesets, std::uint64_t rounds) {
      terms.run("drawn", allowed_of(options_, rulesets),
                {.seconds = seconds, .rows = options_.rows / 4}, space_.report, rounds);
    };
    grow({"split", "parts"}, 1);
    grow({"fission", "order"}, 2);
    grow({"unit", "near", "bind", "bind-sums"}, 1);
    terms.egraph().rebuild();
    space_.report.nodes += terms.nodes();
    for (const egraph::TermGraph& t :
         terms.egraph().sample(std::span(&root, 1), options_.draws, tree_seed(), 1.5))
      if (TreePtr drawn = terms.tree_of(t); !deals_twice(*drawn))
        consider(std::move(drawn), "drawn", Way::Drawn);
  }

  std::uint64_t tree_seed() const { return kernel::hash_of(region_); }

  void consider(TreePtr t, const std::string& skeleton, Way way) {
    if (!texts_.insert(tree::to_text(*t, region_)).second)
      return;
    const double seconds = estimator_.seconds(*t);
    ++space_.report.points;
    found_.push_back({std::move(t), seconds, skeleton, way});
  }

  void refuse(const Found& found, const std::string& why) {
    if (space_.report.refused.size() < kReasons)
      space_.report.refused.push_back(tree::to_text(*found.tree, region_) + ": " + why);
  }

  /// What a tree has in common with others that differ in sizes of pieces only.
  static void kind_of(const tree::Tree& t, std::string& text) {
    if (t.kind == tree::Kind::For && t.bind != kernel::Bind::Serial)
      text += fmt::format(
          "{}{}{} ", kernel::name_of(t.bind), t.axis,
          t.bind == kernel::Bind::Core || t.bind == kernel::Bind::Grid ? "" : t.extent.str());
    if (t.first)
      kind_of(*t.first, text);
    if (t.rest)
      kind_of(*t.rest, text);
  }

  /// What a GPU's generator cannot write is not known before it tries.
  std::string why_not_tried(const tree::Tree& t) const {
    std::string why = tree::why_not(region_, t);
    if (!why.empty() || target_.threads == 0)
      return why;
    kernel::Schedule schedule;
    schedule.generator = "loops";
    schedule.tree = tree::to_text(t, region_);
    return kernel::loops_generator().lower(region_, schedule, target_).reason;
  }

  /// The best trees that are legal and proved, no more than a few of one kind.
  void propose() {
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Found& a, const Found& b) { return a.seconds < b.seconds; });
    if (!found_.empty()) {
      std::map<Way, std::size_t> ways;
      const double unsure = kUnsure * found_[0].seconds;
      std::ranges::stable_partition(found_, [&](const Found& f) {
        return f.way != Way::Drawn && f.seconds <= unsure && ++ways[f.way] <= kOfEachWay;
      });
    }
    const std::size_t wanted = options_.trees == 0 ? found_.size() : options_.trees;
    std::vector<Found> legal, similar;
    std::map<std::string, std::size_t> kinds;
    for (Found& f : found_) {
      if (legal.size() == kCloser * wanted ||
          (!legal.empty() && f.seconds > kHopeless * legal[0].seconds) ||
          (legal.size() >= wanted && late(kTried)))
        break;
      if (std::string why = why_not_tried(*f.tree); !why.empty()) {
        ++space_.report.illegal;
        refuse(f, why);
        continue;
      }
      std::string kind = f.skeleton;
      kind_of(*f.tree, kind);
      if (++kinds[kind] > 2)
        similar.push_back(std::move(f));
      else
        legal.push_back(std::move(f));
    }
    for (std::size_t i = 0; i < similar.size() && legal.size() < kCloser * wanted; ++i)
      legal.push_back(std::move(similar[i]));
    for (std::size_t begin = 0; begin < legal.size() && space_.trees.size() < wanted;) {
      const std::size_t end = std::min(legal.size(), begin + std::max<std::size_t>(wanted, 8));
      std::vector<TreePtr> trees;
      for (std::size_t i = begin; i < end; ++i)
        trees.push_back(legal[i].tree);
      LoopOptions options = options_;
      options.seconds =
          std::max(0.01, std::min(kProofs * options_.seconds, options_.seconds - seconds()));
      const std::vector<bool> proved = prove(region_, target_, trees, options, space_.report);
      for (std::size_t i = begin; i < end; ++i)
        if (!proved[i - begin]) {
          ++space_.report.unproved;
          refuse(legal[i], "the rules do not bring it to the plain tree");
        } else if (space_.trees.size() < wanted)
          space_.trees.push_back({legal[i].tree, legal[i].seconds, legal[i].skeleton});
      begin = end;
      if (late(1))
        break;
    }
    std::ranges::stable_sort(space_.trees, {}, &LoopTree::seconds);
  }

  Clock::time_point begin_ = Clock::now();
  const Region& region_;
  const Target& target_;
  const LoopOptions& options_;
  Estimator estimator_;
  TreePtr plain_;
  std::vector<std::pair<std::string, std::pair<TreePtr, std::vector<Nest>>>> skeletons_;
  std::vector<Found> found_;
  std::set<std::string> texts_;
  LoopSpace space_;
};

/// The plain tree with the loops over results of each nest shared out: among cores the outermost;
/// on a GPU all, the innermost among threads.
TreePtr spread(const Region& region, const Target& target, const TreePtr& t, bool outermost) {
  using kernel::Bind;
  if (t->kind == tree::Kind::Then)
    return tree::then(spread(region, target, t->first, outermost),
                      spread(region, target, t->rest, outermost));
  if (t->kind != tree::Kind::For)
    return t;
  const bool innermost = t->rest->kind != tree::Kind::For;
  TreePtr rest = spread(region, target, t->rest, false);
  if (target.threads == 0)
    return outermost ? tree::loop(t->axis, t->extent, t->step, Bind::Core, std::move(rest)) : t;
  constexpr std::int64_t kThreads = 128;
  const auto n = t->extent.constant();
  if (!innermost)
    return tree::loop(t->axis, t->extent, t->step, Bind::Grid, std::move(rest));
  if (n && *n <= kThreads)
    return tree::loop(t->axis, t->extent, t->step, Bind::Lane, std::move(rest));
  return tree::loop(
      t->axis, ceildiv(region.axes[std::size_t(t->axis)].extent, Expr(kThreads)), kThreads,
      Bind::Grid,
      tree::loop(t->axis, Expr(kThreads), 1, Bind::Lane, tree::mask(t->axis, std::move(rest))));
}

/// Work of a quick search; the time is for what nobody expects.
LoopOptions few() {
  LoopOptions options;
  options.seconds = 3;
  options.rows = 4000;
  options.trees = 1;
  options.skeletons = 2;
  options.points = 1500;
  options.draws = 0;
  return options;
}

} // namespace

QuickTree quick_tree(const Region& region, const Target& target) {
  QuickTree found;
  found.report.note = why_no_terms(region);
  if (!found.report.note.empty())
    return found;
  found.plain_seconds =
      Estimator(region, target).seconds(*spread(region, target, tree::plain_tree(region), true));
  LoopSpace space = loop_space(region, target, few());
  found.report = std::move(space.report);
  if (!space.trees.empty()) {
    found.tree = space.trees[0].tree;
    found.seconds = space.trees[0].seconds;
  }
  return found;
}

LoopSpace loop_space(const Region& region, const Target& target, const LoopOptions& options) {
  return Search(region, target, options).run();
}

std::vector<bool> prove(const Region& region, const Target& target,
                        const std::vector<TreePtr>& trees, const LoopOptions& options,
                        LoopReport& report) {
  LoopTerms terms(region, target, options);
  const egraph::Root plain = terms.add(*tree::plain_tree(region));
  std::vector<egraph::Root> roots;
  for (const TreePtr& t : trees)
    roots.push_back(terms.add(*t));
  terms.run("proofs", shrinking(options), {.seconds = options.seconds, .rows = 4 * options.rows},
            report);
  terms.egraph().rebuild();
  report.nodes += terms.nodes();
  std::vector<bool> proved;
  for (const egraph::Root& root : roots)
    proved.push_back(terms.equal(plain, root));
  return proved;
}

std::string program_text(std::span<const Region* const> regions, const Target& target,
                         const LoopOptions& options) {
  std::string text(rules_text());
  text += options.rules;
  std::string rulesets;
  for (const char* ruleset : shrinking(options))
    rulesets += fmt::format("\n    (run {}) (saturate (run known))", ruleset);
  for (const Region* region : regions) {
    const LoopSpace space = loop_space(*region, target, options);
    text += fmt::format("\n; the region {}\n", region->name);
    if (!space.report.note.empty()) {
      text += fmt::format("; {}\n", space.report.note);
      continue;
    }
    text += "(push)\n" + facts_of(*region, target);
    text += fmt::format("; its plain loops\n(let $plain {})\n",
                        term_text(*tree::plain_tree(*region), *region));
    for (std::size_t i = 0; i < space.trees.size(); ++i)
      text += fmt::format("; predicted {:.3g} s: {}\n(let $tree{} {})\n", space.trees[i].seconds,
                          space.trees[i].skeleton, i, term_text(*space.trees[i].tree, *region));
    text += "(run-schedule (saturate (run known)) (repeat 100" + rulesets + "))\n";
    for (std::size_t i = 0; i < space.trees.size(); ++i)
      text += fmt::format("(check (= $plain $tree{}))\n", i);
    text += "(extract $plain)\n(print-size)\n(pop)\n";
  }
  return text;
}

} // namespace egret::loops
