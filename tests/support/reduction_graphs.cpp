#include "support/reduction_graphs.h"

#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/graph.h"
#include "support/random_graph.h"
#include "support/recorded_graph.h"

#include <algorithm>
#include <limits>
#include <string>

namespace egret::testing {

namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();
constexpr std::int64_t kMostElements = 12000;
/// Points of a product: the reference computes each in f64.
constexpr std::int64_t kMostPoints = 200000;

/// A value and the letters of its axes, in order, each with a size of its own.
struct Named {
  Tensor tensor;
  std::string axes;
};

class ReductionMaker {
public:
  explicit ReductionMaker(std::uint64_t seed) : rng_(seed) {
    const std::size_t letters = 3 + rng_.below(3);
    for (std::size_t i = 0; i < letters; ++i)
      sizes_.push_back(rng_.chance(0.3)   ? rng_.pick(std::vector<std::int64_t>{15, 16, 17, 33, 48})
                       : rng_.chance(0.1) ? 1
                                          : 2 + rng_.below(9));
    type_ = rng_.pick(std::vector<DType>{DType::F32, DType::F32, DType::F32, DType::BF16,
                                         DType::F16, DType::F64});
  }

  ReductionGraph make() {
    ReductionGraph made;
    made.gradients = rng_.chance(0.3);
    std::vector<Tensor> inputs;
    for (int i = 0; i < 3; ++i) {
      Named x = input();
      x.tensor.set_requires_grad(made.gradients);
      inputs.push_back(x.tensor);
      pool_.push_back(x);
    }
    for (int i = 0, tries = 0; i < 7 && tries < 60; ++tries) {
      const auto step = static_cast<ReductionStep>(rng_.below(kReductionSteps));
      Named value;
      if (!take(step, value))
        continue;
      pool_.push_back(value);
      ++made.steps[static_cast<std::size_t>(step)];
      ++i;
    }
    Named& last = pool_.back();
    std::vector<Tensor> outputs{last.tensor};
    if (rng_.chance(0.4)) // a value on the way is wanted, too
      outputs.push_back(pool_[3].tensor);
    if (made.gradients) {
      const Tensor up = cx_.tensor(shape_of(last.axes), type_);
      const Tensor loss = (last.tensor * up).sum();
      const Tensor& x = inputs[static_cast<std::size_t>(rng_.below(3))];
      outputs.push_back(x + grad(loss, x)); // zeros alone would belong to no graph
    }
    made.graph = recorded_graph(cx_, outputs);
    return made;
  }

private:
  std::int64_t size(char letter) const { return sizes_[static_cast<std::size_t>(letter - 'a')]; }
  std::int64_t points(const std::string& axes) const {
    std::int64_t n = 1;
    for (char c : axes)
      n *= size(c);
    return n;
  }
  Shape shape_of(const std::string& axes) const {
    Shape shape;
    for (char c : axes)
      shape.emplace_back(size(c));
    return shape;
  }
  std::string shuffled(std::string axes) {
    for (std::size_t i = axes.size(); i > 1; --i)
      std::swap(axes[i - 1], axes[static_cast<std::size_t>(rng_.below(std::int64_t(i)))]);
    return axes;
  }

  Named input() {
    std::string all;
    for (std::size_t i = 0; i < sizes_.size(); ++i)
      all += char('a' + i);
    all = shuffled(all).substr(0, static_cast<std::size_t>(2 + rng_.below(2)));
    while (points(all) > kMostElements)
      all.pop_back();
    return {cx_.tensor(shape_of(all), type_), all};
  }

  /// With axes in the order of `axes`, those that the value lacks having size 1.
  Tensor along(const Named& v, const std::string& axes) const {
    std::vector<std::int64_t> order;
    Shape shape;
    for (char c : axes)
      if (auto at = v.axes.find(c); at != std::string::npos) {
        order.push_back(std::int64_t(at));
        shape.emplace_back(size(c));
      } else {
        shape.emplace_back(1);
      }
    return v.tensor.permute(order).reshape(shape);
  }

  const Named& some() { // the later of two: chains grow
    const auto n = std::int64_t(pool_.size());
    return pool_[static_cast<std::size_t>(std::max(rng_.below(n), rng_.below(n)))];
  }
  static std::string both(const std::string& a, const std::string& b, bool common) {
    std::string out = common ? "" : a;
    for (char c : b)
      if ((a.find(c) != std::string::npos) == common)
        out += c;
    return out;
  }

  bool take(ReductionStep step, Named& out) {
    switch (step) {
    case ReductionStep::Product:
      return product(out);
    case ReductionStep::Softmax:
      return softmax_like(out, some(), -1);
    case ReductionStep::Norm:
      return norm(out);
    case ReductionStep::Reduce:
      return reduce(out);
    case ReductionStep::Scan:
      return scan(out);
    case ReductionStep::Glue:
      return glue(out);
    case ReductionStep::Mixture:
      return mixture(out);
    }
    return false;
  }

