// Gradients of lazy tensors: what Tensor::backward() does, as functions.
#pragma once

#include "egret/autodiff.h"
#include "egret/tensor.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace egret {

/// d(sum of outputs · seeds)/d(input), one an input: tensors that can be differentiated again.
/// `inputs` may be any tensors on the way, not only leaves. An input that the outputs do not depend
/// on gets zeros. Seeds default to ones, for outputs of one element only (Error(Shape) else).
std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> seeds = {});
std::vector<Tensor> grad(const Operand& output, std::initializer_list<Tensor> inputs);
Tensor grad(const Operand& output, const Operand& input);

/// While one lives, what its thread records needs no gradient.
class NoGrad {
public:
  NoGrad() noexcept;
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

private:
  bool before_;
};
bool grad_enabled() noexcept; ///< on this thread

/// Compares the gradients of `function` (any number of outputs; each is weighted by fixed random
/// numbers) with central differences at `inputs`, which must be f64 (Error(DType) else). What the
/// function is called with are leaves that require a gradient, so that it may call grad() itself.
GradCheck gradcheck(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& function,
                    const std::vector<Tensor>& inputs, const GradCheckOptions& options = {});
GradCheck gradcheck(const std::function<Tensor(const Tensor&)>& function, const Tensor& input,
                    const GradCheckOptions& options = {});
/// gradcheck() of the gradients: those of `function`'s outputs, for seeds that are fixed random
/// numbers, by its inputs and by the seeds, which are numbered behind the inputs. Second
/// derivatives are right when it finds nothing.
GradCheck
gradgradcheck(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& function,
              const std::vector<Tensor>& inputs, const GradCheckOptions& options = {});
GradCheck gradgradcheck(const std::function<Tensor(const Tensor&)>& function, const Tensor& input,
                        const GradCheckOptions& options = {});

} // namespace egret
