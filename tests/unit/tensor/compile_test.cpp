// compile(): traced once for each structure, replayed after; nothing frozen, nothing overwritten.
#include "egret/compile.h"

#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <memory>

namespace egret {
namespace {

using Floats = std::vector<float>;

struct Layer {
  Tensor weight, bias;
  Tensor operator()(const Tensor& x) const { return matmul(x, weight) + bias; }
  EGRET_FIELDS(weight, bias)
};

struct Model {
  std::vector<Layer> layers;
  std::optional<Tensor> scale;
  std::map<std::string, Tensor> named;
  Tensor operator()(Tensor x) const {
    for (const Layer& layer : layers)
      x = tanh(layer(x));
    return scale ? x * *scale : x;
  }
  EGRET_FIELDS(layers, scale, named)
};

struct Sgd {
  Tensor rate = scalar(0.1f);
  Tensor step = scalar(0);
  std::vector<Tensor> momentum;
  EGRET_FIELDS(rate, step, momentum)
};

Model make_model() {
  Generator g(1);
  Model model;
  for (int i = 0; i < 2; ++i)
    model.layers.push_back(
        {randn({4, 4}, g).eval().set_requires_grad(), zeros({4}).eval().set_requires_grad()});
  return model;
}

std::vector<Tensor> parameters(Model& model) {
  std::vector<Tensor> found;
  for (auto& [name, t] : named_tensors(model))
    if (t.requires_grad())
      found.push_back(t);
  return found;
}

Tensor train(Model& model, Sgd& sgd, const Tensor& x, const Tensor& y) {
  const Tensor loss = mse_loss(model(x), y);
  auto params = parameters(model);
  for (Tensor& p : params)
    p.zero_grad();
  loss.backward();
  NoGrad guard;
  sgd.step += 1;
  for (std::size_t i = 0; i < params.size(); ++i) {
    sgd.momentum[i].assign(sgd.momentum[i] * 0.9 + params[i].grad());
    params[i] -= sgd.momentum[i] * sgd.rate;
  }
  return loss;
}

Sgd make_sgd(Model& model) {
  Sgd sgd;
  for (Tensor& p : parameters(model))
    sgd.momentum.push_back(zeros_like(p).eval());
  return sgd;
}

TEST(Tree, NamesAndOrder) {
  Model model = make_model();
  model.named["b"] = zeros({1});
  model.named["a"] = zeros({1});
  std::vector<std::string> names;
  for (auto& [name, t] : named_tensors(model))
    names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"layers.0.weight", "layers.0.bias", "layers.1.weight",
                                             "layers.1.bias", "named.a", "named.b"}));
}

TEST(Compile, TrainsAsTheLazyFunctionDoes) {
  const Tensor x = tensor({{1.0, 0.5, -0.5, 0.25}}), y = tensor({{0.1, 0.2, 0.3, 0.4}});
  Model lazy = make_model(), compiled = make_model();
  Sgd lazy_sgd = make_sgd(lazy), compiled_sgd = make_sgd(compiled);
  auto step = compile(train);
  for (int i = 0; i < 5; ++i) {
    const double a = train(lazy, lazy_sgd, x, y).item();
    const double b = step(compiled, compiled_sgd, x, y).item();
    EXPECT_NEAR(a, b, 1e-6) << i;
  }
  EXPECT_EQ(step.traces(), 1u);
  EXPECT_EQ(compiled_sgd.step.item<int>(), 5);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto a = lazy.layers[i].weight.to_vector(), b = compiled.layers[i].weight.to_vector();
    for (std::size_t j = 0; j < a.size(); ++j)
      EXPECT_NEAR(a[j], b[j], 1e-5);
    EXPECT_TRUE(compiled.layers[i].weight.requires_grad());
    EXPECT_FALSE(compiled.layers[i].weight.grad().defined()); // stays inside
  }
}

