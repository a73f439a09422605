#include "kernel/loops/tree.h"

#include "kernel/analysis.h"
#include "kernel/stored_stages.h"
#include "support/fail.h"

#include <charconv>

namespace egret::kernel::loops {

namespace {

/// The largest number that a tree's text may give: products of a few still fit.
constexpr std::int64_t kMostNumber = std::int64_t(1) << 40;

TreePtr make(Tree tree) {
  return std::make_shared<const Tree>(std::move(tree));
}

/// The number by which the axis's extent was divided, the loop's step first.
std::int64_t divisor_of(const Tree& loop, const Expr& extent) {
  constexpr std::int64_t kTried = 4096;
  if (loop.step >= 1 && loop.extent == ceildiv(extent, Expr(loop.step)))
    return loop.step;
  for (std::int64_t c = 1; c <= kTried; ++c)
    if (loop.extent == ceildiv(extent, Expr(c)))
      return c;
  ensure(false, "loop tree: {} iterations are no part of an axis of {}", loop.extent.str(),
         extent.str());
  return 1;
}

void write(const Tree& t, const Region& region, std::string& out) {
  auto open = [&](const char* name, std::int64_t number) {
    out += fmt::format("{}({}", name, number);
  };
  auto rest = [&] {
    out += ',';
    write(*t.rest, region, out);
    out += ')';
  };
  switch (t.kind) {
  case Kind::Body:
    open("body", t.stage);
    out += ')';
    break;
  case Kind::For: {
    const auto n = t.extent.constant();
    open("for", t.axis);
    out += n ? fmt::format(",{}", *n)
             : fmt::format(",ceil({})", divisor_of(t, region.axes.at(std::size_t(t.axis)).extent));
    out += fmt::format(",{},{}", t.step, name_of(t.bind));
    rest();
    break;
  }
  case Kind::Mask:
    open("mask", t.axis);
    rest();
    break;
  case Kind::Accumulate:
    open("acc", t.stage);
    if (t.step != 1)
      out += fmt::format(",{}", t.step);
    rest();
    break;
  case Kind::Prefetch:
    open("prefetch", t.axis);
    out += fmt::format(",{}", t.step);
    rest();
    break;
  case Kind::Near:
    open("near", t.operand);
    rest();
    break;
  case Kind::Then:
    out += "then(";
    write(*t.first, region, out);
    rest();
    break;
  case Kind::Collapse:
    open("collapse", t.step);
    out += fmt::format(",{}", t.extent.value());
    rest();
    break;
  }
}

class Parser {
public:
  Parser(std::string_view text, const Region& region) : text_(text), region_(region) {}

  TreePtr whole() {
    TreePtr t = tree(1);
    if (at_ != text_.size())
      wrong("the end");
    return t;
  }

private:
  [[noreturn]] void wrong(const std::string& wanted) const {
    fail(ErrorKind::Parse, "loop tree, column {}: {} is wanted, not '{}'", at_ + 1, wanted,
         text_.substr(at_, 12));
  }

  bool takes(std::string_view word) {
    if (text_.substr(at_, word.size()) != word)
      return false;
    at_ += word.size();
    return true;
  }

  void expect(std::string_view word) {
    if (!takes(word))
      wrong(fmt::format("'{}'", word));
  }

  std::int64_t number(std::int64_t least, std::int64_t most, const char* what) {
    std::int64_t v = 0;
    const char* begin = text_.data() + at_;
    auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), v);
    if (error != std::errc{} || v < least || v > most)
      wrong(fmt::format("{} from {} to {}", what, least, most));
    at_ += std::size_t(end - begin);
    return v;
  }

  int one_of(std::size_t count, const char* what) {
    return int(number(0, std::int64_t(count) - 1, what));
  }

  Bind bind() {
    const std::size_t end = std::min(text_.find(',', at_), text_.size());
    const auto found = bind_named(text_.substr(at_, end - at_));
    if (!found)
      wrong("a binding");
    at_ = end;
    return *found;
  }

  Expr extent(int axis) {
    if (!takes("ceil("))
      return Expr(number(0, kMostNumber, "a number of iterations"));
    const std::int64_t by = number(1, kMostNumber, "a divisor");
    expect(")");
    return ceildiv(region_.axes[std::size_t(axis)].extent, Expr(by));
  }

  TreePtr rest(int depth) {
    expect(",");
    TreePtr t = tree(depth + 1);
    expect(")");
    return t;
  }

