// Scaling of losses, for gradients that are computed in f16 (autocast.h).
//
//   optim::GradScaler scaler;
//   auto step = compile([](Model& m, optim::AdamW& o, optim::GradScaler& s, const Tensor& x,
//                          const Tensor& y) {
//     Tensor loss;
//     {
//       Autocast scope(DType::F16);
//       loss = cross_entropy(m(x), y);
//     }
//     o.zero_grad();
//     s.scaled(loss).backward();
//     s.unscale(o.parameters());                     // only for what needs true gradients:
//     optim::clip_grad_norm(o.parameters(), 1.0);
//     s.step(o);
//     return loss;
//   });
#pragma once

#include "egret/grad.h"
#include "egret/optim.h"
#include "egret/tensor.h"
#include "egret/tree.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace egret::optim {

struct GradScalerOptions {
  double scale = 65536; ///< to start with
  double growth = 2;    ///< after `growth_interval` steps in a row without overflow
  double backoff = 0.5; ///< after an overflow
  std::int64_t growth_interval = 2000;
};

/// Multiplies a loss so that its gradients stay within f16's range, divides them again, and skips
/// the steps whose gradients are not finite (Micikevicius et al. 2018), as torch.amp.GradScaler.
/// Nothing is read on the way: a skipped step is one that writes what was there before, so a
/// compiled step stays one plan. Its state is a tree of tensors.
class GradScaler {
public:
  explicit GradScaler(const GradScalerOptions& options = {}); ///< Error(Value)

  Tensor scaled(const Tensor& loss) const; ///< in f32
  /// Divides the gradients by the scale, in f32. Once a step; step() does it when it was not done.
  void unscale(const std::vector<NamedTensor>& parameters);
  /// optimizer.step() when all gradients are finite. Otherwise parameters and the optimizer's
  /// state stay bit for bit. Then changes the scale.
  template <class O>
  void step(O& optimizer) {
    unscale(optimizer.parameters());
    std::vector<NamedTensor> places = optimizer.parameters();
    for (auto& place : named_tensors(optimizer))
      places.push_back(place);
    const std::vector<Tensor> before = values(places);
    optimizer.step();
    keep_unless_finite(places, before);
  }

  Tensor scale;   ///< f32, rank 0
  Tensor good;    ///< f32, rank 0: steps in a row without overflow
  Tensor skipped; ///< f32, rank 0: steps that were skipped, in all

  template <class V>
  void visit(V& v) {
    v("scale", scale);
    v("good", good);
    v("skipped", skipped);
  }

private:
  static std::vector<Tensor> values(const std::vector<NamedTensor>& places);
  void keep_unless_finite(std::vector<NamedTensor>& places, const std::vector<Tensor>& before);

  GradScalerOptions options_;
  Tensor finite_; ///< between unscale() and step()
};

} // namespace egret::optim