  /// Of rows and places, over a third letter: more elements than its factors have.
  bool mixture(Named& out) {
    std::string letters;
    for (std::size_t i = 0; i < sizes_.size(); ++i)
      letters += char('a' + i);
    std::ranges::stable_sort(letters, {}, [&](char c) { return size(c); });
    const std::string over = letters.substr(0, 1), rows = letters.substr(letters.size() - 1),
                      places = letters.substr(letters.size() - 2, 1);
    const auto fresh = [&](const std::string& axes) {
      return Named{cx_.tensor(shape_of(axes), type_), axes};
    };
    const Named left = fresh(shuffled(rows + over)), right = fresh(shuffled(places + over));
    pool_.push_back(
        {einsum(left.axes + "," + right.axes + "->" + rows + places, {left.tensor, right.tensor}),
         rows + places});
    Named weights;
    if (!softmax_like(weights, pool_.back(), rng_.below(2)))
      return false;
    pool_.pop_back(); // nothing else reads the product
    if (weights.axes.size() < 2 || rng_.chance(0.3)) {
      out = {weights.tensor.sum(std::int64_t(weights.axes.size()) - 1), weights.axes};
      out.axes.pop_back();
      return true;
    }
    const Named values = fresh(shuffled(places + over));
    out = {einsum(weights.axes + "," + values.axes + "->" + rows + over,
                  {weights.tensor, values.tensor}),
           rows + over};
    return true;
  }

  bool product(Named& out) {
    const Named a = some(), b = rng_.chance(0.3) ? input() : some();
    const std::string shared = shuffled(both(a.axes, b.axes, true)),
                      all = both(a.axes, b.axes, false);
    if (shared.empty() || points(all) > kMostPoints)
      return false;
    const std::string over = shared.substr(0, rng_.chance(0.25) ? 2 : 1);
    std::string kept;
    for (char c : all)
      if (over.find(c) == std::string::npos)
        kept += c;
    if (points(kept) > kMostElements || kept.size() > 4)
      return false;
    if (rng_.chance(0.5))
      kept = shuffled(kept);
    if (rng_.chance(0.5)) { // as the product and sum that it is
      std::vector<std::int64_t> axes;
      const std::string order = kept + over;
      for (std::size_t i = kept.size(); i < order.size(); ++i)
        axes.push_back(std::int64_t(i));
      out = {(along(a, order) * along(b, order)).sum(Axes(axes)), kept};
    } else {
      out = {einsum(a.axes + "," + b.axes + "->" + kept, {a.tensor, b.tensor}), kept};
    }
    if (rng_.chance(0.5))
      out.tensor = out.tensor * 0.25;
    return true;
  }

  Tensor places(char letter, const std::string& axes) {
    return along({arange(size(letter)), std::string(1, letter)}, axes);
  }

  /// Along axis `at`, or any.
  bool softmax_like(Named& out, Named v, std::int64_t at) {
    if (v.axes.empty())
      return false;
    if (at < 0)
      at = rng_.below(std::int64_t(v.axes.size()));
    const char letter = v.axes[static_cast<std::size_t>(at)];
    Tensor s = v.tensor;
    if (s.dtype() != DType::F64 && rng_.chance(0.7))
      s = s.to(DType::F32);
    if (rng_.chance(0.4)) // a cap, so that what follows is not all 0 and 1
      s = tanh(s * 0.5) * 3.0;
    if (v.axes.size() > 1 && rng_.chance(0.3)) { // by places
      const char other = v.axes[static_cast<std::size_t>(at == 0 ? 1 : at - 1)];
      s = where(lt(places(letter, v.axes), places(other, v.axes) + 1), s,
                rng_.chance(0.7) ? kLowest : -20.0);
    }
    const Tensor top = s.max(at, true);
    const Tensor e = exp(s - top);
    switch (rng_.below(9)) {
    case 0:
      out.tensor = softmax(s, at);
      break;
    case 1:
      out.tensor = log_softmax(s, at);
      break;
    case 2: { // one value a row
      out = {(log(e.sum(at, true)) + top).sum(at).to(type_),
             std::string(v.axes).erase(std::size_t(at), 1)};
      return true;
    }
    case 3: // the maximum of all
      out.tensor = exp(s - s.max()) / 7.0;
      break;
    case 4: { // another divisor
      out.tensor = e / (e.sum(at, true) + 1.0);
      break;
    }
    case 5: // a mask behind the normalisation
      out.tensor = where(lt(places(letter, v.axes), std::int64_t(size(letter) / 2 + 1)),
                         e / e.sum(at, true), 0.0);
      break;
    case 6: { // mean and spread under the weights
      const Tensor w = e / e.sum(at, true), mean = (w * s).sum(at, true);
      out = {(w * (s - mean) * (s - mean)).sum(at).to(type_),
             std::string(v.axes).erase(std::size_t(at), 1)};
      return true;
    }
    case 7: // squares
      out.tensor = e * e / (e * e).sum(at, true);
      break;
    default:
      out.tensor = e / e.sum(at, true);
    }
    out = {out.tensor.to(type_), v.axes};
    return true;
  }