TEST(Compile, TheSecondCallCompilesAndAllocatesNothing) {
  const Tensor x = tensor({{1.0, 0.5, -0.5, 0.25}}), y = tensor({{0.1, 0.2, 0.3, 0.4}});
  Model model = make_model();
  Sgd sgd = make_sgd(model);
  auto step = compile(train, {.name = "step"});
  Counters before = counters();
  step(model, sgd, x, y);
  EXPECT_EQ((counters() - before).graphs_traced, 1u);
  before = counters();
  const Tensor loss = step(model, sgd, x, y);
  const Counters spent = counters() - before;
  EXPECT_EQ(spent.graphs_traced, 0u);
  EXPECT_EQ(spent.compiles, 0u);
  EXPECT_EQ(spent.kernels_compiled, 0u);
  EXPECT_EQ(spent.device_allocations, 0u);
  EXPECT_EQ(spent.ops_recorded, 0u);
  EXPECT_EQ(spent.plan_hits, 1u);
  EXPECT_NE(step.last_report().find("replayed"), std::string::npos);
}

TEST(Compile, AHandedOutResultIsNeverOverwritten) {
  Tensor state = tensor({1.0, 2.0});
  auto step = compile([](Tensor& s) {
    s += 1;
    return s * 10;
  });
  const Tensor a = step(state), b = step(state), c = step(state);
  EXPECT_EQ(a.to_vector(), (Floats{20, 30}));
  EXPECT_EQ(b.to_vector(), (Floats{30, 40}));
  EXPECT_EQ(c.to_vector(), (Floats{40, 50}));
}

TEST(Compile, AStateThatIsAlsoReturnedOrClonedIsCopiedBeforeItIsOverwritten) {
  Tensor state = tensor({1.0, 2.0});
  auto step = compile([](Tensor& s) {
    s += 1;
    return s;
  });
  const Tensor clone = state.clone();
  const Tensor a = step(state);
  const Tensor pending = state * 100; // a recipe that needs the old value
  const Tensor b = step(state);
  EXPECT_EQ(clone.to_vector(), (Floats{1, 2}));
  EXPECT_EQ(a.to_vector(), (Floats{2, 3}));
  EXPECT_EQ(b.to_vector(), (Floats{3, 4}));
  EXPECT_EQ(pending.to_vector(), (Floats{200, 300}));
  EXPECT_EQ(state.to_vector(), (Floats{3, 4}));
}

TEST(Compile, StatesMaySwapAndPassThrough) {
  Tensor a = tensor({1.0}), b = tensor({2.0});
  auto swap = compile([](Tensor& x, Tensor& y) {
    const Tensor old = x.clone();
    x.assign(y);
    y.assign(old);
    return old;
  });
  EXPECT_EQ(swap(a, b).item(), 1);
  EXPECT_EQ(a.item(), 2);
  EXPECT_EQ(b.item(), 1);
  EXPECT_EQ(swap(a, b).item(), 2);
  EXPECT_EQ(a.item(), 1);
  auto keep = compile([](Tensor& x) {
    const Tensor old = x.clone();
    x *= 3;
    return old;
  });
  EXPECT_EQ(keep(a).item(), 1);
  EXPECT_EQ(keep(a).item(), 3);
  EXPECT_EQ(a.item(), 9);
}

TEST(Compile, RebindingAStateTensorIsAnUpdate) {
  Model model = make_model();
  const Tensor alias = model.layers[0].bias;
  auto step = compile([](Model& m) { m.layers[0].bias = m.layers[0].bias + 1; });
  step(model);
  step(model);
  EXPECT_EQ(model.layers[0].bias.to_vector(), (Floats{2, 2, 2, 2}));
  EXPECT_EQ(alias.to_vector(), (Floats{2, 2, 2, 2}));
}

