// Values that reach memory only through a rounding to 16 bits, by way of products, quotients and
// choices (kernel/rounded_uses.h): divisions among them, exponentials, logistic functions and
// hyperbolic tangents take a quarter to a third of the instructions.
#include "backend/cuda/renderer.h"

namespace egret::backend::cuda {

std::string narrow_text(Op op, const std::vector<std::string>& args) {
  switch (op) {
  case Op::Div:
    return fmt::format("eg_narrow_div({}, {})", args[0], args[1]);
  case Op::Recip:
    return fmt::format("eg_narrow_div(1.0f, {})", args[0]);
  case Op::Exp:
    return fmt::format("eg_narrow_exp({})", args[0]);
  case Op::Sigmoid:
    return fmt::format("eg_narrow_sigmoid({})", args[0]);
  case Op::Tanh:
    return fmt::format("eg_narrow_tanh({})", args[0]);
  default:
    return "";
  }
}

} // namespace egret::backend::cuda