  TreePtr tree(int depth) {
    if (depth > kMostDepth)
      fail(ErrorKind::Parse, "loop tree: more than {} deep", kMostDepth);
    if (++nodes_ > kMostNodes)
      fail(ErrorKind::Parse, "loop tree: more than {} nodes", kMostNodes);
    if (takes("body(")) {
      const int stage = one_of(region_.stages.size(), "a stage");
      expect(")");
      return body(stage);
    }
    if (takes("for(")) {
      const int axis = one_of(region_.axes.size(), "an axis");
      expect(",");
      const Expr iterations = extent(axis);
      expect(",");
      const std::int64_t step = number(1, kMostNumber, "a step");
      expect(",");
      const Bind bound = bind();
      return loop(axis, iterations, step, bound, rest(depth));
    }
    if (takes("mask(")) {
      const int axis = one_of(region_.axes.size(), "an axis");
      return mask(axis, rest(depth));
    }
    if (takes("acc(")) {
      const int stage = one_of(region_.stages.size(), "a stage");
      std::int64_t accumulators = 1;
      if (at_ + 1 < text_.size() && text_[at_ + 1] >= '0' && text_[at_ + 1] <= '9') {
        expect(",");
        accumulators = number(1, kMostUnroll, "a number of accumulators");
      }
      return accumulate(stage, rest(depth), accumulators);
    }
    if (takes("near(")) {
      const int operand = one_of(region_.operands.size(), "an operand");
      return near(operand, rest(depth));
    }
    if (takes("collapse(")) {
      const int threads = int(number(1, kMostThreads, "a number of threads"));
      expect(",");
      const int copies = int(number(1, kMostUnroll, "a number of points of a thread"));
      return collapse(threads, copies, rest(depth));
    }
    if (takes("prefetch(")) {
      const int axis = one_of(region_.axes.size(), "an axis");
      expect(",");
      const std::int64_t distance = number(1, kMostNumber, "a distance");
      return prefetch(axis, distance, rest(depth));
    }
    if (takes("then(")) {
      TreePtr first = tree(depth + 1);
      return then(std::move(first), rest(depth));
    }
    wrong("a tree");
  }

  std::string_view text_;
  const Region& region_;
  std::size_t at_ = 0;
  int nodes_ = 0;
};

} // namespace

TreePtr body(int stage) {
  Tree t;
  t.kind = Kind::Body;
  t.stage = stage;
  return make(std::move(t));
}

TreePtr loop(int axis, Expr extent, std::int64_t step, Bind bind, TreePtr rest) {
  Tree t;
  t.kind = Kind::For;
  t.axis = axis;
  t.extent = std::move(extent);
  t.step = step;
  t.bind = bind;
  t.rest = std::move(rest);
  return make(std::move(t));
}

TreePtr mask(int axis, TreePtr rest) {
  Tree t;
  t.kind = Kind::Mask;
  t.axis = axis;
  t.rest = std::move(rest);
  return make(std::move(t));
}

TreePtr accumulate(int stage, TreePtr rest, std::int64_t accumulators) {
  Tree t;
  t.kind = Kind::Accumulate;
  t.stage = stage;
  t.step = accumulators;
  t.rest = std::move(rest);
  return make(std::move(t));
}

TreePtr near(int operand, TreePtr rest) {
  Tree t;
  t.kind = Kind::Near;
  t.operand = operand;
  t.rest = std::move(rest);
  return make(std::move(t));
}

TreePtr then(TreePtr first, TreePtr rest) {
  Tree t;
  t.kind = Kind::Then;
  t.first = std::move(first);
  t.rest = std::move(rest);
  return make(std::move(t));
}

TreePtr collapse(int threads, int copies, TreePtr rest) {
  Tree t;
  t.kind = Kind::Collapse;
  t.step = threads;
  t.extent = Expr(copies);
  t.rest = std::move(rest);
  return make(std::move(t));
}

TreePtr prefetch(int axis, std::int64_t distance, TreePtr rest) {
  Tree t;
  t.kind = Kind::Prefetch;
  t.axis = axis;
  t.step = distance;
  t.rest = std::move(rest);
  return make(std::move(t));
}

bool equal(const Tree& a, const Tree& b) {
  if (&a == &b)
    return true;
  if (a.kind != b.kind || a.axis != b.axis || !(a.extent == b.extent) || a.step != b.step ||
      a.bind != b.bind || a.stage != b.stage || a.operand != b.operand)
    return false;
  auto same = [](const TreePtr& x, const TreePtr& y) { return x && y ? equal(*x, *y) : x == y; };
  return same(a.first, b.first) && same(a.rest, b.rest);
}

std::string to_text(const Tree& tree, const Region& region) {
  std::string out;
  write(tree, region, out);
  return out;
}

TreePtr parse_tree(std::string_view text, const Region& region) {
  return Parser(text, region).whole();
}

TreePtr plain_tree(const Region& region) {
  const std::vector<bool> stored = stored_stages(region).stages;
  TreePtr tree;
  for (std::size_t i = region.stages.size(); i-- > 0;) {
    const int s = int(i);
    if (!stored[i] && !is_output(region, s))
      continue;
    const Stage& stage = region.stages[i];
    TreePtr nest = body(s);
    auto around = [&](int a) {
      nest = loop(a, region.axes[std::size_t(a)].extent, 1, Bind::Serial, std::move(nest));
    };
    for (std::size_t k = stage.over.size(); k-- > 0;)
      around(stage.over[k]);
    if (stage.kind != StageKind::Map)
      nest = accumulate(s, std::move(nest));
    for (std::size_t k = stage.axes.size(); k-- > 0;)
      if (!contains(stage.over, stage.axes[k]))
        around(stage.axes[k]);
    tree = tree ? then(std::move(nest), std::move(tree)) : std::move(nest);
  }
  ensure(tree != nullptr, "region {}: nothing is stored", region.name);
  return tree;
}

} // namespace egret::kernel::loops