TEST(Compile, NewShapesTraceAndSayWhy) {
  auto f = compile([](const Tensor& x) { return x.sum() * 2; });
  EXPECT_EQ(f(ones({3})).item(), 6);
  EXPECT_NE(f.last_report().find("the first call"), std::string::npos);
  EXPECT_EQ(f(ones({4})).item(), 8);
  EXPECT_NE(f.last_report().find("argument 0 is f32[4] now and was f32[3]"), std::string::npos)
      << f.last_report();
  EXPECT_EQ(f(ones({3})).item(), 6);
  EXPECT_NE(f.last_report().find("replayed"), std::string::npos);
  EXPECT_EQ(f.traces(), 2u);
}

TEST(Compile, TracesAreBounded) {
  auto f = compile([](const Tensor& x) { return x + 1; }, {.limit = 3});
  for (std::int64_t n = 1; n <= 8; ++n)
    EXPECT_EQ(f(ones({n})).sum().item(), 2 * n);
  EXPECT_EQ(f.traces(), 3u);
}

TEST(Compile, NumbersThatChangeAreNotFrozen) {
  auto f = compile([](const Tensor& x, double by) { return x * by; });
  EXPECT_EQ(f(ones({1}), 2).item(), 2);
  EXPECT_EQ(f(ones({1}), 5).item(), 5);
  EXPECT_NE(f.last_report().find("a number among them"), std::string::npos) << f.last_report();
  auto g = compile([](const Tensor& x, const Tensor& by) { return x * by; });
  EXPECT_EQ(g(ones({1}), scalar(2.0)).item(), 2);
  EXPECT_EQ(g(ones({1}), scalar(5.0)).item(), 5);
  EXPECT_EQ(g.traces(), 1u);
}

TEST(Compile, CapturedTensorsAreReadAndWrittenAnew) {
  Tensor weight = tensor({2.0}), calls = scalar(0);
  auto f = compile([&](const Tensor& x) {
    calls += 1;
    return x * weight;
  });
  EXPECT_EQ(f(ones({1})).item(), 2);
  weight += 5;
  EXPECT_EQ(f(ones({1})).item(), 7);
  EXPECT_EQ(calls.item<int>(), 2);
  EXPECT_EQ(f.traces(), 1u);
}

TEST(Compile, ReplayNeverRepeatsADropoutMask) {
  Generator g(9);
  auto f = compile([](const Tensor& x, Generator& random) { return dropout(x, 0.5, random); });
  const auto a = f(ones({64}), g).to_vector(), b = f(ones({64}), g).to_vector(),
             c = f(ones({64}), g).to_vector();
  EXPECT_NE(a, b);
  EXPECT_NE(b, c);
  EXPECT_EQ(f.traces(), 1u);
  EXPECT_EQ(g.counter.item<int>(), 192);
  Generator lazy(9); // the same numbers as without compile, and after it
  EXPECT_EQ(dropout(ones({64}), 0.5, lazy).to_vector(), a);
  EXPECT_EQ(dropout(ones({64}), 0.5, lazy).to_vector(), b);
  dropout(ones({64}), 0.5, lazy);
  EXPECT_EQ(rand({8}, g).to_vector(), rand({8}, lazy).to_vector());
}

TEST(Compile, ResultsMayBeTrees) {
  auto f = compile([](const Tensor& x, const std::vector<Tensor>& more) {
    return std::tuple{x + 1, std::array<Tensor, 2>{x * 2, x},
                      std::map<std::string, Tensor>{{"sum", more[0] + more[1]}}};
  });
  for (int i = 1; i < 3; ++i) {
    auto [a, b, c] = f(full({1}, i), std::vector<Tensor>{ones({1}), full({1}, 7)});
    EXPECT_EQ(a.item(), i + 1);
    EXPECT_EQ(b[0].item(), 2 * i);
    EXPECT_EQ(b[1].item(), i);
    EXPECT_EQ(c["sum"].item(), 8);
  }
}

TEST(Compile, ConstantsAndEmptyResults) {
  auto f = compile([](const Tensor&) { return std::pair{tensor({1.0, 2.0}), Tensor()}; });
  EXPECT_EQ(f(ones({1})).first.to_vector(), (Floats{1, 2}));
  EXPECT_FALSE(f(ones({1})).second.defined());
  EXPECT_EQ((f(ones({1})).first * ones({2})).sum().item(), 3);
}

