#include "egret/mixed.h"

#include "support/fail.h"

namespace egret::optim {

GradScaler::GradScaler(const GradScalerOptions& options)
    : scale(scalar(options.scale, DType::F32)), good(scalar(0.0, DType::F32)),
      skipped(scalar(0.0, DType::F32)), options_(options) {
  if (!(options.scale > 0 && options.growth >= 1 && options.backoff > 0 && options.backoff < 1) ||
      options.growth_interval < 1)
    fail(ErrorKind::Value,
         "GradScaler: scale {}, growth {}, backoff {}, growth interval {}; positive, at least 1, "
         "between 0 and 1, at least 1",
         options.scale, options.growth, options.backoff, options.growth_interval);
}

Tensor GradScaler::scaled(const Tensor& loss) const {
  return loss.to(DType::F32) * scale;
}

void GradScaler::unscale(const std::vector<NamedTensor>& parameters) {
  if (finite_.defined())
    return;
  NoGrad no_grad;
  finite_ = scalar(true);
  const Tensor back = 1.0 / scale;
  for (auto [name, p] : parameters)
    if (Tensor g = p.grad(); g.defined()) {
      const Tensor true_gradient = g.to(DType::F32) * back;
      finite_ = logical_and(finite_, all(isfinite(true_gradient)));
      p.set_grad(true_gradient.to(g.dtype()));
    }
}

std::vector<Tensor> GradScaler::values(const std::vector<NamedTensor>& places) {
  std::vector<Tensor> values;
  for (const auto& place : places)
    values.push_back(place.tensor.detach());
  return values;
}

void GradScaler::keep_unless_finite(std::vector<NamedTensor>& places,
                                    const std::vector<Tensor>& before) {
  NoGrad no_grad;
  for (std::size_t i = 0; i < places.size(); ++i)
    places[i].tensor.assign(where(finite_, places[i].tensor.detach(), before[i]));
  const Tensor run = where(finite_, good + 1.0, 0.0);
  const Tensor grown = ge(run, static_cast<double>(options_.growth_interval));
  scale.assign(
      where(finite_, where(grown, scale * options_.growth, scale), scale * options_.backoff));
  good.assign(where(grown, 0.0, run));
  skipped.assign(where(finite_, skipped, skipped + 1.0));
  finite_ = Tensor();
}

} // namespace egret::optim
