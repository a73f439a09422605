// One function object of several lambdas, for std::visit: a variant's alternative that none of them
// takes is a compile error.
#pragma once

namespace egret {

template <class... F>
struct overloaded : F... {
  using F::operator()...;
};
template <class... F>
overloaded(F...) -> overloaded<F...>;

} // namespace egret
