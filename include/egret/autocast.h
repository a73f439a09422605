// Mixed precision: products in f16 or bf16, everything else in f32.
//
//   Tensor loss;
//   {
//     Autocast scope(DType::BF16);
//     loss = cross_entropy(model(tokens), targets);
//   }
//   loss.backward(); // gradients of f32 parameters are f32
//
// bf16 has f32's range. f16 has not: small gradients vanish and large ones overflow, so scale the
// loss (GradScaler in mixed.h).
#pragma once

#include "egret/dtype.h"

#include <optional>

namespace egret {

/// While one lives, what its thread records computes products in `type`: matmul, linear, attention
/// and convolutions take operands of f32 (and the other one of f16 and bf16) as `type` and give
/// results of `type`. Sums, means, variances, norms, softmax and losses of f16 and bf16 give f32.
/// Everything else takes its operands as they are, so parameters stay f32 and what is added to an
/// f32 value is f32. f64 is left alone. Scopes nest; the inner one holds.
///
/// A compiled function may hold the scope inside, or be called inside one: each is traced for
/// itself. backward() is meant to be called outside; it computes in the types of the recipe.
class Autocast {
public:
  explicit Autocast(DType type); ///< F16, BF16, or F32 for none; Error(DType) else
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

private:
  std::optional<DType> before_;
};

/// What the innermost scope on this thread says.
std::optional<DType> autocast_type() noexcept;

} // namespace egret
