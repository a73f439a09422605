// egret train digits: handwritten digits by a network of three linear layers.
#include "train.h"

#include "console.h"

#include "egret/checkpoint.h"
#include "egret/compile.h"
#include "egret/data.h"
#include "egret/optim.h"
#include "support/output_file.h"
#include "support/path_status.h"

#include <chrono>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

using Clock = std::chrono::steady_clock;
using Network = nn::Sequential<nn::Linear, nn::Relu, nn::Dropout, nn::Linear, nn::Relu, nn::Dropout,
                               nn::Linear>;

constexpr std::int64_t kSide = 28;
constexpr std::int64_t kPixels = kSide * kSide;
constexpr std::int64_t kClasses = 10;

struct DigitsTraining {
  Network network;
  optim::AdamW optimizer;
  Generator generator; ///< of dropout
  EGRET_FIELDS(network, optimizer, generator)
};

DigitsTraining make_training(const DigitsOptions& o) {
  Generator g(o.seed);
  Network network(nn::Linear(kPixels, o.width, g), nn::Relu{}, nn::Dropout{o.dropout},
                  nn::Linear(o.width, o.width, g), nn::Relu{}, nn::Dropout{o.dropout},
                  nn::Linear(o.width, kClasses, g));
  return {network, optim::AdamW(nn::named_parameters(network), {.lr = o.lr}), g};
}

Tensor digits_step(DigitsTraining& t, const Tensor& images, const Tensor& labels) {
  Tensor loss = cross_entropy(t.network(images, &t.generator), labels);
  t.optimizer.zero_grad();
  loss.backward();
  t.optimizer.step();
  return loss;
}

Tensor likeliest(const Network& network, const Tensor& images) {
  return network(images).argmax(-1);
}

/// The image moved by whole pixels; what comes in at the edge is 0.
void shifted_copy(const float* from, std::int64_t dy, std::int64_t dx, float* to) {
  for (std::int64_t y = 0; y < kSide; ++y)
    for (std::int64_t x = 0; x < kSide; ++x) {
      std::int64_t sy = y - dy;
      std::int64_t sx = x - dx;
      bool inside = sy >= 0 && sy < kSide && sx >= 0 && sx < kSide;
      to[y * kSide + x] = inside ? from[sy * kSide + sx] : 0;
    }
}

/// Rows of the images with these numbers, each moved by up to `shift` pixels in a way that `random`
/// decides.
Tensor gather_images(const std::vector<float>& images, std::span<const std::int64_t> numbers,
                     std::int64_t shift, std::span<const std::int64_t> random) {
  std::vector<float> rows(numbers.size() * kPixels);
  std::int64_t places = 2 * shift + 1;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::int64_t r =
        random.empty() ? 0 : random[static_cast<std::size_t>(numbers[i])] % (places * places);
    std::int64_t dy = random.empty() ? 0 : r / places - shift;
    std::int64_t dx = random.empty() ? 0 : r % places - shift;
    shifted_copy(images.data() + numbers[i] * kPixels, dy, dx, rows.data() + i * kPixels);
  }
  return tensor(rows, Shape{static_cast<std::int64_t>(numbers.size()), kPixels});
}

Tensor gather_labels(const std::vector<std::int64_t>& labels,
                     std::span<const std::int64_t> numbers) {
  std::vector<std::int64_t> rows;
  for (std::int64_t number : numbers)
    rows.push_back(labels[static_cast<std::size_t>(number)]);
  return tensor(rows);
}

} // namespace

void train_digits(const DigitsOptions& o) {
  if (!o.out.empty())
    output_target("train digits --out", o.out);
  bool has_train = path_exists(std::filesystem::path(o.data) / "train-images-idx3-ubyte") ||
                   path_exists(std::filesystem::path(o.data) / "train-images-idx3-ubyte.gz");
  auto digits = data::load_digits(o.data, has_train ? "train" : "t10k");
  const std::int64_t trained = digits.size() - o.held_out;
  if (trained < o.batch)
    throw UsageError(
        fmt::format("{} digits are not enough to hold out {} and train with batches of {}",
                    digits.size(), o.held_out, o.batch));
  auto images = digits.images.to_vector<float>();
  auto labels = digits.labels.to_vector<std::int64_t>();
  DigitsTraining training = make_training(o);
  log("{} digits to train on, the last {} held out; {} parameters", trained, o.held_out,
      nn::count(training.optimizer.parameters()));

  auto step = compile(&digits_step, {.name = "digits training", .memory_limit = o.memory_limit});
  auto predict = compile(&likeliest, {.name = "digits prediction"});
  std::vector<std::int64_t> held_out(static_cast<std::size_t>(o.held_out));
  for (std::size_t i = 0; i < held_out.size(); ++i)
    held_out[i] = trained + static_cast<std::int64_t>(i);
  Tensor held_out_images = gather_images(images, held_out, 0, {});
  auto accuracy = [&] {
    auto got = predict(training.network, held_out_images).to_vector<std::int64_t>();
    std::int64_t right = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      right += got[i] == labels[static_cast<std::size_t>(trained) + i] ? 1 : 0;
    return static_cast<double>(right) / static_cast<double>(o.held_out);
  };

  const std::int64_t steps_an_epoch = trained / o.batch;
  optim::WarmupCosine schedule{
      .peak = o.lr, .warmup = 50, .total = o.epochs * steps_an_epoch, .least = o.lr / 100};
  const auto start = Clock::now();
  auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  Progress progress;
  std::int64_t i = 0;
  double loss = 0;
  double share = 0;
  for (std::int64_t epoch = 0; epoch < o.epochs; ++epoch) {
    auto mixed = static_cast<std::uint64_t>(epoch) * 2 + o.seed * 1000003;
    auto order = data::permutation(trained, mixed);
    auto random = data::permutation(trained, mixed + 1); // one number an image, for its shift
    for (std::int64_t b = 0; b < steps_an_epoch; ++b, ++i) {
      auto numbers = std::span<const std::int64_t>(order).subspan(
          static_cast<std::size_t>(b * o.batch), static_cast<std::size_t>(o.batch));
      training.optimizer.set_lr(schedule.at(i));
      loss = step(training, gather_images(images, numbers, o.shift, random),
                  gather_labels(labels, numbers))
                 .item();
      training::check_loss(loss, i + 1);
      progress.update([&] {
        return fmt::format("epoch {:>2}/{}  step {:>5}  loss {:.4f}  {:.0f} steps/s  held-out "
                           "digits right {:5.2f} %  {}",
                           epoch + 1, o.epochs, i + 1, loss, static_cast<double>(i + 1) / seconds(),
                           100 * share, seconds_text(seconds()));
      });
    }
    share = accuracy();
  }
  progress.finish();
  log("{} of the last {} digits are right: {}",
      std::llround(share * static_cast<double>(o.held_out)), o.held_out,
      styled(share >= 0.97 ? Style::Good : Style::Bad, fmt::format("{:.2f} %", 100 * share)));
  if (!o.out.empty()) {
    check_trained(training);
    save_checkpoint(o.out, training,
                    {{"format", "egret.digits"}, {"width", std::to_string(o.width)}});
    log("Saved to {}", o.out);
  }
  if (o.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"task", "digits"},
                                              {"accuracy", share},
                                              {"held_out", o.held_out},
                                              {"trained_on", trained},
                                              {"epochs", o.epochs},
                                              {"loss", loss},
                                              {"seconds", seconds()}}
                           .dump());
  else
    fmt::print("accuracy {:.2f} %\n", 100 * share);
}

} // namespace egret::tool