  bool norm(Named& out) {
    const Named v = some();
    if (v.axes.empty())
      return false;
    const Axes over = some_axes(v.axes);
    const Tensor x = type_ == DType::F64 ? v.tensor : v.tensor.to(DType::F32);
    Tensor y;
    if (rng_.chance(0.5)) {
      const Tensor centred = x - x.mean(over, true);
      y = centred * rsqrt((centred * centred).mean(over, true) + 0.01);
    } else {
      y = x / sqrt((x * x).mean(over, true) + 0.01);
    }
    if (rng_.chance(0.5)) {
      const std::string one(1, v.axes.back());
      y = y * along({cx_.tensor(shape_of(one), type_), one}, v.axes).to(y.dtype());
    }
    out = {y.to(type_), v.axes};
    return true;
  }

  Axes some_axes(const std::string& axes) {
    std::vector<std::int64_t> list;
    for (std::size_t i = 0; i < axes.size(); ++i)
      if (rng_.chance(0.4))
        list.push_back(std::int64_t(i));
    if (list.empty())
      list.push_back(rng_.below(std::int64_t(axes.size())));
    return Axes(list);
  }

  bool reduce(Named& out) {
    const Named v = some();
    if (v.axes.size() < 2)
      return false;
    std::string kept;
    std::vector<std::int64_t> over;
    for (std::size_t i = 0; i < v.axes.size(); ++i)
      if (rng_.chance(0.4))
        over.push_back(std::int64_t(i));
      else
        kept += v.axes[i];
    if (over.empty() || kept.empty())
      return false;
    const Axes axes(over);
    switch (rng_.below(5)) {
    case 0:
      out = {v.tensor.max(axes), kept};
      break;
    case 1:
      out = {v.tensor.mean(axes), kept};
      break;
    case 2:
      out = {prod(tanh(v.tensor) + 1.0, axes), kept};
      break;
    case 3: { // a sum that another one needs
      const Tensor m = v.tensor.mean(axes, true);
      out = {abs(v.tensor - m).sum(axes), kept};
      break;
    }
    default:
      out = {v.tensor.sum(axes), kept};
    }
    return true;
  }

  bool scan(Named& out) {
    const Named v = some();
    if (v.axes.empty() || !rng_.chance(0.5))
      return false;
    out = {cumsum(v.tensor, rng_.below(std::int64_t(v.axes.size()))) * 0.125, v.axes};
    return true;
  }

  bool glue(Named& out) {
    const Named a = some(), b = some();
    std::string axes = both(a.axes, b.axes, false);
    if (points(axes) > kMostElements || axes.size() > 4)
      return false;
    axes = rng_.chance(0.5) ? shuffled(axes) : axes;
    const Tensor x = along(a, axes), y = along(b, axes);
    switch (rng_.below(6)) {
    case 0:
      out.tensor = x + y;
      break;
    case 1:
      out.tensor = x * tanh(y);
      break;
    case 2:
      out.tensor = maximum(x, y);
      break;
    case 3:
      out.tensor = where(lt(x, y), x * 0.5, y);
      break;
    case 4:
      out.tensor = x / (abs(y) + 0.5);
      break;
    default:
      out.tensor = sigmoid(x) - y;
    }
    out.axes = axes;
    return true;
  }

  Rng rng_;
  egret::Graph cx_;
  std::vector<std::int64_t> sizes_;
  DType type_;
  std::vector<Named> pool_;
};

class SmallCaches : public backend::Device {
public:
  explicit SmallCaches(backend::Device& device) : device_(device), target_(device.target()) {
    target_.l2_bytes = 64;
    ++target_.fingerprint;
  }
  const kernel::Target& target() const override { return target_; }
  void* allocate(std::size_t bytes) override { return device_.allocate(bytes); }
  void release(void* memory, std::size_t bytes) noexcept override {
    device_.release(memory, bytes);
  }
  std::shared_ptr<const backend::Artifact> compile(const kernel::KernelProgram& program) override {
    return device_.compile(program);
  }
  void launch(const backend::Artifact& artifact, const kernel::KernelProgram& program,
              const kernel::ArgBlock& block, int workers) override {
    device_.launch(artifact, program, block, workers);
  }
  void synchronize() override { device_.synchronize(); }

private:
  backend::Device& device_;
  kernel::Target target_;
};

} // namespace

ReductionGraph random_reductions(std::uint64_t seed) {
  return ReductionMaker(seed).make();
}

std::unique_ptr<backend::Device> with_small_caches(backend::Device& device) {
  return std::make_unique<SmallCaches>(device);
}

} // namespace egret::testing
