// Eight threads that trace, compile, replay, read, update and drop at once over shared weights:
// what each computes is what one thread alone computes. EGRET_TEST_ROUNDS multiplies the rounds.
#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/nn.h"
#include "egret/optim.h"
#include "support/scale.h"

#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <optional>
#include <string>
#include <thread>

namespace egret {
namespace {

constexpr int kThreads = 8;

int rounds(int least) {
  return least * test::rounds();
}

// Runs `body(thread)` on all threads at once. What they throw is a failure of the test.
void on_all_threads(const std::function<void(int)>& body) {
  std::vector<std::string> thrown(kThreads);
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      try {
        body(i);
      } catch (const std::exception& error) {
        thrown[static_cast<std::size_t>(i)] = error.what();
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  for (int i = 0; i < kThreads; ++i)
    EXPECT_EQ(thrown[static_cast<std::size_t>(i)], "") << "thread " << i;
}

struct Net {
  nn::Linear in, out;
  EGRET_FIELDS(in, out)
  explicit Net(Generator g) : in(6, 8, g), out(8, 3, g) {}
  Tensor operator()(const Tensor& x) const { return out(relu(in(x))); }
};

std::vector<float> all_parameters(Net& net) {
  std::vector<float> values;
  for (const auto& [name, p] : nn::named_parameters(net))
    for (const float value : p.to_vector())
      values.push_back(value);
  return values;
}

/// What a thread computes from weights that nobody changes, with functions of its own and with one
/// that all threads share.
std::vector<float> forward_and_gradients(const Net& net, const Tensor& x, int round,
                                         Compiled<std::function<Tensor(const Tensor&)>>& shared) {
  std::vector<float> values;
  auto keep = [&](const Tensor& t) {
    for (const float value : t.to_vector())
      values.push_back(value);
  };
  const double factor = 1 + round % 3;
  auto captured = compile([&](const Tensor& in) { return net(in) * factor; });
  auto argument = compile([](const Net& n, const Tensor& in) {
    const Tensor loss = n(in).square().mean();
    return grad(loss, {n.in.weight, *n.out.bias});
  });
  for (int call = 0; call < 2; ++call) {
    keep(captured(x));
    for (const Tensor& gradient : argument(net, x))
      keep(gradient);
    keep(shared(x));
  }
  keep(net(x).sum());   // and without compile()
  const Net copy = net; // handles that are shared and dropped
  keep(copy.in.weight.clone().sum());
  return values;
}

TEST(Threads, TracesOverSharedWeightsAreThoseOfOneThread) {
  const Net net{Generator(3)};
  Generator g(5);
  const Tensor x = randn({4, 6}, g).eval();
  Compiled<std::function<Tensor(const Tensor&)>> shared(
      [&](const Tensor& in) { return softmax(net(in)); }, {});
  std::vector<std::vector<float>> alone;
  for (int round = 0; round < 3; ++round)
    alone.push_back(forward_and_gradients(net, x, round, shared));
  on_all_threads([&](int thread) {
    for (int round = 0; round < rounds(2); ++round) {
      const int which = (round + thread) % 3;
      EXPECT_EQ(forward_and_gradients(net, x, which, shared),
                alone[static_cast<std::size_t>(which)])
          << "thread " << thread << ", round " << round;
    }
  });
}

TEST(Threads, UpdatesOfSharedStatesAreAllThere) {
  // Whole numbers, whose sums do not depend on their order.
  Tensor a = zeros({32}).eval(), b = zeros({32}).eval(), eager = zeros({32}).eval();
  auto add = compile([&](const Tensor& by) {
    a += by;
    b += by * 2;
    return a.sum();
  });
  auto by_argument = compile([](Tensor& state, const Tensor& by) { state += by; });
  auto look = compile([&] { return std::pair{a * 1, b * 1}; });
  const int count = rounds(20);
  on_all_threads([&](int thread) {
    for (int k = 0; k < count; ++k) {
      switch (thread % 4) {
      case 0:
        add(scalar(1.f));
        break;
      case 1:
        by_argument(eager, ones({32}));
        eager += 1;
        break;
      case 2: {
        const auto [one, two] = look();
        const auto first = one.to_vector(), second = two.to_vector();
        for (std::size_t i = 0; i < first.size(); ++i) {
          ASSERT_EQ(first[i], first[0]);
          ASSERT_EQ(second[i], 2 * first[0]);
        }
        break;
      }
      default: {
        auto own = compile([&](const Tensor& by) {
          a += by;
          b += by * 2;
        });
        own(scalar(1.f));
        std::optional<Tensor> held = a;   // held while others update, then dropped
        const Tensor now = held->clone(); // each place where `*held` stands would read it anew
        EXPECT_EQ((now - now).sum().item(), 0);
        const Tensor kept = a.clone();
        const auto before = kept.to_vector();
        eager += 1;
        EXPECT_EQ(kept.to_vector(), before);
        break;
      }
      }
    }
  });
  const float total = static_cast<float>(4 * count); // two threads of eight are of each sort
  EXPECT_EQ(a.to_vector(), std::vector<float>(32, total));
  EXPECT_EQ(b.to_vector(), std::vector<float>(32, 2 * total));
  EXPECT_EQ(eager.to_vector(), std::vector<float>(32, static_cast<float>(6 * count)));
}

// Trainings that share nothing but the data and the runtime, beside threads that serve.
TEST(Threads, TrainingsBesideServing) {
  Generator g(7);
  const Tensor x = randn({8, 6}, g).eval(), y = randint({8}, 0, 3, g).eval();
  const Net served{Generator(11)};
  auto serve = compile([&](const Tensor& in) { return served(in); });
  const auto expected = serve(x).to_vector();
  auto trained = [&](std::uint64_t seed) {
    Net net{Generator(seed)};
    optim::AdamW optimizer(nn::named_parameters(net), {.lr = 0.01});
    auto step = compile([](Net& n, optim::AdamW& o, const Tensor& in, const Tensor& target) {
      const Tensor loss = cross_entropy(n(in), target);
      o.zero_grad();
      loss.backward();
      o.step();
      return loss;
    });
    for (int i = 0; i < 4; ++i)
      step(net, optimizer, x, y);
    return all_parameters(net);
  };
  const std::vector<std::vector<float>> alone = {trained(0), trained(1)};
  on_all_threads([&](int thread) {
    for (int round = 0; round < rounds(2); ++round) {
      if (thread % 2 == 0) {
        const auto seed = static_cast<std::size_t>(thread / 2 % 2);
        EXPECT_EQ(trained(seed), alone[seed]);
      } else {
        for (int i = 0; i < 20; ++i)
          EXPECT_EQ(serve(x).to_vector(), expected);
      }
    }
  });
  EXPECT_EQ(serve.traces(), 1u);
}

// One training whose steps are made by all threads, in any order: as many steps as there are calls,
// each on the state that the one before has left.
TEST(Threads, StepsOfOneTrainingFollowEachOther) {
  Generator g(7);
  const Tensor x = randn({8, 6}, g).eval(), y = randint({8}, 0, 3, g).eval();
  auto one_step = [](Net& n, optim::AdamW& o, const Tensor& in, const Tensor& target) {
    const Tensor loss = cross_entropy(n(in), target);
    o.zero_grad();
    loss.backward();
    o.step();
    return loss;
  };
  const int each = rounds(4);
  Net alone{Generator(2)}, together{Generator(2)};
  optim::AdamW first(nn::named_parameters(alone), {.lr = 0.01});
  optim::AdamW second(nn::named_parameters(together), {.lr = 0.01});
  auto step = compile(one_step);
  for (int i = 0; i < kThreads * each; ++i)
    step(alone, first, x, y);
  on_all_threads([&](int) {
    for (int i = 0; i < each; ++i)
      step(together, second, x, y);
  });
  EXPECT_EQ(second.steps.item<int>(), kThreads * each);
  EXPECT_EQ(all_parameters(together), all_parameters(alone));
}

} // namespace
} // namespace egret