TEST(Compile, TiedWeightsStayOne) {
  Tensor shared = tensor({1.0});
  std::vector<Tensor> tied = {shared, shared};
  auto f = compile([](std::vector<Tensor>& w) { w[0] += 1; });
  f(tied);
  f(tied);
  EXPECT_EQ(tied[1].item(), 3);
  EXPECT_EQ(shared.item(), 3);
  std::vector<Tensor> apart = {tensor({1.0}), tensor({1.0})};
  f(apart); // another structure
  EXPECT_EQ(apart[0].item(), 2);
  EXPECT_EQ(apart[1].item(), 1);
}

TEST(Compile, StateMayBeMadeInside) {
  Tensor total;
  auto f = compile([](Tensor& sum, const Tensor& x) {
    if (!sum.defined())
      sum = zeros_like(x);
    sum = sum + x;
  });
  for (int i = 0; i < 4; ++i)
    f(total, ones({2}));
  EXPECT_EQ(total.to_vector(), (Floats{4, 4}));
  EXPECT_EQ(f.traces(), 2u);
}

TEST(Compile, GradientsFromOutsideAreSeenInside) {
  Tensor w = tensor({1.0, 2.0}).set_requires_grad();
  auto update = compile([](Tensor& p) {
    NoGrad guard;
    if (p.grad().defined())
      p -= p.grad() * 0.5;
  });
  update(w); // no gradient yet
  EXPECT_EQ(w.to_vector(), (Floats{1, 2}));
  for (int i = 0; i < 3; ++i) {
    w.zero_grad();
    (w * 2).sum().backward();
    update(w);
  }
  EXPECT_EQ(w.to_vector(), (Floats{-2, -1}));
  EXPECT_EQ(update.traces(), 2u);
  EXPECT_TRUE(w.grad().defined());
}

TEST(Compile, CompiledFunctionsNest) {
  auto inner = compile([](const Tensor& x) { return x * 2; });
  auto outer = compile([&](const Tensor& x) { return inner(x) + 1; });
  EXPECT_EQ(outer(ones({1})).item(), 3);
  EXPECT_EQ(inner.traces(), 0u);
  EXPECT_EQ(inner(ones({1})).item(), 2);
}

TEST(Compile, AnExceptionLeavesArgumentsAsTheyWere) {
  Tensor state = tensor({1.0});
  auto f = compile([](Tensor& s, const Tensor& x) {
    s += 1;
    s = s * 2;
    return matmul(s, x);
  });
  const Tensor alias = state;
  EXPECT_THROW(f(state, ones({3})), Error);
  EXPECT_EQ(state.item(), 1);
  state += 1;
  EXPECT_EQ(alias.item(), 2); // still the same handle
  EXPECT_EQ(f(state, ones({1})).item(), 6);
}

TEST(Compile, ExplainTellsOfKernels) {
  auto f = compile([](const Tensor& x) { return exp(x) * 2; });
  EXPECT_NE(f.explain().find("not called"), std::string::npos);
  f(ones({4}));
  EXPECT_NE(f.explain().find("1 kernels"), std::string::npos) << f.explain();
  EXPECT_NE(f.graph_text().find("exp"), std::string::npos);
  const Tensor held = exp(ones({4}).eval()); // a kernel is told by the values that it stores
  const std::string text = explain(held * 2);
  EXPECT_NE(text.find("exp"), std::string::npos) << text;
}

