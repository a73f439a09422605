#include "egret/autocast.h"

#include "support/fail.h"
#include "tensor/ops.h"

namespace egret {

namespace {

[[gnu::tls_model("initial-exec")]] thread_local std::optional<DType> current_type;

bool takes_part(DType type) {
  return type == DType::F32 || type == DType::F16 || type == DType::BF16;
}

} // namespace

Autocast::Autocast(DType type) : before_(current_type) {
  if (!takes_part(type))
    fail(ErrorKind::DType, "Autocast: products in {}; f16, bf16 or f32", name_of(type));
  current_type = type == DType::F32 ? std::nullopt : std::optional(type);
}

Autocast::~Autocast() {
  current_type = before_;
}

std::optional<DType> autocast_type() noexcept {
  return current_type;
}

namespace detail {

Tensor product_operand(const Tensor& a) {
  return current_type && a.defined() && takes_part(a.dtype()) ? a.to(*current_type) : a;
}

Tensor rounded_to(Tensor result, DType type) {
  return current_type && takes_part(type) ? result : converted_own(std::move(result), type);
}

} // namespace detail
} // namespace egret
