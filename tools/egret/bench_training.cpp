// Whole training steps, and the cost of a launch.
#include "bench.h"

#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/models.h"
#include "egret/optim.h"
#include "gpt_mixed.h"
#include "train.h"
#include "training_step.h"

#include <cmath>
#include <memory>

namespace egret::tool::bench {

namespace {

/// A GPT with products in bf16, for the same training step.
struct MixedGpt {
  models::Gpt master; ///< f32
  EGRET_FIELDS(master)
  Tensor operator()(const Tensor& tokens) const {
    return mixed_logits(master, tokens, DType::BF16).to(DType::F32);
  }
};

template <class T>
Tensor step_of(T& training, const Tensor& x, const Tensor& y) {
  Tensor loss = loss_of(training.model(x), y);
  training.optimizer.zero_grad();
  loss.backward();
  training.optimizer.step();
  return loss;
}

/// The same without compile(), as people write it. Gradients that nobody holds when the loss is
/// read are not stored.
template <class T>
Tensor plain_step(T& training, const Tensor& x, const Tensor& y) {
  return recorded_step(training, x, y).eval();
}

using MlpTraining = Training<nn::Mlp, optim::Sgd>;
using GptTraining = Training<models::Gpt, optim::AdamW>;
using MixedTraining = Training<MixedGpt, optim::AdamW>;

MlpTraining make_mlp() {
  Generator g(1);
  nn::Mlp model({784, 128, 10}, g);
  return {model, optim::Sgd(nn::named_parameters(model), {.lr = 0.01})};
}

GptTraining make_gpt() {
  Generator g(1);
  models::Gpt model(
      {.vocabulary = 256, .context = 128, .layers = 4, .width = 128, .heads = 4, .tied = true}, g);
  return {model, optim::AdamW(nn::named_parameters(model), {.lr = 1e-3})};
}

constexpr models::GptOptions kGpt2{
    .vocabulary = 50304, .context = 1024, .layers = 12, .width = 768, .heads = 12, .tied = true};

MixedTraining make_mixed(const models::GptOptions& options) {
  Generator g(1);
  MixedGpt model{models::Gpt(options, g)};
  for (nn::TransformerBlock& block : model.master.blocks)
    block.activation = nn::Activation::GeluTanh;
  return {model, optim::AdamW(nn::named_parameters(model), {.lr = 1e-4})};
}

/// The loss and all parameters after one step, one after the other.
template <class T>
Tensor after_one_step(T training, const Tensor& x, const Tensor& y) {
  std::vector<Tensor> parts = {step_of(training, x, y).reshape({1})};
  for (const auto& named : training.optimizer.parameters())
    parts.push_back(named.tensor.detach().flatten());
  return cat(parts);
}

/// The same step from the same start, by the compiler and by the reference.
template <class T>
Check check_step(T (*make)(), const Tensor& x, const Tensor& y, double tolerance) {
  auto actual = after_one_step(make(), x, y).template to_vector<double>();
  return compare(actual, by_reference([&] { return after_one_step(make(), x, y); }), tolerance);
}

template <class T>
Case training_case(const std::string& name, T (*make)(), const Tensor& x, const Tensor& y,
                   const Tensor& small_x, const Tensor& small_y) {
  auto training = std::make_shared<T>(make());
  auto step = std::make_shared<Compiled<Tensor (*)(T&, const Tensor&, const Tensor&)>>(
      compile(&step_of<T>, {.name = name}));
  Case c;
  c.run = [=] { return std::vector<Tensor>{(*step)(*training, x, y)}; };
  c.check = [=](const std::vector<Tensor>& outputs) {
    // At a size that the reference can do, every parameter; at full size, the loss beside that of
    // the same step op by op.
    Check check = check_step<T>(make, small_x, small_y, 1e-4);
    T fresh = make();
    T plain = make();
    auto by_ops = compile(&step_of<T>, {.name = name + ", op by op", .fuse = false});
    Tensor fused_loss = (*step)(fresh, x, y);
    check.include(compare({fused_loss.item()}, {by_ops(plain, x, y).item()}, 1e-5));
    check.ok = check.ok && std::isfinite(outputs[0].item());
    return check;
  };
  double parameters = 0;
  for (const auto& named : training->optimizer.parameters())
    parameters += static_cast<double>(named.tensor.numel());
  c.bytes = 4 * parameters * 2;
  return c;
}

template <class T>
Case plain_case(T (*make)(), const Tensor& x, const Tensor& y) {
  auto training = std::make_shared<T>(make());
  Case c;
  c.run = [=] { return std::vector<Tensor>{plain_step(*training, x, y)}; };
  c.check = [=](const std::vector<Tensor>& outputs) {
    // The losses of the first steps beside those of the compiled step.
    T plain = make(), other = make();
    auto step = compile(&step_of<T>);
    Check check;
    check.ok = std::isfinite(outputs[0].item());
    for (int i = 0; i < 4; ++i)
      check.include(compare({plain_step(plain, x, y).item()}, {step(other, x, y).item()}, 1e-4));
    return check;
  };
  return c;
}

/// Token numbers [batch, positions] and those that follow.
std::pair<Tensor, Tensor> token_batch(std::int64_t batch, std::int64_t positions,
                                      std::int64_t vocabulary) {
  Generator g(3);
  Tensor x = randint({batch, positions}, 0, vocabulary, g);
  Tensor y = randint({batch, positions}, 0, vocabulary, g);
  eval({x, y});
  return {x, y};
}

// Forward, and twice that backward but for the gradient of the first input.
constexpr double kMlpFlops = 2.0 * 64 * (784 * 128 * 2 + 128 * 10 * 3);

/// Images and their digits.
std::pair<Tensor, Tensor> digit_batch() {
  Tensor x = random_tensor({64, 784}, 1);
  Generator g(2);
  Tensor y = randint({64}, 0, 10, g);
  y.eval();
  return {x, y};
}

Case mlp_training_case() {
  auto [x, y] = digit_batch();
  Case c = training_case("mnist_mlp_train_f32_b64", &make_mlp, x, y, x.narrow(0, 0, 8),
                         y.narrow(0, 0, 8));
  c.flops = kMlpFlops;
  return c;
}

Case mlp_plain_case() {
  auto [x, y] = digit_batch();
  Case c = plain_case(&make_mlp, x, y);
  c.flops = kMlpFlops;
  return c;
}

double gpt_flops() {
  const double tokens = 16 * 128;
  const double matrices = 4 * 12 * 128.0 * 128 + 128 * 256;
  const double scores =
      4 * 2 * 2 * 128.0 * 128; // both products of each layer, not halved by the mask
  return 3 * tokens * (2 * matrices + scores);
}

Case gpt_case() {
  auto [x, y] = token_batch(16, 128, 256);
  Case c = training_case("gpt_tiny_train_f32", &make_gpt, x, y, x.narrow(0, 0, 2).narrow(1, 0, 8),
                         y.narrow(0, 0, 2).narrow(1, 0, 8));
  c.flops = gpt_flops();
  return c;
}

Case gpt_plain_case() {
  auto [x, y] = token_batch(16, 128, 256);
  Case c = plain_case(&make_gpt, x, y);
  c.flops = gpt_flops();
  return c;
}

/// The loss of one step and the first means of all gradients: of rounded products the parameters
/// themselves would not do, as Adam's first step is about as long for the smallest gradient as for
/// the largest.
std::pair<double, std::vector<double>> gradients(MixedTraining t, const Tensor& x,
                                                 const Tensor& y) {
  auto step = compile(&step_of<MixedTraining>, {.name = "small GPT"});
  const double loss = step(t, x, y).item();
  std::vector<double> all;
  for (const auto& [name, mean] : t.optimizer.exp_avg) {
    auto values = mean.template to_vector<double>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return {loss, all};
}

constexpr models::GptOptions kSmallGpt{
    .vocabulary = 40, .context = 8, .layers = 2, .width = 32, .heads = 4, .tied = true};

Check check_small_mixed() {
  const models::GptOptions& few = kSmallGpt;
  auto [x, y] = token_batch(2, 8, few.vocabulary);
  auto [loss, means] = gradients(make_mixed(few), x, y);
  double expected_loss = 0;
  auto expected = values_by_reference([&] {
    auto [l, m] = gradients(make_mixed(few), x, y);
    expected_loss = l;
    return m;
  });
  Check check = compare({loss}, {expected_loss}, 5e-3);
  check.include(compare(means, expected, 3e-2));
  return check;
}

Case gpt2_case(const std::string& name) {
  using Step = Compiled<Tensor (*)(MixedTraining&, const Tensor&, const Tensor&)>;
  auto [x, y] = token_batch(32, 1024, kGpt2.vocabulary);
  auto training = std::make_shared<MixedTraining>(make_mixed(kGpt2));
  auto step = std::make_shared<Step>(compile(&step_of<MixedTraining>, {.name = name}));
  Case c;
  c.run = [=, x = x, y = y] { return std::vector<Tensor>{(*step)(*training, x, y)}; };
  c.check = [=, x = x, y = y](const std::vector<Tensor>& outputs) {
    Check check = check_small_mixed();
    // A fresh model knows nothing: about as likely as any token; and it learns the batch by heart.
    MixedTraining fresh = make_mixed(kGpt2);
    const double chance = std::log(static_cast<double>(kGpt2.vocabulary));
    const double before = (*step)(fresh, x, y).item(), after = outputs[0].item();
    check.include(compare({before}, {chance}, 0.03));
    check.ok = check.ok && after < before;
    return check;
  };
  double parameters = 0;
  for (const auto& named : training->optimizer.parameters())
    parameters += static_cast<double>(named.tensor.numel());
  const double matrices = 12.0 * 12 * 768 * 768 + 768.0 * 50304;
  const double scores = 12.0 * 2 * 2 * 1024 * 768; // as in gpt_case
  c.tokens = 32.0 * 1024;
  c.flops = 3 * c.tokens * (2 * matrices + scores);
  c.bytes = 4 * parameters * 2 * 3; // parameters and Adam's two means, read and written
  return c;
}

Case dispatch_case() {
  auto x = std::make_shared<Tensor>(random_tensor({8}, 1));
  auto before = std::make_shared<std::vector<float>>();
  auto step = std::make_shared<Compiled<void (*)(Tensor&)>>(
      compile(+[](Tensor& t) { t = t * 0.5 + 1.0; }, {.name = "dispatch"}));
  Case c;
  c.run = [=] {
    (*step)(*x);
    return std::vector<Tensor>{*x};
  };
  c.check = [](const std::vector<Tensor>& outputs) {
    // From any start x -> x/2 + 1 ends at 2.
    return compare(outputs[0].to_vector<double>(), std::vector<double>(8, 2.0), 1e-6);
  };
  c.flops = 16;
  c.bytes = 64;
  return c;
}

// A chain of additions of 1 to 8 floats, recorded without compile(); `read`: and computed.
Case lazy_case(int operations, bool read) {
  auto x = std::make_shared<Tensor>(zeros({8}).eval());
  auto one = std::make_shared<Tensor>(ones({8}).eval());
  auto last = std::make_shared<Tensor>();
  Case c;
  c.run = [=] {
    Tensor y = *x;
    for (int i = 0; i < operations; ++i)
      y = y + *one;
    *last = read ? y.eval() : y;
    return std::vector<Tensor>{*x};
  };
  c.check = [=](const std::vector<Tensor>&) {
    return compare(last->to_vector<double>(), std::vector<double>(8, operations), 1e-6);
  };
  c.flops = 8.0 * operations;
  c.bytes = 64;
  return c;
}

} // namespace

std::vector<Workload> training_workloads() {
  Workload mlp{"mnist_mlp_train_f32_b64", "784-128-10, SGD, a whole step", "f32", Limit::PeakFma,
               mlp_training_case};
  mlp.judged = Judged::Both;
  mlp.small = [] {
    MlpTraining training = make_mlp();
    auto [x, y] = token_batch(1, 4, 10);
    return traced(&step_of<MlpTraining>, training, random_tensor({4, 784}, 1), y.flatten().eval());
  };
  const std::string name = "gpt2_124m_train_bf16_b32t1024";
  Workload gpt2{name,
                "GPT-2 with 124M parameters in f32, products in bf16, batch 32 of 1024 tokens, "
                "AdamW, a whole step",
                "bf16", Limit::None, [name] { return gpt2_case(name); }};
  gpt2.judged = Judged::Cuda;
  gpt2.memory = 50e9;
  gpt2.small = [] {
    MixedTraining training = make_mixed(kSmallGpt);
    auto [x, y] = token_batch(2, 8, kSmallGpt.vocabulary);
    return traced(&step_of<MixedTraining>, training, x, y);
  };
  return {
      mlp,
      gpt2,
      {"gpt_tiny_train_f32",
       "4 layers, width 128, 4 heads, 128 positions, batch 16, AdamW, a whole step", "f32",
       Limit::PeakFma, gpt_case},
      {"mnist_mlp_train_lazy_f32_b64", "the step of mnist_mlp_train_f32_b64 without compile()",
       "f32", Limit::PeakFma, mlp_plain_case},
      {"gpt_tiny_train_lazy_f32", "the step of gpt_tiny_train_f32 without compile()", "f32",
       Limit::PeakFma, gpt_plain_case},
      {"dispatch_f32_8", "a compiled step on 8 floats in place: the cost of a launch", "f32",
       Limit::None, dispatch_case},
      {"dispatch_lazy_1_f32_8", "one lazy operation on 8 floats: record, find the plan, launch",
       "f32", Limit::None, [] { return lazy_case(1, true); }},
      {"dispatch_lazy_256_f32_8", "256 lazy operations on 8 floats: record, find the plan, launch",
       "f32", Limit::None, [] { return lazy_case(256, true); }},
      {"dispatch_record_256_f32_8", "256 lazy operations on 8 floats: record and drop", "f32",
       Limit::None, [] { return lazy_case(256, false); }},
  };
}

} // namespace egret::tool::bench