// --- what is captured is read through its owner

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Captured, ATensorThatIsBoundToAnotherOneIsSeen) {
  Tensor w = tensor({2.0});
  auto f = compile([&](const Tensor& x) { return x * w; });
  EXPECT_EQ(f(ones({1})).item(), 2);
  w += 1;
  EXPECT_EQ(f(ones({1})).item(), 3);
  w = tensor({5.0});
  EXPECT_EQ(f(ones({1})).item(), 5);
  w += 1;
  EXPECT_EQ(f(ones({1})).item(), 6);
  EXPECT_EQ(f.traces(), 1u);
  EXPECT_NE(f.last_report().find("replayed"), std::string::npos);
  w = tensor({1.0, 2.0}); // of another shape
  EXPECT_EQ(f(ones({1})).to_vector(), (Floats{1, 2}));
  EXPECT_NE(f.last_report().find("captured1 is f32[2] now and was f32[1]"), std::string::npos)
      << f.last_report();
  w = tensor({3.0});
  EXPECT_EQ(f(ones({1})).item(), 3);
}

TEST(Captured, AStateThatIsBoundToAnotherOneIsWrittenThere) {
  Tensor calls = scalar(0);
  const Tensor first = calls;
  auto f = compile([&](const Tensor& x) {
    calls += 1;
    return x;
  });
  f(ones({1}));
  calls = scalar(10);
  f(ones({1}));
  EXPECT_EQ(calls.item<int>(), 11);
  EXPECT_EQ(first.item<int>(), 1);
}

TEST(Captured, AReplacedLayerIsSeen) {
  Model model = make_model(), other = make_model();
  const Tensor x = tensor({{1.0, 0.5, -0.5, 0.25}});
  auto f = compile([&](const Tensor& in) { return model(in); });
  auto right = [&] {
    const auto a = f(x).to_vector(), b = model(x).to_vector();
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], 1e-6);
  };
  right();
  model.layers[1] = {tensor(Floats(16, 0.25f), Shape{4, 4}).set_requires_grad(),
                     ones({4}).set_requires_grad()};
  right();
  EXPECT_EQ(f.traces(), 1u);
  model.layers[0].weight = zeros({4, 4}).eval(); // requires no gradient: another trace
  right();
  EXPECT_NE(f.last_report().find("requires no gradient now"), std::string::npos) << f.last_report();
  model.layers.pop_back();
  right();
  model.layers.reserve(100); // moves them all
  right();
  model = std::move(other);
  right();
  model.scale = scalar(3.f); // a new branch
  model.layers[0].bias = ones({4}).eval();
  right();
}

TEST(Captured, TiedTensorsThatComeApartAreSeen) {
  Tensor a = tensor({2.0}), b = a;
  auto f = compile([&](const Tensor& x) { return x * a + b; });
  EXPECT_EQ(f(ones({1})).item(), 4);
  b = tensor({10.0});
  EXPECT_EQ(f(ones({1})).item(), 12);
  EXPECT_NE(f.last_report().find("lead to different tensors now"), std::string::npos)
      << f.last_report();
  a = b; // the first trace stands for that
  EXPECT_EQ(f(ones({1})).item(), 20);
  EXPECT_EQ(f.traces(), 2u);
  auto g = compile([&](const Tensor& x) { return x * a * b; });
  a = tensor({3.0});
  EXPECT_EQ(g(ones({1})).item(), 30);
  a = b;
  EXPECT_EQ(g(ones({1})).item(), 100);
  EXPECT_NE(g.last_report().find("and another tensor are one now"), std::string::npos)
      << g.last_report();
}

TEST(Captured, AnArgumentThatIsCapturedTooIsNotTakenForIt) {
  Tensor w = tensor({2.0});
  const Tensor same = w;
  auto f = compile([&](const Tensor& x) { return x * 10 + w; });
  EXPECT_EQ(f(same).item(), 22);
  EXPECT_EQ(f(tensor({3.0})).item(), 32);
  EXPECT_EQ(f(same).item(), 22);
}

