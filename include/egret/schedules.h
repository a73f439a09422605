// Schedules of the learning rate: small structs with at(step), steps counted from 0, and Plateau,
// which watches a measurement.
//
//   optim::WarmupCosine schedule{.peak = 3e-4, .warmup = 100, .total = 5000};
//   optimizer.set_lr(schedule.at(step));
#pragma once

#include "egret/tensor.h"

#include <cstdint>

namespace egret::optim {

/// Rises linearly from 0 to `peak` in `warmup` steps, then falls along half a cosine to `least` at
/// step `total` (Loshchilov and Hutter 2017) and stays there.
struct WarmupCosine {
  double peak = 1e-3;
  std::int64_t warmup = 0, total = 1;
  double least = 0;
  double at(std::int64_t step) const; ///< step 0 has peak / warmup
};

/// Rises linearly from 0 to `peak` in `warmup` steps and stays there.
struct Warmup {
  double peak = 1e-3;
  std::int64_t warmup = 0;
  double at(std::int64_t step) const;
};

/// start · factor^⌊step / every⌋.
struct StepDecay {
  double start = 1e-3;
  std::int64_t every = 1;
  double factor = 0.1;
  double at(std::int64_t step) const;
};

/// start · factor^step.
struct Exponential {
  double start = 1e-3;
  double factor = 0.99;
  double at(std::int64_t step) const;
};

/// In a line from `start` to `end`, which step `total` has, and stays there.
struct Linear {
  double start = 1e-3, end = 0;
  std::int64_t total = 1;
  double at(std::int64_t step) const;
};

/// Half a cosine up from peak / start_divisor to `peak` in the first `rise` of the steps, and one
/// down to peak / start_divisor / end_divisor at the last, step total - 1 (Smith and Topin 2018),
/// as torch.optim.lr_scheduler.OneCycleLR.
struct OneCycle {
  double peak = 1e-3;
  std::int64_t total = 2;
  double rise = 0.3;
  double start_divisor = 25, end_divisor = 1e4;
  double at(std::int64_t step) const;
};

struct PlateauOptions {
  double lr = 1e-3;           ///< to start with
  double factor = 0.1;        ///< what the rate is multiplied by
  std::int64_t patience = 10; ///< measurements in a row without a better one that are let pass
  double threshold = 1e-4;    ///< by which part a better one must be below the best
  std::int64_t cooldown = 0;  ///< measurements after a change that do not count
  double least = 0;
};

/// Multiplies the rate by `factor` when a measurement (a loss: less is better) has stopped falling,
/// as torch.optim.lr_scheduler.ReduceLROnPlateau. Its state is a tree, so checkpoints hold it.
class Plateau {
public:
  explicit Plateau(const PlateauOptions& options = {});
  double update(double measured); ///< after each measurement; returns the rate from now on
  double lr() const;

  Tensor state; ///< f64 [4]: rate, best, measurements without a better one, cooldown left

  template <class V>
  void visit(V& v) {
    v("state", state);
  }

private:
  PlateauOptions options_;
};

} // namespace egret::optim