TEST(Captured, AnOwnerThatIsGoneIsNotReadAnyMore) {
  auto owner = std::make_unique<Tensor>(tensor({2.0}));
  Tensor other = tensor({7.0});
  auto f = compile([&](const Tensor& x) { return x * (owner ? *owner : other); });
  EXPECT_EQ(f(ones({1})).item(), 2);
  owner = nullptr;
  EXPECT_EQ(f(ones({1})).item(), 7);
  EXPECT_NE(f.last_report().find("was destroyed, moved or emptied"), std::string::npos)
      << f.last_report();
  EXPECT_EQ(f.traces(), 1u); // the one that can fit no call any more is gone
}

TEST(Captured, AReplacedOptimizerIsSeen) {
  Model model = make_model();
  Sgd sgd = make_sgd(model);
  const Tensor x = tensor({{1.0, 0.5, -0.5, 0.25}}), y = tensor({{0.1, 0.2, 0.3, 0.4}});
  auto step = compile([&] { return train(model, sgd, x, y); });
  step();
  EXPECT_EQ(sgd.step.item<int>(), 1);
  sgd = make_sgd(model);
  step();
  step();
  EXPECT_EQ(sgd.step.item<int>(), 2);
  EXPECT_EQ(step.traces(), 1u);
}

TEST(Captured, BindingItInsideIsRefused) {
  Tensor w = tensor({2.0});
  auto f = compile([&](const Tensor& x) { w = w + x; }, {.name = "f"});
  EXPECT_EQ(message_of([&] { f(ones({1})); }),
            "f: the function reads a tensor that it captures (f32[1]) and binds it to another one "
            "(w = ...), which no later call would do; update it in place (+=, assign), return the "
            "value, or take the tensor by non-const reference");
  EXPECT_EQ(w.item(), 2);
  // One that it only binds has no value afterwards, which reading it says.
  Tensor last = tensor({2.0});
  auto g = compile([&](const Tensor& x) { last = x * 2; }, {.name = "g"});
  g(ones({1}));
  EXPECT_EQ(
      message_of([&] { last.item(); }),
      "item: the value is not known while g is traced, or after: it stands for what every "
      "call computes anew (return it, or assign it to a tensor that lives outside; where() chooses "
      "by a value)");
  auto local = compile([&](const Tensor& x) {
    Tensor p = w;
    p = p * x;
    return p;
  });
  EXPECT_EQ(local(full({1}, 4)).item(), 8);
}

// --- gradients of clones

TEST(Compile, AnUpdateOfACloneOfALeafIsRecorded) {
  Tensor w = tensor({2.0}).set_requires_grad();
  auto f = compile([&](const Tensor& x) {
    Tensor k = w.clone();
    k *= x;
    return std::pair{k, grad(k.sum(), w)};
  });
  const auto [k, dw] = f(full({1}, 3));
  EXPECT_EQ(k.item(), 6);
  EXPECT_EQ(dw.item(), 3);
  EXPECT_EQ(w.item(), 2);
}

// The numbers are the same for all of them, so that one code serves all sizes.
TEST(Compile, UpdatesOfManySizesShareALaunch) {
  std::vector<Tensor> weights, gradients;
  for (std::int64_t n = 1; n <= 60; ++n) {
    weights.push_back(ones({7 * n}).eval());
    gradients.push_back(full({7 * n}, static_cast<float>(n)).eval());
  }
  auto step = compile([](std::vector<Tensor>& w, const std::vector<Tensor>& g) {
    for (std::size_t i = 0; i < w.size(); ++i)
      w[i] = w[i] * 0.9f - g[i] * 0.1f * 0.9f;
  });
  step(weights, gradients);
  const Counters before = counters();
  step(weights, gradients);
  EXPECT_LE((counters() - before).kernels_launched, 2u);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float g = static_cast<float>(i + 1) * 0.1f * 0.9f;
    const Floats values = weights[i].to_vector<float>();
    ASSERT_EQ(values.size(), 7 * (i + 1));
    for (const float v : values)
      ASSERT_NEAR(v, (1 * 0.9f - g) * 0.9f - g, 1e-5f * (1 + g)) << i;
  }
}

} // namespace
} // namespace egret
